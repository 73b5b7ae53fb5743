//! What is compared.

use std::ffi::OsString;
use std::path::PathBuf;

/// A command to run: what to start, and with what.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Invocation {
    /// The program's path, or its name on the command path.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Variables beside those of this process.
    pub environment: Vec<(OsString, OsString)>,
    /// A server is measured while this command puts load on it; without one, the program itself is.
    pub load: Option<Load>,
}

/// How a server is asked. In its own arguments and in this command, `{port}` is a port of this machine that nobody
/// listens on, another one in each run: on one that was just in use, many servers cannot listen for a minute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Load {
    /// Puts load on the server once it listens, and prints what came of that.
    pub command: String,
}

/// One of the programs that are compared.
#[derive(Debug, Clone)]
pub struct Arm {
    /// What it is called in the results.
    pub name: String,
    /// How it is run.
    pub invocation: Invocation,
    /// Why it cannot be, if that is known already: it is in the results with that reason.
    pub broken: Option<String>,
}

/// One comparison: every arm does the same work. The first arm is what the others are compared with.
#[derive(Debug, Clone)]
pub struct Case {
    /// What is run.
    pub name: String,
    /// Threads that it was told to use.
    pub threads: Option<u32>,
    /// The size of the work, where the same is done in several sizes.
    pub size: Option<u64>,
    /// The arms.
    pub arms: Vec<Arm>,
}

impl Case {
    /// Its name for people: program, threads and size.
    pub fn title(&self) -> String {
        title(&self.name, self.threads, self.size)
    }
}

pub(crate) fn title(name: &str, threads: Option<u32>, size: Option<u64>) -> String {
    let mut title = name.to_owned();
    if let Some(size) = size {
        title.push_str(&format!(", size {size}"));
    }
    match threads {
        Some(1) => title.push_str(", 1 thread"),
        Some(threads) => title.push_str(&format!(", {threads} threads")),
        None => {}
    }
    title
}

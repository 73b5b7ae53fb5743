//! The programs that are compared, and how each is run.

use std::ffi::OsString;
use std::path::PathBuf;

/// A command to run, with its arguments and environment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Invocation {
    /// The program's path, or its name on the command path.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Variables added to those of this process.
    pub environment: Vec<(OsString, OsString)>,
    /// The load, for a server: it is measured while the load runs. `None`: the program itself is measured.
    pub load: Option<Load>,
}

/// The load of a server. In this command and in the server's own arguments, `{port}` is a free port of this machine, a
/// different one in each run: many servers cannot listen on a port that was in use within the last minute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Load {
    /// Puts load on the server once it listens, and prints the results.
    pub command: String,
    /// The requests per second that replace `{rate}` in the command, and that the load has to keep. `None`: as many as
    /// the server answers.
    pub rate: Option<u64>,
}

/// The place of the rate in the command of a load.
pub const RATE: &str = "{rate}";

/// One of the programs that are compared.
#[derive(Debug, Clone)]
pub struct Arm {
    /// Its name in the results.
    pub name: String,
    /// The command that runs it.
    pub invocation: Invocation,
    /// The reason why it cannot run, if that is known in advance. The results contain the arm with that reason.
    pub broken: Option<String>,
}

/// One comparison: every arm does the same work. The first arm is the one that the others are compared with.
#[derive(Debug, Clone)]
pub struct Case {
    /// The name of the program.
    pub name: String,
    /// The number of threads that it is started with.
    pub threads: Option<u32>,
    /// The size of the work, if the same is done in several sizes.
    pub size: Option<u64>,
    /// The arms.
    pub arms: Vec<Arm>,
}

impl Case {
    /// Returns its name for people: program, threads and size.
    pub fn title(&self) -> String {
        title(&self.name, self.threads, self.size)
    }

    /// Whether its arms are servers whose load takes a rate.
    pub fn takes_rates(&self) -> bool {
        let load = |arm: &Arm| arm.invocation.load.as_ref().is_some_and(|load| load.command.contains(RATE));
        self.arms.iter().any(load)
    }

    /// Returns the case with a load of that many requests per second.
    #[must_use]
    pub fn at_rate(&self, rate: u64) -> Case {
        let mut case = self.clone();
        for load in case.arms.iter_mut().filter_map(|arm| arm.invocation.load.as_mut()) {
            load.rate = Some(rate);
        }
        case
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

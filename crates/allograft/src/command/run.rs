//! `allograft run`: runs a build that calls C compilers by their names, so that the static programs for musl that it
//! links carry a donor.
//!
//! A folder of wrappers comes first on the command path. Each wrapper is a link to this program, under the name of a
//! compiler or linker that is on the path behind it (`wrapper`). The folder is kept, since a build may write down the
//! path of a compiler: outside of `allograft run`, a wrapper is the compiler itself.

mod names;
mod wrapper;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use super::cc::cache;
use crate::choice::Choice;
use crate::failure::{Failure, mend};
use crate::output::Output;
use crate::signals::is_ignored;
use crate::stand_in::exit_code;
pub(crate) use wrapper::stand_in;

/// The environment variable that passes the session to the wrappers.
const VARIABLE: &str = "ALLOGRAFT_RUN";

/// Run a build whose static musl programs get a donor
///
/// For builds whose compiler cannot be named as CC. Compilers that the build calls by name, such as cc, gcc, musl-gcc,
/// clang and x86_64-linux-musl-gcc, are wrappers that work as `allograft cc` does; so is ld. What is not a static link
/// with musl is linked as ever: programs of glibc, dynamic ones, libraries. A compiler that the build calls by an
/// absolute path is not seen. No toolchain is changed. A wrapper's exit code is that of its compiler; a link fails if
/// the program has another malloc than the donor's, or if musl's libc.a cannot be grafted.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes: that of the command, or its signal; or
  2  the command cannot be run

Examples:
  allograft run make
  allograft run make CC=musl-gcc LDFLAGS=-static
  allograft run --donor mimalloc3 sh -c './configure && make -j8'
  allograft run -- ./build.sh --release

What follows the command is the command's own; options of `run` come first.")]
pub(crate) struct Run {
    #[command(flatten)]
    choice: Choice,
    /// Build command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// The settings of one `allograft run` for its wrappers.
#[derive(Debug, Serialize, Deserialize)]
struct Session {
    choice: Choice,
    /// The report: a file with a line for each link.
    report: PathBuf,
}

/// A line of the report.
#[derive(Debug, Serialize, Deserialize)]
struct ReportLine {
    program: PathBuf,
    /// Its allocator and string functions, if it is a program with a donor; else why it was linked as ever.
    carries: Result<String, String>,
}

impl Run {
    pub(crate) fn run(self, output: &Output) -> Result<ExitCode, Failure> {
        // A wrong choice is reported once, and not by every link.
        self.choice.candidates()?;
        let cannot =
            |what: &str, error: io::Error| Failure::usage(format!("cannot {what}: {error}")).with_help(mend(&error));
        let report = tempfile::NamedTempFile::new().map_err(|error| cannot("make a temporary file", error))?;
        let session = Session { choice: self.choice, report: report.path().to_owned() };
        let session = serde_json::to_string(&session).map_err(|error| {
            Failure::usage(format!("the path of temporary files cannot be written down: {error}"))
                .with_help("set TMPDIR to a folder whose path is UTF-8")
        })?;
        let path = std::env::var_os("PATH").unwrap_or_default();
        let behind: Vec<PathBuf> = std::env::split_paths(&path).collect();
        let folder = wrappers(&behind)?;
        let path = std::env::join_paths(std::iter::once(&folder).chain(&behind)).map_err(|error| {
            Failure::usage(format!("`{}` cannot be on the command path: {error}", folder.display()))
                .with_help("set XDG_CACHE_HOME to a folder without a colon in its path")
        })?;
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]).env("PATH", path).env(VARIABLE, session);
        let status = ended(&mut command, &|_, _| {})
            .map_err(|error| cannot(&format!("run `{}`", self.command[0].to_string_lossy()), error))?;
        summarise(&fs::read_to_string(report.path()).unwrap_or_default(), status.success(), output);
        // Before this process ends by a signal, which drops nothing.
        drop(report);
        if let Some(signal) = status.signal() {
            // If this returns, the exit code is that of a shell.
            let _ = emulate_default_handler(signal);
        }
        Ok(exit_code(status))
    }
}

/// Makes a wrapper for each compiler and linker on the command path, and returns their folder. Its name is a checksum
/// of what is in it.
fn wrappers(path: &[PathBuf]) -> Result<PathBuf, Failure> {
    let itself = std::env::current_exe().and_then(fs::canonicalize).map_err(|error| {
        Failure::usage(format!("cannot find this program: {error}"))
            .with_help("start it by its path; /proc has to be mounted")
    })?;
    let mut names: Vec<OsString> = path
        .iter()
        .flat_map(|folder| fs::read_dir(folder).into_iter().flatten().flatten())
        .map(|entry| entry.file_name())
        .filter(|name| names::is_wrapped(name))
        .collect();
    names.sort();
    names.dedup();
    let key = hosts::sha256(format!("{itself:?} {names:?}").as_bytes());
    let folder = cache()?.join("allograft/run").join(&key[..32]);
    let make = |name: &OsStr| {
        let link = folder.join(name);
        if fs::read_link(&link).is_ok_and(|to| to == itself) {
            return Ok(());
        }
        // Several runs may do this at once: the link either does not exist or is complete.
        let mut new = OsString::from(format!(".{}-", std::process::id()));
        new.push(name);
        let new = folder.join(new);
        let _ = fs::remove_file(&new);
        symlink(&itself, &new)?;
        fs::rename(&new, &link)
    };
    let made = fs::create_dir_all(&folder).and_then(|()| names.iter().try_for_each(|name| make(name)));
    made.map(|()| folder.clone()).map_err(|error| {
        Failure::io("write in", &folder)(error).with_help("set XDG_CACHE_HOME to a folder that can be written to")
    })
}

/// Runs the command to its end. Signals that end this process alone are handed on to it; those of a terminal reach it
/// by themselves, and this process waits for what it makes of them. `meanwhile` runs beside it, and has to return soon
/// after the flag says that the command has ended.
pub(crate) fn ended(command: &mut Command, meanwhile: &(dyn Fn(Pid, &AtomicBool) + Sync)) -> io::Result<ExitStatus> {
    let of_terminal = [SIGINT, SIGQUIT];
    let wanted = [SIGHUP, SIGTERM, SIGUSR1, SIGUSR2].into_iter().chain(of_terminal);
    let mut signals = Signals::new(wanted.filter(|signal| !is_ignored(*signal)))?;
    let handle = signals.handle();
    let mut child: Child = command.spawn()?;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let has_ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for signal in signals.forever().filter(|signal| !of_terminal.contains(signal)) {
                if let (Some(pid), Some(signal)) = (pid, Signal::from_named_raw(signal)) {
                    // It may have ended meanwhile.
                    let _ = kill_process(pid, signal);
                }
            }
        });
        let has_ended = &has_ended;
        scope.spawn(move || pid.map(|pid| meanwhile(pid, has_ended)));
        let status = child.wait();
        has_ended.store(true, Ordering::Relaxed);
        handle.close();
        status
    })
}

/// Says what was linked. What is gone again was a test of a configure script. `succeeded`: the command has; one that
/// failed has said why.
fn summarise(report: &str, succeeded: bool, output: &Output) {
    let told = report.lines().filter_map(|line| serde_json::from_str::<ReportLine>(line).ok());
    // The last link of a program counts.
    let programs: BTreeMap<PathBuf, _> = told.map(|told| (told.program, told.carries)).collect();
    let mut by_result: BTreeMap<Result<String, String>, Vec<PathBuf>> = BTreeMap::new();
    for (program, carries) in programs.into_iter().filter(|(program, _)| program.is_file()) {
        by_result.entry(carries).or_default().push(program);
    }
    for (result, programs) in &by_result {
        let names = listed(programs);
        match result {
            Ok(what) => output.note(format_args!("with {what}: {names}")),
            Err(why) => output.note(format_args!("linked as ever, as {why}: {names}")),
        }
    }
    if succeeded && !by_result.keys().any(Result::is_ok) {
        output.warn_with_help(
            "the command linked no program with a donor: wrappers see what is linked statically, with musl, by a \
             compiler that is called by its name",
            "if everything was built already, clean it first (`make clean`)",
        );
    }
}

/// Names the first programs.
fn listed(programs: &[PathBuf]) -> String {
    const SHOWN: usize = 4;
    let here = std::env::current_dir().unwrap_or_default();
    let shown = |path: &Path| format!("`{}`", path.strip_prefix(&here).unwrap_or(path).display());
    let mut names: Vec<String> = programs.iter().take(SHOWN).map(|path| shown(path)).collect();
    if programs.len() > SHOWN {
        names.push(format!("{} more", programs.len() - SHOWN));
    }
    names.join(", ")
}

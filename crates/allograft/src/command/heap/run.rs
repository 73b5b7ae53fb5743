//! `allograft profile --heap`: runs a program whose donor writes heap profiles, and reports them. The user's file stays
//! untouched: unless it can write profiles already, a copy of it is grafted, in a folder for temporary files.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::process::{ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hosts::{Candidate, Request};
use inspector::Source;
use profiler::heap::{Amount, Heap, HeapProfile};
use profiler::size::size;
use rustix::process::{Pid, Signal, kill_process};

use super::{cannot_start, failed, overview};
use crate::command::bench::{Scratch, check_rights};
use crate::command::graft::executable::{explained, keeps_for_its_language};
use crate::command::run::ended;
use crate::failure::Failure;
use crate::output::{Output, file};
use crate::program::on_path;
use crate::shell::quoted;

/// The variable that has a donor write heap profiles.
const VARIABLE: &str = "ALLOGRAFT_HEAP";
/// The variable that names the signal at which it writes one.
const SIGNAL: &str = "ALLOGRAFT_HEAP_SIGNAL";
/// How long a program has for its profile, and for its end, when its time is over.
const GRACE: Duration = Duration::from_secs(5);

/// The wishes of `allograft profile --heap`.
pub(crate) struct HeapRun<'a> {
    /// The program and its arguments.
    pub(crate) command: &'a [OsString],
    /// About one block is sampled for each number of bytes so large.
    pub(crate) sample_bytes: u64,
    /// The time after which the program is ended.
    pub(crate) duration: Option<Duration>,
    /// The folder for the page, the document and the profiles.
    pub(crate) out: Option<&'a Path>,
}

/// A profile that a process wrote.
struct Written {
    process: String,
    path: PathBuf,
    profile: HeapProfile,
}

impl HeapRun<'_> {
    /// Grafts a copy of the program if necessary, runs it, and reports its heap.
    ///
    /// # Errors
    /// Exit code 3 if it cannot be grafted; 2 if it cannot be run, or wrote no profile.
    pub(crate) fn run(&self, output: &Output) -> Result<ExitCode, Failure> {
        let typed = self.command[0].to_string_lossy().into_owned();
        let scratch = Scratch::new()?;
        let program = self.program(&typed, scratch.path(), output)?;
        let profiles = scratch.path().join("profiles");
        fs::create_dir(&profiles).map_err(Failure::io("make", &profiles))?;
        let status = self.started(&program, &profiles, output).map_err(|error| cannot_start(&typed, &error))?;
        let mut written = profiles_in(&profiles, output)?;
        let weight = |written: &Written| {
            let (live, allocated) = written.profile.totals();
            (live.bytes, allocated.bytes)
        };
        let Some(most) = (0..written.len()).max_by_key(|at| (weight(&written[*at]), std::cmp::Reverse(*at))) else {
            return Err(wrote_nothing(&typed, status));
        };
        let main = written.swap_remove(most);
        let mut heap = Heap::new(main.profile, None, None).map_err(|error| failed(&main.path, error))?;
        if heap.report.program == program.to_string_lossy() {
            heap.report.program = typed.clone();
        }
        match (status.code(), status.signal()) {
            (_, Some(signal)) if self.duration.is_none() => {
                heap.report.warnings.push(format!("the program was ended by signal {signal}"));
            }
            (Some(code @ 1..), _) => heap.report.warnings.push(format!("the program ended with exit code {code}")),
            _ => {}
        }
        for warning in &heap.report.warnings {
            output.warn(warning);
        }
        for other in &written {
            let (Amount { bytes: live, .. }, Amount { bytes: allocated, .. }) = other.profile.totals();
            output.note(format_args!(
                "process {} wrote a profile, too: {} live of {} allocated{}",
                other.process,
                size(live),
                size(allocated),
                if self.out.is_none() { "; `-o DIR` keeps it" } else { "" }
            ));
        }
        // Before the files: if either cannot be written, the other one still is.
        let said = match output.json {
            true => output.document(&heap.report),
            false => output.text(&overview(&heap.report, output)),
        };
        if let Some(folder) = self.out {
            self.write(folder, &heap, &main.path, &written, output)?;
        }
        said.map(|()| ExitCode::SUCCESS)
    }

    /// Returns the program to run: the user's own if its donor writes heap profiles, else a grafted copy in `folder`.
    fn program(&self, typed: &str, folder: &Path, output: &Output) -> Result<PathBuf, Failure> {
        let path = on_path(&self.command[0]).unwrap_or_else(|| PathBuf::from(&self.command[0]));
        let bytes = fs::read(&path).map_err(|error| cannot_start(typed, &error))?;
        if !bytes.starts_with(b"\x7fELF") {
            return Err(Failure::usage(format!(
                "`{typed}` is not an ELF program, so that no donor can be put into it"
            ))
            .with_help("name the program that a script starts"));
        }
        let report = inspector::inspect(&bytes).ok();
        let is_graft = report
            .as_ref()
            .is_some_and(|report| report.malloc.evidence.iter().any(|evidence| evidence.source == Source::Note));
        if is_graft && writes_profiles(&bytes) {
            return Ok(path);
        }
        check_rights(&path, typed)?;
        let copies = folder.join("program");
        fs::create_dir(&copies).map_err(Failure::io("make", &copies))?;
        // The file keeps its name, since some programs depend on it.
        let out = copies.join(path.file_name().unwrap_or_default());
        let candidates = donors::defaults().map(|donor| Candidate { donor, settings: Vec::new() }).collect();
        let donor = donors::defaults().next().ok_or_else(no_profiles)?;
        let request = Request { candidates, out: Some(out.clone()), ..Request::new(donor) };
        hosts::graft(&path, &request).map_err(|error| {
            let failure = explained(error, report.as_ref());
            Failure { message: format!("cannot profile the heap: {}", failure.message), ..failure }
        })?;
        let copy = fs::read(&out).map_err(Failure::io("read", &out))?;
        if !writes_profiles(&copy) {
            return Err(no_profiles());
        }
        if let Some(keeps) = report.as_ref().and_then(keeps_for_its_language) {
            output.warn(format_args!("`{typed}` {keeps}: these are not in the profile"));
        }
        Ok(out)
    }

    /// Runs the program to its end, or until its time is over.
    fn started(&self, program: &Path, profiles: &Path, output: &Output) -> std::io::Result<ExitStatus> {
        let mut command = Command::new(program);
        command.arg0(&self.command[0]).args(&self.command[1..]).env(VARIABLE, self.setting(profiles));
        // A program of its own may use the signal: it is asked for only where it is sent.
        if self.duration.is_some() {
            command.env(SIGNAL, "USR2");
        }
        if output.json {
            command.stdout(Stdio::from(std::io::stderr().as_fd().try_clone_to_owned()?));
        }
        ended(&mut command, &|process, has_ended| {
            if let Some(duration) = self.duration {
                end_after(duration, process, has_ended, profiles);
            }
        })
    }

    /// The value of the variable: a name for each process and each of its profiles.
    fn setting(&self, profiles: &Path) -> OsString {
        let mut value = Vec::new();
        for byte in profiles.as_os_str().as_bytes() {
            value.push(*byte);
            if *byte == b'%' {
                value.push(b'%');
            }
        }
        value.extend(format!("/%p.%n.pb.gz:{}", self.sample_bytes).bytes());
        OsString::from_vec(value)
    }

    /// Writes the page, the document and the profiles.
    fn write(
        &self,
        folder: &Path,
        heap: &Heap,
        main: &Path,
        others: &[Written],
        output: &Output,
    ) -> Result<(), Failure> {
        let document = crate::json::document(&heap.report).map_err(|error| {
            Failure::usage(format!("the result cannot be written as JSON: {error}")).with_help(crate::failure::REPORT)
        })?;
        let read = |path: &Path| fs::read(path).map_err(Failure::io("read", path));
        let mut files = vec![
            ("heap.html".to_owned(), heap.page().into_bytes()),
            ("heap.json".to_owned(), document.into_bytes()),
            ("heap.pb.gz".to_owned(), read(main)?),
        ];
        for other in others {
            files.push((format!("heap.{}.pb.gz", other.process), read(&other.path)?));
        }
        let mut page = output.page();
        for (name, bytes) in files {
            let path = folder.join(name);
            file::write(&path, &bytes).map_err(Failure::io("write", &path))?;
            // Writing to a page cannot fail.
            let _ = writeln!(page, "wrote {}", path.display());
        }
        let [kept, program] =
            [&folder.join("heap.pb.gz"), Path::new(&self.command[0])].map(|path| quoted(&path.to_string_lossy()));
        page.whole(format_args!("again: allograft heap {kept} --program {program}"));
        if output.json { Ok(()) } else { output.text(&page) }
    }
}

/// Whether a program has a donor's code that reads the variable.
fn writes_profiles(bytes: &[u8]) -> bool {
    bytes.windows(VARIABLE.len()).any(|window| window == VARIABLE.as_bytes())
}

fn no_profiles() -> Failure {
    Failure::refused("the default donor of this build writes no heap profiles")
        .with_help("take a newer allograft, or a build for this machine's architecture")
}

/// Reads what the processes wrote: of each, its last profile. A damaged one is reported.
fn profiles_in(folder: &Path, output: &Output) -> Result<Vec<Written>, Failure> {
    let entries = fs::read_dir(folder).map_err(Failure::io("read", folder))?;
    let mut last: BTreeMap<u64, (u64, PathBuf)> = BTreeMap::new();
    for path in entries.flatten().map(|entry| entry.path()) {
        let name = path.file_name().and_then(OsStr::to_str).and_then(|name| name.strip_suffix(".pb.gz"));
        let Some((process, number)) = name.and_then(|name| name.split_once('.')) else { continue };
        let (Ok(process), Ok(number)) = (process.parse(), number.parse()) else { continue };
        if last.get(&process).is_none_or(|(known, _)| *known < number) {
            last.insert(process, (number, path));
        }
    }
    let mut written = Vec::new();
    for (process, (_, path)) in last {
        match HeapProfile::read(&path) {
            Ok(profile) => written.push(Written { process: process.to_string(), path, profile }),
            Err(error) => output.warn(&failed(&path, error).message),
        }
    }
    Ok(written)
}

fn wrote_nothing(typed: &str, status: ExitStatus) -> Failure {
    match status.signal() {
        Some(signal) => Failure::usage(format!(
            "`{typed}` was ended by signal {signal}, and wrote no heap profile: one is written when a program exits"
        ))
        .with_help("let it end by itself, or after a time: `allograft profile --heap --duration SECONDS ...`"),
        None => {
            let code = status.code().unwrap_or_default();
            Failure::usage(format!(
                "`{typed}` ended with exit code {code}, and wrote no heap profile: it left by `_exit`, started another \
                 program in its place, or took the variable {VARIABLE} away"
            ))
            .with_help(
                "name the program that does the work; while it runs, ask for a profile with `--duration SECONDS`",
            )
        }
    }
}

/// Has a process write a profile when its time is over, and then ends it.
fn end_after(duration: Duration, process: Pid, has_ended: &AtomicBool, profiles: &Path) {
    let until = |time: Duration, done: &dyn Fn() -> bool| {
        let began = Instant::now();
        while began.elapsed() < time && !has_ended.load(Ordering::Relaxed) && !done() {
            std::thread::sleep(Duration::from_millis(10).min(time));
        }
    };
    // If it has ended meanwhile, it cannot get a signal, and there is nothing to do.
    let send = |signal: Signal| !has_ended.load(Ordering::Relaxed) && kill_process(process, signal).is_ok();
    let is_there = || {
        let own = format!("{}.", process.as_raw_nonzero());
        let mut names = fs::read_dir(profiles).into_iter().flatten().flatten().map(|entry| entry.file_name());
        names.any(|name| name.to_string_lossy().starts_with(&own) && name.to_string_lossy().ends_with(".pb.gz"))
    };
    until(duration, &|| false);
    if send(Signal::USR2) {
        until(GRACE, &is_there);
    }
    if send(Signal::TERM) {
        until(GRACE, &|| false);
        send(Signal::KILL);
    }
}

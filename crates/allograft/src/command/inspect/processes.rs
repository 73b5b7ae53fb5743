//! `inspect --pid` and `inspect --all`: which `malloc` serves a running process.

mod space;

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;

use inspector::Loader;

use super::overview::{in_one_line, named};
use super::{Failure, Output};
use crate::json::Process;
use crate::output::{Cell, Page, Style};
use space::{Files, Space};

/// The processes that were looked at.
pub(super) struct Processes {
    pub(super) seen: Vec<Process>,
    /// How many may not be looked at.
    pub(super) closed: usize,
}

/// Why a process was not looked at.
enum Missed {
    /// It has ended, or has no program: a kernel thread, or a zombie.
    Nothing,
    /// This user may not read it.
    Closed,
    Other(String),
}

impl From<io::Error> for Missed {
    fn from(error: io::Error) -> Missed {
        // ESRCH, which has no kind of its own.
        match error.kind() {
            io::ErrorKind::NotFound => Missed::Nothing,
            io::ErrorKind::PermissionDenied => Missed::Closed,
            _ if error.raw_os_error() == Some(3) => Missed::Nothing,
            _ => Missed::Other(error.to_string()),
        }
    }
}

/// Whether this process runs as root.
fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

/// Looks at the processes with these numbers, or at all but this one.
///
/// # Errors
/// A number does not belong to a process, or to one that this user may not inspect.
pub(super) fn look(pids: &[u32], all: bool) -> Result<Processes, Failure> {
    let files = Files::default();
    let mut loader = Loader::new(&files);
    let mut processes = Processes { seen: Vec::new(), closed: 0 };
    for &pid in pids {
        let process = one(pid, &files, &mut loader).map_err(|missed| {
            let (problem, help) = match missed {
                Missed::Nothing => ("there is none with a program".to_owned(), "`ps` lists the processes"),
                // In a container, root may lack the right.
                Missed::Closed if is_root() => (
                    "root may not read it here".to_owned(),
                    "CAP_SYS_PTRACE is missing: run this outside of the container, or start that with \
                     `--cap-add SYS_PTRACE`",
                ),
                Missed::Closed => ("it is another user's".to_owned(), "run this as that user, or as root"),
                Missed::Other(problem) => (problem, "run it again"),
            };
            Failure::usage(format!("cannot inspect process {pid}: {problem}")).with_help(help)
        })?;
        processes.seen.push(process);
    }
    if all {
        let folder = fs::read_dir("/proc").map_err(|error| {
            Failure::usage(format!("cannot read `/proc`: {error}"))
                .with_help("mount it, or run this where it is mounted")
        })?;
        let mut pids: Vec<u32> = folder.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
        pids.sort_unstable();
        for pid in pids.into_iter().filter(|&pid| pid != std::process::id()) {
            match one(pid, &files, &mut loader) {
                Ok(process) => processes.seen.push(process),
                Err(Missed::Nothing) => {}
                Err(Missed::Closed | Missed::Other(_)) => processes.closed += 1,
            }
        }
    }
    Ok(processes)
}

fn one(pid: u32, files: &Files, loader: &mut Loader<'_>) -> Result<Process, Missed> {
    let space = Space::new(pid)?;
    let mut seen = space.look(files)?;
    let report =
        loader.inspect_process(&seen.program, &seen.mapped).map_err(|error| Missed::Other(error.to_string()))?;
    for (preload, loaded) in seen.preloads.iter_mut().zip(&seen.loaded) {
        let file = loaded.map(|number| String::from_utf8_lossy(&seen.mapped.files[number].path).into_owned());
        preload.serves = file.is_some() && report.malloc.file == file;
    }
    Ok(Process {
        pid: space.pid,
        name: seen.name,
        path: seen.path.display().to_string(),
        deleted: seen.deleted,
        report,
        preloads: seen.preloads,
        memory: seen.memory,
        as_expected: None,
    })
}

/// Returns all about one process, or a table of several.
pub(super) fn text(processes: &Processes, output: &Output) -> Page {
    let mut page = output.page();
    if processes.seen.len() > 1 && !output.verbose {
        let mut table = output.table(&["malloc", "pid", "resident", "preload", "program"]);
        for process in &processes.seen {
            let preload = match process.preloads.as_slice() {
                [] => "",
                some if some.iter().any(|preload| preload.serves) => "serves",
                some if some.iter().all(|preload| preload.loaded) => "loaded",
                _ => "not loaded",
            };
            let resident = process.memory.resident_bytes.map(megabytes).unwrap_or_default();
            let cells =
                [named(&process.report.malloc), process.pid.to_string(), resident, preload.to_owned(), shown(process)];
            table.row(cells.map(Cell::from));
        }
        page.table(&table.spaced(2));
        return page;
    }
    for process in &processes.seen {
        let _ = writeln!(page, "{} {}: {}", process.pid, shown(process), in_one_line(&process.report, output));
        super::overview::evidence(&mut page, &process.report.malloc.evidence, output);
        for preload in &process.preloads {
            let effect = match (preload.serves, preload.loaded) {
                (true, _) => "is loaded, and serves `malloc`",
                (false, true) => "is loaded, and does not serve `malloc`",
                (false, false) => "is not loaded: it has no effect",
            };
            let source = output.paint(Style::Faint, format_args!("{:<10}", "preload"));
            let _ = writeln!(page, "  {source} `{}` of {} {effect}", preload.file, preload.source);
        }
        let memory = &process.memory;
        let figures = [
            ("resident", memory.resident_bytes),
            ("at most", memory.peak_resident_bytes),
            ("anonymous", memory.anonymous_bytes),
            ("swapped", memory.swapped_bytes),
        ];
        let mut words: Vec<String> =
            figures.into_iter().filter_map(|(name, bytes)| Some(format!("{name} {}", megabytes(bytes?)))).collect();
        words.push(format!(
            "heap {} mapped, {} with other mappings",
            megabytes(memory.heap_mapped_bytes),
            megabytes(memory.data_mapped_bytes)
        ));
        let _ =
            writeln!(page, "  {} {}", output.paint(Style::Faint, format_args!("{:<10}", "memory")), words.join(", "));
    }
    page
}

fn shown(process: &Process) -> String {
    match process.deleted {
        true => format!("{} (deleted)", process.path),
        false => process.path.clone(),
    }
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

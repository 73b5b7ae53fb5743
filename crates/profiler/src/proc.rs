//! Reads the state of a process and its threads from `/proc`, without stopping them (proc(5)).
//! Blocked threads are read only in this way, since some system calls end early after a stop ([`crate::stop`]).

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::PathBuf;

use nix::unistd::{SysconfVar, sysconf};

/// The activity of a thread, by `/proc/PID/task/TID/syscall`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Doing {
    /// It runs, or waits for a processor.
    Running,
    /// It is blocked in a system call.
    Blocked {
        /// The number of the call; -1 outside of a call, for example in a page fault.
        call: i64,
        /// The first three arguments.
        arguments: [u64; 3],
        /// The stack pointer.
        sp: u64,
        /// The address of the next instruction.
        pc: u64,
    },
}

/// Reads a file of one line by one call, where `fs::read_to_string` takes six or more: these files are read several
/// times at each moment.
fn line(path: &str) -> io::Result<String> {
    // The longest, `stat`, has 52 numbers.
    let mut bytes = [0; 2048];
    let length = File::open(path)?.read(&mut bytes)?;
    let text = std::str::from_utf8(&bytes[..length]).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error));
    Ok(text?.to_owned())
}

/// Returns the activity of a thread; `None` if it has ended.
///
/// # Errors
/// No permission.
pub(crate) fn doing(pid: i32, tid: i32) -> io::Result<Option<Doing>> {
    match line(&format!("/proc/{pid}/task/{tid}/syscall")) {
        Ok(text) => Ok(parse_doing(&text)),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(error),
        Err(_) => Ok(None),
    }
}

fn parse_doing(text: &str) -> Option<Doing> {
    let mut words = text.split_whitespace();
    let first = words.next()?;
    if first == "running" {
        return Some(Doing::Running);
    }
    let call: i64 = first.parse().ok()?;
    let numbers: Vec<u64> =
        words.map(|word| u64::from_str_radix(word.trim_start_matches("0x"), 16)).collect::<Result<_, _>>().ok()?;
    match *numbers.as_slice() {
        // The kernel's line for a thread that has ended.
        [0, 0] => None,
        [one, two, three, _, _, _, sp, pc] => Some(Doing::Blocked { call, arguments: [one, two, three], sp, pc }),
        [sp, pc] => Some(Doing::Blocked { call, arguments: [0; 3], sp, pc }),
        _ => None,
    }
}

/// Returns counters that change whenever the thread runs; `None` if the kernel does not count them.
pub(crate) fn turns(pid: i32, tid: i32) -> Option<(u64, u64)> {
    let text = line(&format!("/proc/{pid}/task/{tid}/schedstat")).ok()?;
    let mut words = text.split_whitespace().map(|word| word.parse().ok());
    let (run, _, turns) = (words.next()??, words.next()??, words.next()??);
    Some((run, turns))
}

/// The threads of a process.
pub(crate) fn threads(pid: i32) -> Vec<i32> {
    numbers(&format!("/proc/{pid}/task"))
}

/// The processes of the machine.
pub(crate) fn processes() -> Vec<i32> {
    numbers("/proc")
}

/// The numbers that a folder's entries have as names.
fn numbers(folder: &str) -> Vec<i32> {
    let Ok(folder) = fs::read_dir(folder) else { return Vec::new() };
    folder.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

/// The fields of `/proc/PID/stat` that are used here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Stat {
    /// `R`, `S`, `Z` and so on.
    pub(crate) state: char,
    /// The process that started it.
    pub(crate) parent: i32,
    /// Page faults that needed no disk.
    pub(crate) faults: u64,
    /// Time in the program's own code, in clock ticks.
    pub(crate) user: u64,
    /// Time in the kernel, in clock ticks.
    pub(crate) system: u64,
    /// The number of threads that have not ended.
    pub(crate) threads: u64,
    /// The time of its start, in clock ticks since the machine's start: distinguishes it from other processes with the
    /// same number.
    pub(crate) started: u64,
    /// The start of the program's code, and of its first stack. The latter changes with each exec.
    pub(crate) code: (u64, u64),
}

impl Stat {
    /// Whether a signal or a tracer has stopped it.
    pub(crate) fn is_stopped(&self) -> bool {
        matches!(self.state, 'T' | 't')
    }

    /// Whether it is alive: its first thread may have ended before the others.
    pub(crate) fn is_alive(&self) -> bool {
        !matches!(self.state, 'Z' | 'X') || self.threads > 1
    }
}

/// Returns a process's fields, or a thread's.
pub(crate) fn stat(pid: i32, tid: Option<i32>) -> Option<Stat> {
    let path = match tid {
        Some(tid) => format!("/proc/{pid}/task/{tid}/stat"),
        None => format!("/proc/{pid}/stat"),
    };
    parse_stat(&line(&path).ok()?)
}

fn parse_stat(text: &str) -> Option<Stat> {
    // The name may have blanks and parentheses.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |at: usize| fields.get(at - 3).and_then(|field| field.parse().ok());
    Some(Stat {
        state: fields.first()?.chars().next()?,
        parent: fields.get(1)?.parse().ok()?,
        faults: number(10)?,
        user: number(14)?,
        system: number(15)?,
        threads: number(20).unwrap_or(1),
        started: number(22).unwrap_or(0),
        code: (number(26).unwrap_or(0), number(28).unwrap_or(0)),
    })
}

/// The number of times that a thread has yielded the processor voluntarily.
pub(crate) fn voluntary_switches(pid: i32, tid: i32) -> Option<u64> {
    status(&format!("/proc/{pid}/task/{tid}/status"), "voluntary_ctxt_switches:")?.parse().ok()
}

/// The process that traces a thread, if that is not this one.
pub(crate) fn tracer(pid: i32, tid: i32) -> Option<i32> {
    let tracer = status(&format!("/proc/{pid}/task/{tid}/status"), "TracerPid:")?.parse().ok()?;
    (tracer != 0 && u32::try_from(tracer) != Ok(std::process::id())).then_some(tracer)
}

/// A field of a `status` file, by its name with the colon.
fn status(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.lines().find_map(|line| line.strip_prefix(name))?.trim().to_owned())
}

/// A thread's name.
pub(crate) fn name(pid: i32, tid: i32) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/comm")).unwrap_or_default();
    text.trim_end().to_owned()
}

/// The number that the newest process or thread of the machine got.
pub(crate) fn newest() -> Option<u64> {
    line("/proc/loadavg").ok()?.split_whitespace().last()?.parse().ok()
}

/// Returns the existing processes and threads among `numbers`, each with the parent of its process.
pub(crate) fn parents(numbers: impl IntoIterator<Item = i32>) -> Vec<(i32, i32)> {
    numbers.into_iter().filter_map(|number| Some((number, stat(number, None)?.parent))).collect()
}

/// Whether a number belongs to a process: `/proc` has the numbers of its other threads as well, but does not list them.
pub(crate) fn is_process(number: i32) -> bool {
    status(&format!("/proc/{number}/status"), "Tgid:").is_some_and(|process| process.parse() == Ok(number))
}

/// The identity of a file, across containers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    /// The path as the process sees it; `[vdso]` and similar for mappings without a file.
    pub(crate) path: String,
    /// The numbers of its device.
    pub(crate) device: String,
    pub(crate) inode: u64,
}

/// A mapping of `/proc/PID/maps`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) executable: bool,
    /// The offset in the file.
    pub(crate) offset: u64,
    pub(crate) file: Identity,
}

impl Mapping {
    /// Whether the next mapping is of the same copy of the same file: several copies may be mapped side by side.
    pub(crate) fn goes_on(&self, next: &Mapping) -> bool {
        // Two segments may share a page of the file, which each of them then maps.
        let page = sysconf(SysconfVar::PAGE_SIZE).ok().flatten().map_or(4096, i64::unsigned_abs);
        self.file == next.file && self.offset + (self.end - self.start) <= next.offset.saturating_add(page)
    }
}

/// The mappings that have a file, and the vdso.
///
/// # Errors
/// No permission, or the process has ended.
pub(crate) fn mappings(pid: i32) -> io::Result<Vec<Mapping>> {
    let read = || fs::read_to_string(format!("/proc/{}/maps", alive(pid)));
    // The thread may end meanwhile: then there is an error, or nothing.
    let text = match read() {
        Ok(text) if !text.is_empty() => text,
        _ => read()?,
    };
    Ok(text.lines().filter_map(parse_mapping).collect())
}

fn parse_mapping(line: &str) -> Option<Mapping> {
    let mut fields = line.splitn(6, ' ');
    let (range, rights, offset) = (fields.next()?, fields.next()?, fields.next()?);
    let (device, inode, path) = (fields.next()?, fields.next()?.parse().ok()?, fields.next()?.trim_start());
    let (start, end) = range.split_once('-')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    let mapping = Mapping {
        start: number(start)?,
        end: number(end)?,
        executable: rights.as_bytes().get(2) == Some(&b'x'),
        offset: number(offset)?,
        file: Identity { path: path.to_owned(), device: device.to_owned(), inode },
    };
    (path.starts_with('/') || path == "[vdso]").then_some(mapping)
}

/// The file of the program that a process runs.
pub(crate) fn program(pid: i32) -> Option<PathBuf> {
    let path = |tid: i32| fs::read_link(format!("/proc/{tid}/exe")).ok();
    // The thread may end meanwhile.
    path(alive(pid)).or_else(|| path(alive(pid)))
}

/// A thread of a process that has not ended: the first one, unless it has. The kernel shows neither mappings nor files
/// of a thread as soon as it begins to end.
pub(crate) fn alive(pid: i32) -> i32 {
    let has_memory = |tid: i32| fs::read_link(format!("/proc/{tid}/exe")).is_ok();
    if has_memory(pid) {
        return pid;
    }
    threads(pid).into_iter().find(|tid| has_memory(*tid)).unwrap_or(pid)
}

/// The processor time that this program has taken so far.
pub(crate) fn processor_s() -> f64 {
    let seconds = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 * 1e-6;
    nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_SELF)
        .map_or(0.0, |usage| seconds(usage.user_time()) + seconds(usage.system_time()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_thread_does() {
        assert_eq!(parse_doing("running\n"), Some(Doing::Running));
        let futex = "202 0x4f0 0x80 0x2 0x0 0x0 0x0 0x7ffd10 0x401000\n";
        let blocked = Doing::Blocked { call: 202, arguments: [0x4f0, 0x80, 2], sp: 0x7f_fd10, pc: 0x40_1000 };
        assert_eq!(parse_doing(futex), Some(blocked));
        let fault = Doing::Blocked { call: -1, arguments: [0; 3], sp: 0x10, pc: 0x20 };
        assert_eq!(parse_doing("-1 0x10 0x20"), Some(fault));
        assert_eq!(parse_doing(""), None);
        assert_eq!(parse_doing("-1 0x0 0x0"), None);
    }

    #[test]
    fn names_of_programs_may_have_parentheses() {
        let fields: Vec<String> = (5..=30).map(|field| field.to_string()).collect();
        let stat = parse_stat(&format!("7 (a) b) S 4 {}", fields.join(" "))).unwrap();
        let (faults, user, system, threads, started) = (10, 14, 15, 20, 22);
        let code = (26, 28);
        assert_eq!(stat, Stat { state: 'S', parent: 4, faults, user, system, threads, started, code });
    }

    #[test]
    fn mappings_with_files() {
        let line = "00400000-00401000 r-xp 00001000 fe:00 123      /a folder/program (deleted)";
        let mapping = parse_mapping(line).unwrap();
        assert_eq!((mapping.start, mapping.end, mapping.offset), (0x40_0000, 0x40_1000, 0x1000));
        assert!(mapping.executable && mapping.file.path == "/a folder/program (deleted)");
        assert_eq!((mapping.file.device.as_str(), mapping.file.inode), ("fe:00", 123));
        assert_eq!(parse_mapping("00400000-00401000 rw-p 00000000 00:00 0 "), None);
    }

    #[test]
    fn copies_of_a_file_side_by_side() {
        let page = 64 << 10;
        let mapping = |at: u64, pages: u64, offset: u64, path: &str| Mapping {
            start: at * page,
            end: (at + pages) * page,
            executable: true,
            offset: offset * page,
            file: Identity { path: path.to_owned(), device: "fe:00".to_owned(), inode: 123 },
        };
        let first = mapping(10, 3, 1, "/a");
        assert!(first.goes_on(&mapping(13, 2, 4, "/a")), "the next part");
        assert!(first.goes_on(&mapping(20, 2, 9, "/a")), "a part further on");
        assert!(!first.goes_on(&mapping(13, 3, 1, "/a")), "a second copy");
        assert!(!first.goes_on(&mapping(13, 2, 4, "/b")), "another file");
        let shared = Mapping { end: first.end + 1, ..first.clone() };
        assert!(shared.goes_on(&mapping(14, 2, 4, "/a")), "a page that two segments share");
    }
}

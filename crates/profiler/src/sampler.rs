//! Samples all threads of a program by wall clock.
//!
//! At each moment every thread is sampled. A blocked thread is read through `/proc` without a stop; if it has not run
//! since the last moment, it is not even read. A running thread is stopped, read and released. The time between moments
//! is random around its mean, so that it does not run in step with the program, and it grows when a moment takes long:
//! so the recording takes a bounded share of one processor.

mod ending;
mod pace;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::ffi::OsString;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::errno::Errno;

use crate::calls::Watch;
use crate::error::Error;
use crate::events::Faults;
use crate::family::{self, Family};
use crate::file;
use crate::library::Library;
use crate::memory;
use crate::module::{self, Unfit};
use crate::proc::{self, Doing};
use crate::processor::Accounts;
use crate::recording::{Counts, Ended, Moment, Recording, Sample, State, Thread, Walks};
use crate::registers::{self, Call, Registers};
use crate::space::Space;
use crate::stop::{self, Reaped};
use pace::Progress;

/// The program to record.
#[derive(Debug, Clone)]
pub enum Target {
    /// A program that is started, with its children.
    Command {
        /// The program, then its arguments.
        words: Vec<OsString>,
        /// Whether its standard output goes to standard error.
        output_to_errors: bool,
    },
    /// A running process, without its children.
    Process(i32),
}

/// The options of a recording.
#[derive(Debug, Clone)]
pub struct Options {
    /// Moments per second.
    pub rate: f64,
    /// The longest time of the recording. `None`: until the program ends.
    pub duration: Option<Duration>,
    /// The recording ends when this is set.
    pub interrupted: Arc<AtomicBool>,
}

/// The default number of moments per second.
pub const RATE: f64 = 150.0;
/// The fewest moments that a verdict is given for.
const FEWEST: usize = 10;
/// The most samples that may be lost because the program is stopped or traced by a different one, per hundred others.
const MOST_LOST: usize = 10;
/// The number of moments after which threads' switches are counted anew.
const ROUND: usize = 64;
/// The size of the innermost part of a stack that holds the frames of libc's wait for a condition.
const OWN_FRAMES: u64 = 1024;
/// The number of bytes of a file that name its machine.
const HEADER: u64 = 64;

/// Records a program.
///
/// # Errors
/// It does not start, or may not be traced, or is for a different architecture, or ends too early.
pub fn record(target: &Target, options: &Options) -> Result<Recording, Error> {
    if !registers::SUPPORTED {
        return Err(Error::Unsupported);
    }
    let mut library = Library::default();
    let (pid, named) = match target {
        Target::Command { words, output_to_errors } => start(words, *output_to_errors, &mut library)?,
        Target::Process(pid) => (attach(*pid)?, format!("process {pid}")),
    };
    let own = matches!(target, Target::Command { .. });
    let mut sampler = Sampler::with_library(pid, own, library);
    let result = sampler.run(options);
    let ended = own.then(|| sampler.end());
    result.map_err(|error| match error {
        Error::Permission { pid, reason } if sampler.left.contains(&pid) => {
            Error::Permission { pid, reason: format!("{reason}; it goes on, as it may not be ended either") }
        }
        other => other,
    })?;
    sufficient(sampler.finish(ended.flatten(), options), named)
}

/// Returns the recording of the program `named` if it suffices for a verdict.
///
/// # Errors
/// Too many samples were lost, or there are too few.
fn sufficient(recording: Recording, named: String) -> Result<Recording, Error> {
    // Blocked threads could still be read, but a verdict on them alone would be wrong.
    if recording.lost > MOST_LOST * recording.samples.len() / 100 {
        return Err(Error::Stopped { program: named });
    }
    if recording.moments.len() < FEWEST || recording.samples.is_empty() {
        return Err(Error::Short {
            program: named,
            milliseconds: recording.duration.as_millis(),
            samples: recording.samples.len(),
        });
    }
    Ok(recording)
}

fn start(words: &[OsString], output_to_errors: bool, library: &mut Library) -> Result<(i32, String), Error> {
    let program = words.first().cloned().unwrap_or_default();
    let named = program.to_string_lossy().into_owned();
    let failed = |source| Error::Start { program: named.clone(), source };
    if let Some(path) = found(&program) {
        if let Ok(bytes) = file::head(&path, HEADER)
            && let Err(Unfit::Foreign(found)) = module::fits(&bytes)
        {
            return Err(Error::Architecture { path: path.display().to_string(), found });
        }
        library.prepare(&path);
    }
    let mut command = Command::new(&program);
    command.args(words.get(1..).unwrap_or_default());
    if output_to_errors {
        let copy = std::io::stderr().as_fd().try_clone_to_owned().map_err(failed)?;
        command.stdout(Stdio::from(copy));
    }
    // Children whose parent has ended, in any session, become children of this process instead of `init`.
    let _ = nix::sys::prctl::set_child_subreaper(true);
    let child = command.spawn().map_err(failed)?;
    Ok((child.id().cast_signed(), named))
}

/// The file that the system would run, searched like `execvp` does.
fn found(program: &OsString) -> Option<PathBuf> {
    let path = PathBuf::from(program);
    if path.components().count() > 1 {
        return Some(path);
    }
    let folders = std::env::var_os("PATH")?;
    let is_program =
        |path: &PathBuf| path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0);
    std::env::split_paths(&folders).map(|folder| folder.join(&path)).find(is_program)
}

/// Checks that a running process can be recorded.
fn attach(pid: i32) -> Result<i32, Error> {
    if pid <= 0 || proc::stat(pid, None).is_none_or(|stat| !stat.is_alive()) {
        return Err(Error::NoProcess(pid));
    }
    if !stop::is_permitted(pid) {
        let reason = "reading it takes the rights of its user, or CAP_SYS_PTRACE".to_owned();
        return Err(Error::Permission { pid, reason });
    }
    if proc::stat(pid, None).is_some_and(|stat| stat.is_stopped())
        || proc::threads(pid).into_iter().any(|tid| proc::tracer(pid, tid).is_some())
    {
        return Err(Error::Stopped { program: format!("process {pid}") });
    }
    let Some(path) = proc::program(pid) else {
        return Err(Error::Permission {
            pid,
            reason: "its program cannot be read, as that of a kernel thread".to_owned(),
        });
    };
    let bytes = file::head(Path::new(&format!("/proc/{}/exe", proc::alive(pid))), HEADER).unwrap_or_default();
    match module::fits(&bytes) {
        Err(Unfit::Foreign(found)) => Err(Error::Architecture { path: path.display().to_string(), found }),
        _ => Ok(pid),
    }
}

/// A process that is recorded.
struct Process {
    space: Space,
    code: (u64, u64),
    /// The kernel's figures when the recording began, and the newest ones.
    first: proc::Stat,
    last: proc::Stat,
}

/// A thread that is recorded.
struct Known {
    number: u32,
    /// Its last activity, and its number of turns then.
    doing: Option<(Doing, (u64, u64), u32)>,
    switches: (u64, u64),
}

struct Sampler {
    root: i32,
    own: bool,
    library: Library,
    processes: HashMap<i32, Process>,
    known: HashMap<i32, Known>,
    threads: Vec<Thread>,
    moments: Vec<Moment>,
    samples: Vec<Sample>,
    walks: Walks,
    began: Instant,
    /// The time at which the program's end was noticed.
    over: Option<Instant>,
    family: Family,
    status: Option<Reaped>,
    path: String,
    /// The program of each process: its file's number in the library, and its path.
    programs: HashMap<i32, (Option<u32>, String)>,
    gone: Counts,
    watch: Watch,
    events: Faults,
    /// Sampled page faults, by the number of a walk that consists of their place.
    faults: HashMap<u32, u64>,
    own_s: f64,
    accounts: Accounts,
    /// Samples that were lost because the thread was stopped, or because a different program traces it.
    lost: usize,
    /// The processes that could not be ended.
    left: Vec<i32>,
}

impl Sampler {
    fn with_library(root: i32, own: bool, library: Library) -> Sampler {
        let path = proc::program(root).map_or_else(String::new, |path| path.display().to_string());
        Sampler {
            root,
            own,
            library,
            processes: HashMap::new(),
            known: HashMap::new(),
            threads: Vec::new(),
            moments: Vec::new(),
            samples: Vec::new(),
            walks: Walks::default(),
            began: Instant::now(),
            over: None,
            family: Family::default(),
            status: None,
            path,
            programs: HashMap::new(),
            gone: Counts::default(),
            watch: Watch::default(),
            events: Faults::default(),
            faults: HashMap::new(),
            own_s: proc::processor_s(),
            accounts: Accounts::default(),
            lost: 0,
            left: Vec::new(),
        }
    }

    fn run(&mut self, options: &Options) -> Result<(), Error> {
        if self.own && !stop::is_permitted(self.root) && self.lives() {
            let reason = "this program may not be traced here".to_owned();
            return Err(Error::Permission { pid: self.root, reason });
        }
        self.open(self.root);
        self.began = Instant::now();
        // Otherwise short sleeps take 50 microseconds longer. A failure is harmless.
        let _ = nix::sys::prctl::set_timerslack(1000);
        // The time to read the program's file does not count as the recording's.
        self.own_s = proc::processor_s();
        self.library.reading_s = 0.0;
        let mut before = self.began;
        loop {
            let now = Instant::now();
            let over = options.duration.is_some_and(|duration| now - self.began >= duration);
            if over || options.interrupted.load(Ordering::Relaxed) || !self.lives() {
                return Ok(());
            }
            if now > before {
                let moment = Moment { at: now - self.began, span: now - before };
                match self.moment(moment) {
                    // One child of many may not be traced, such as a set-uid program.
                    Err(error) if self.samples.is_empty() => {
                        return Err(Error::Permission { pid: self.root, reason: error.desc().to_owned() });
                    }
                    _ => {}
                }
            }
            before = now;
            let progress = Progress {
                took: now.elapsed().as_secs_f64(),
                taken: proc::processor_s() - self.own_s - self.library.reading_s,
                elapsed: self.began.elapsed().as_secs_f64(),
                moments: self.moments.len(),
                samples: self.samples.len(),
            };
            let pause = pace::pause(options.rate, fastrand::f64(), &progress);
            let left = options
                .duration
                .map_or(f64::MAX, |duration| (duration.as_secs_f64() - self.began.elapsed().as_secs_f64()).max(0.0));
            self.pause(pause.min(left + 0.0002), options);
        }
    }

    /// Waits for this many seconds, or until the program ends.
    fn pause(&mut self, seconds: f64, options: &Options) {
        const STEP: f64 = 0.05;
        let mut left = seconds;
        loop {
            std::thread::sleep(Duration::from_secs_f64(left.min(STEP)));
            left -= STEP;
            if left <= 0.0 || options.interrupted.load(Ordering::Relaxed) || !self.lives() {
                return;
            }
        }
    }

    /// Whether the program still runs.
    fn lives(&mut self) -> bool {
        if self.own && self.status.is_none() {
            self.status = stop::reap(self.root);
        }
        if self.status.is_some() {
            self.over.get_or_insert_with(Instant::now);
        }
        self.status.is_none() && proc::stat(self.root, None).is_some_and(|stat| stat.is_alive())
    }

    fn open(&mut self, pid: i32) {
        let Some(stat) = proc::stat(pid, None) else { return };
        let space = Space::open(pid, &mut self.library);
        if let Some(path) = proc::program(pid) {
            let path = path.display().to_string();
            self.programs.insert(pid, (space.named(&self.library, &path), path));
        }
        // A child that was forked meanwhile begins at zero; an attached process does not.
        let first = if self.own { proc::Stat::default() } else { stat };
        self.processes.insert(pid, Process { space, code: stat.code, first, last: stat });
    }

    /// Samples every thread.
    fn moment(&mut self, moment: Moment) -> Result<(), Errno> {
        if self.own {
            self.find_children();
        }
        if self.moments.len() % ROUND == ROUND - 1 {
            self.count_switches();
            self.events.close(|tid| proc::stat(tid, None).is_some());
        }
        self.count_faults(self.moments.len());
        let number = u32::try_from(self.moments.len()).unwrap_or(u32::MAX);
        self.moments.push(moment);
        let mut running = Vec::new();
        let pids: Vec<i32> = self.processes.keys().copied().collect();
        for pid in pids {
            match proc::stat(pid, None).filter(proc::Stat::is_alive) {
                None => {
                    self.close(pid);
                    continue;
                }
                // An exec has replaced the program.
                Some(stat) if self.processes.get(&pid).is_some_and(|process| process.code != stat.code) => {
                    let first = self.processes.get(&pid).map(|process| process.first);
                    self.open(pid);
                    if let (Some(process), Some(first)) = (self.processes.get_mut(&pid), first) {
                        process.first = first;
                    }
                    self.known.retain(|_, known| self.threads[known.number as usize].pid != pid);
                }
                Some(stat) => {
                    if let Some(process) = self.processes.get_mut(&pid) {
                        process.last = stat;
                    }
                    // Its threads do not wait by themselves: a signal stopped them.
                    if stat.is_stopped() {
                        self.lost += proc::threads(pid).len();
                        continue;
                    }
                }
            }
            for tid in proc::threads(pid) {
                if self.blocked(number, pid, tid) {
                    running.push((pid, tid));
                }
            }
        }
        self.stop(number, &running)
    }

    /// Samples a thread if it is blocked. Returns whether it runs.
    fn blocked(&mut self, moment: u32, pid: i32, tid: i32) -> bool {
        let turns = proc::turns(pid, tid);
        let ran = self.accounts.look(tid, turns.map(|(run, _)| run), self.own);
        let turns = turns.unwrap_or((u64::MAX, moment.into()));
        let thread = self.thread(pid, tid);
        let Some(known) = self.known.get(&tid) else { return false };
        let mut kept = known.doing.filter(|(_, then, _)| *then == turns).map(|(doing, _, walk)| (doing, walk));
        if kept.is_none() {
            let doing = match proc::doing(pid, tid) {
                Ok(Some(doing)) => doing,
                // A thread that is ending.
                Ok(None) | Err(_) => return false,
            };
            let Doing::Blocked { sp, pc, .. } = doing else { return true };
            let stack = memory::stack(tid, sp);
            let registers = Registers { pc, sp, fp: None, lr: None, call: None };
            let Some(process) = self.processes.get_mut(&pid) else { return false };
            let walk = self.walks.number(process.space.walk(&mut self.library, registers, &stack));
            if let Some(known) = self.known.get_mut(&tid) {
                known.doing = Some((doing, turns, walk));
            }
            kept = Some((doing, walk));
        }
        if let Some((Doing::Blocked { call, arguments, sp, .. }, walk)) = kept {
            let state = State::Blocked(call, arguments);
            // Waits for a condition, in musl and elsewhere, use a word of the waiting frame.
            let own_word = (sp..sp.saturating_add(OWN_FRAMES)).contains(&arguments[0]);
            self.samples.push(Sample { moment, thread, state, walk, own_word, faults: 0, ran });
        }
        false
    }

    fn thread(&mut self, pid: i32, tid: i32) -> u32 {
        if let Some(known) = self.known.get(&tid) {
            return known.number;
        }
        let number = u32::try_from(self.threads.len()).unwrap_or(u32::MAX);
        self.threads.push(Thread { pid, tid, name: proc::name(pid, tid) });
        let switches = proc::voluntary_switches(pid, tid).unwrap_or(0);
        let first = if self.own { 0 } else { switches };
        self.events.open(pid, tid);
        self.known.insert(tid, Known { number, doing: None, switches: (first, switches) });
        number
    }

    /// Stops, samples and releases the threads that run.
    fn stop(&mut self, moment: u32, running: &[(i32, i32)]) -> Result<(), Errno> {
        let mut seen = Vec::new();
        let mut reaped = Vec::new();
        let done = stop::each(running, !self.events.work(), &mut reaped, &mut |at, thread| seen.push((at, thread)));
        let done = done.map(|lost| self.lost += lost);
        for (at, thread) in seen {
            let (pid, tid) = running[at];
            let Some(registers) = thread.registers else { continue };
            let number = self.thread(pid, tid);
            let Some(process) = self.processes.get_mut(&pid) else { continue };
            let walk = self.walks.number(process.space.walk(&mut self.library, registers, &thread.stack));
            let state = registers.call.map_or(State::Running, State::Kernel);
            let faults = u32::try_from(thread.faults).unwrap_or(u32::MAX);
            let ran = self.accounts.last(tid);
            self.samples.push(Sample { moment, thread: number, state, walk, own_word: false, faults, ran });
        }
        if self.watch.is_due()
            && let Some((pid, tid)) = fastrand::choice(running)
        {
            self.watch.follow(*pid, *tid, &mut reaped);
        }
        for reaped in reaped {
            if reaped.pid == self.root && self.own {
                self.status = Some(reaped);
            }
        }
        done
    }

    /// Counts the page faults since the last moment by their places.
    fn count_faults(&mut self, moment: usize) {
        let Sampler { events, processes, library, walks, faults, .. } = self;
        events.moment(moment, &mut |pid, place| {
            if let Some(process) = processes.get_mut(&pid) {
                *faults.entry(walks.number(process.space.alone(library, place))).or_default() += 1;
            }
        });
    }

    /// Opens the children that the recorded processes have started since the last search.
    fn find_children(&mut self) {
        let members: Vec<i32> = self.members().collect();
        for pid in self.family.grown(members.into_iter()) {
            self.open(pid);
        }
    }

    /// The recorded processes, and this one, which adopts the children of those that have ended.
    fn members(&self) -> impl Iterator<Item = i32> {
        self.processes.keys().copied().chain(i32::try_from(std::process::id()))
    }

    /// Opens all children of the recorded processes.
    fn open_children(&mut self) {
        let parents = proc::parents(proc::processes());
        for pid in family::descendants(self.members().chain([self.root]), &parents) {
            self.open(pid);
        }
    }

    /// Forgets a process that has ended.
    fn close(&mut self, pid: i32) {
        if pid != self.root
            && let Some(process) = self.processes.remove(&pid)
        {
            self.gone.add(&process.first, &process.last);
        }
    }

    /// The program of the process that ran in most samples: a script may have started it.
    fn busiest(&self) -> Option<(Option<u32>, String)> {
        let mut times: HashMap<i32, u64> = HashMap::new();
        for sample in &self.samples {
            let waits = matches!(sample.state, State::Blocked(call, _) if registers::call(call) == Call::Wait);
            *times.entry(self.threads[sample.thread as usize].pid).or_default() += u64::from(!waits);
        }
        let (pid, _) = times.into_iter().max_by_key(|(pid, times)| (*times, -pid))?;
        self.programs.get(&pid).cloned()
    }

    fn count_switches(&mut self) {
        for (tid, known) in &mut self.known {
            let pid = self.threads[known.number as usize].pid;
            if let Some(switches) = proc::voluntary_switches(pid, *tid) {
                known.switches.1 = switches;
            }
        }
    }

    fn finish(mut self, ended: Option<Ended>, options: &Options) -> Recording {
        self.count_switches();
        let own_s = proc::processor_s() - self.own_s;
        let mut counts = self.gone;
        for process in self.processes.values() {
            counts.add(&process.first, &process.last);
        }
        let switches = self.known.values().map(|known| known.switches.1.saturating_sub(known.switches.0));
        counts.voluntary_switches = switches.sum();
        let duration = self.moments.last().map_or(Duration::ZERO, |moment| moment.at);
        // Threads that have ended meanwhile are in the kernel's figure only, with the children that it waited for.
        if let (Some(reaped), Some(over), None | Some(Ended::Exit(_) | Ended::Signal(_))) =
            (self.status, self.over, ended)
        {
            let part = duration.as_secs_f64() / (over - self.began).as_secs_f64().max(f64::MIN_POSITIVE);
            let switches = (reaped.switches as f64 * part.min(1.0)) as u64;
            counts.voluntary_switches = counts.voluntary_switches.max(switches);
        }
        let (program, path) = self.busiest().unwrap_or((None, self.path));
        // A program whose first thread ended at once was read later.
        let is_it = |module: &module::Module| module.path == path && module.report.is_some();
        let later = || self.library.modules.iter().position(is_it).and_then(|at| u32::try_from(at).ok());
        let program = program.or_else(later);
        Recording {
            program,
            path,
            library: self.library,
            threads: self.threads,
            moments: self.moments,
            samples: self.samples,
            walks: self.walks.all,
            counts,
            watch: self.watch,
            faults: self.faults,
            duration,
            rate: options.rate,
            own_s,
            processors: std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get),
            ended,
            left: self.left,
            lost: self.lost,
            interrupted: options.interrupted.load(Ordering::Relaxed),
            pid: self.root,
        }
    }
}

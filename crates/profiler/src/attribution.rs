//! Attributes the time of each sample to a class, and computes the shares of the time.

use std::collections::{BTreeMap, HashMap};

use crate::frames::Frames;
use crate::processor::ProcessorTime;
use crate::recording::{Recording, Sample, State};
use crate::registers::{self, Call};
use crate::roles::Role;

/// The class of a thread's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Class {
    /// In the allocator, running.
    Allocator,
    /// Blocked on a lock of the allocator, or in the kernel for one.
    AllocatorLock,
    /// In mmap, munmap, madvise and their like, called by the allocator.
    AllocatorMemory,
    /// In the same calls, called by others.
    Memory,
    /// In a memory or string function.
    Strings,
    /// Blocked on a different lock, or in the kernel for one.
    Lock,
    /// In a call that moves data, running or blocked.
    Io,
    /// Waits for work: events, a time, another thread.
    Wait,
    /// In the program's other code.
    Cpu,
    /// Blocked in a page fault.
    Fault,
}

/// A sample's class, and whether the thread ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Attributed {
    pub(crate) class: Class,
    pub(crate) running: bool,
}

/// Attributes the time of a sample. `musl`: whether the program's libc is musl.
fn attribute(sample: &Sample, frames: &Frames, musl: bool) -> Attributed {
    let stack = &frames.stacks[sample.walk as usize];
    let role = |number: &u32| frames.all[*number as usize].role;
    let allocator = stack.iter().map(role).any(|role| role == Role::Allocator);
    let class = match sample.state {
        State::Running => {
            // A string function at the top counts as itself; any other code that an allocator called, as the allocator.
            let first = stack.first().map_or(Role::Other, role);
            return Attributed {
                class: match first {
                    Role::Strings => Class::Strings,
                    _ if allocator => Class::Allocator,
                    Role::Lock => Class::Lock,
                    _ => Class::Cpu,
                },
                running: true,
            };
        }
        State::Kernel(call) => {
            return Attributed { class: in_call(call, allocator, &stack_role(stack, frames)), running: true };
        }
        State::Blocked(-1, _) => Class::Fault,
        State::Blocked(call, arguments) if registers::call(call) == Call::Futex && !allocator => {
            match stack_role(stack, frames) {
                Some(Role::Lock) => Class::Lock,
                Some(Role::Wait) => Class::Wait,
                // A lock that other threads take, too, is not in the innermost frames.
                _ if sample.own_word => Class::Wait,
                _ if is_locks_word(arguments, musl) => Class::Lock,
                _ => Class::Wait,
            }
        }
        State::Blocked(call, _) => in_call(call, allocator, &stack_role(stack, frames)),
    };
    Attributed { class, running: false }
}

/// The innermost role of a lock or of a wait.
fn stack_role(stack: &[u32], frames: &Frames) -> Option<Role> {
    let roles = stack.iter().map(|number| frames.all[*number as usize].role);
    // Functions that wait for work may take locks by the same functions: the outermost of the two within libc decides.
    roles.filter(|role| matches!(role, Role::Lock | Role::Wait)).max()
}

fn in_call(call: i64, allocator: bool, role: &Option<Role>) -> Class {
    match registers::call(call) {
        Call::Futex if allocator => Class::AllocatorLock,
        Call::Yield if allocator => Class::AllocatorLock,
        Call::Futex if *role == Some(Role::Wait) => Class::Wait,
        Call::Futex => Class::Lock,
        // It has nothing to do, and asks again and again whether it has: rayon's workers do so before they sleep. For
        // some it is a lock that they spin on.
        Call::Yield if *role == Some(Role::Lock) => Class::Lock,
        Call::Yield => Class::Wait,
        Call::Memory if allocator => Class::AllocatorMemory,
        Call::Memory => Class::Memory,
        Call::Wait => Class::Wait,
        // Rare: the allocator asks for random numbers, or reads one of the kernel's files.
        Call::Io if allocator => Class::Allocator,
        Call::Io => Class::Io,
    }
}

/// Whether a wait on a futex is a wait for a lock, by the operation and the expected value.
///
/// Rust's standard library waits by `FUTEX_WAIT_BITSET`: for a mutex with 2, for a read-write lock with one of its two
/// highest bits and its state below them, and for work with all bits (library/std/src/sys/sync: mutex/futex.rs,
/// rwlock/futex.rs, thread_parking/futex.rs). musl's locks have the highest bit set beside their owner or the number of
/// waiters, its semaphores only that bit, and 2 is a thread that is joined (src/thread: __lock.c,
/// pthread_mutex_timedlock.c, sem_timedwait.c, pthread_join.c). glibc's locks have 2 (nptl/lowlevellock.c).
fn is_locks_word([_, operation, value]: [u64; 3], musl: bool) -> bool {
    const COMMAND: u64 = 0x7f;
    const FUTEX_WAIT: u64 = 0;
    const FUTEX_WAIT_BITSET: u64 = 9;
    let value = value as u32;
    match operation & COMMAND {
        FUTEX_WAIT => value > 1 << 31 || value == 2 && !musl,
        FUTEX_WAIT_BITSET => value == 2 || value != u32::MAX && value >> 30 != 0 && value << 2 != 0,
        _ => false,
    }
}

/// Shares of the wall clock, each from 0 to 1; together they are 1.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Shares {
    /// In the allocator, running.
    pub(crate) running: f64,
    /// On its locks.
    pub(crate) lock: f64,
    /// In the kernel's memory calls on the allocator's behalf.
    pub(crate) memory: f64,
    /// In page faults, and in memory calls that others make.
    pub(crate) faults: f64,
    pub(crate) strings: f64,
    pub(crate) own_lock: f64,
    pub(crate) io: f64,
    pub(crate) wait: f64,
    pub(crate) cpu: f64,
}

/// A call site.
pub(crate) struct CallSite {
    /// The program's own function, and the function with a role that it called.
    pub(crate) name: String,
    /// Seconds of wall clock.
    pub(crate) seconds: f64,
    /// The line of the source in the program's own function at which most of that passed. `None` if the file does not
    /// say.
    pub(crate) line: Option<String>,
}

/// The result of the attribution.
pub(crate) struct Attribution {
    pub(crate) samples: Vec<Attributed>,
    /// The part of its moment that each sample represents, in seconds of wall clock; 0 where others were active.
    pub(crate) weights: Vec<f64>,
    pub(crate) shares: Shares,
    /// How the time of running threads divides.
    pub(crate) processor: ProcessorTime,
    /// Processor seconds outside of the allocator, of memory and string functions, and of page faults.
    pub(crate) other_cpu_s: f64,
    /// The shares in parts of the recording, in order.
    pub(crate) over_time: Vec<Shares>,
}

/// The number of parts in which shares over time are reported.
const PARTS: usize = 60;

impl Attribution {
    pub(crate) fn new(recording: &Recording, frames: &Frames) -> Attribution {
        let musl = recording.report().is_some_and(|report| report.libc == inspector::Libc::Musl);
        let samples: Vec<Attributed> = recording.samples.iter().map(|sample| attribute(sample, frames, musl)).collect();
        let processor = ProcessorTime::new(recording, &|at| samples[at].running);
        let faulting = faulting(recording, frames, &samples, &processor);
        let mut moments: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (at, sample) in recording.samples.iter().enumerate() {
            moments.entry(sample.moment).or_default().push(at);
        }
        let mut weights = vec![0.0; samples.len()];
        let mut shares = Shares::default();
        let parts = PARTS.min(recording.moments.len() / 4).max(1);
        let mut over_time = vec![Shares::default(); parts];
        let length = recording.duration.as_secs_f64().max(f64::MIN_POSITIVE);
        for (moment, members) in moments {
            let moment = recording.moments[moment as usize];
            let span = moment.span.as_secs_f64();
            // Threads that run or queue for a lock come first; then those in input and output; then those that wait.
            let rank = |at: &usize| match samples[*at] {
                Attributed { class: Class::Wait, .. } => 0,
                Attributed { class: Class::Io, running: false } => 1,
                _ => 2,
            };
            let top = members.iter().map(rank).max().unwrap_or(0);
            let active: Vec<usize> = members.into_iter().filter(|at| rank(at) == top).collect();
            let weight = span / active.len() as f64;
            let part = ((moment.at.as_secs_f64() / length * parts as f64) as usize).min(parts - 1);
            for at in active {
                weights[at] = weight;
                for shares in [&mut shares, &mut over_time[part]] {
                    add(shares, samples[at].class, weight, faulting[at]);
                }
            }
        }
        let running = |wanted: &dyn Fn(Class) -> bool| {
            let members = (0..samples.len()).filter(|at| samples[*at].running && wanted(samples[*at].class));
            members.map(|at| processor.with[at] * (1.0 - faulting[at])).sum::<f64>()
        };
        let all = running(&|_| true).max(f64::MIN_POSITIVE);
        let other = running(&|class| matches!(class, Class::Cpu | Class::Lock | Class::Io));
        normalise(&mut shares);
        over_time.iter_mut().for_each(normalise);
        let outside = (processor.total_s - fault_seconds(recording, &processor)).max(0.0);
        let other_cpu_s = outside * other / all;
        Attribution { samples, weights, shares, processor, other_cpu_s, over_time }
    }

    /// Call sites of the samples that `wanted` accepts, by seconds of wall clock, the most first.
    pub(crate) fn sites(
        &self,
        recording: &Recording,
        frames: &Frames,
        wanted: &dyn Fn(Attributed) -> bool,
    ) -> Vec<CallSite> {
        // The seconds of each site, and of each of its lines.
        let mut sites: HashMap<String, (f64, BTreeMap<String, f64>)> = HashMap::new();
        for (at, sample) in recording.samples.iter().enumerate() {
            if wanted(self.samples[at]) && self.weights[at] > 0.0 {
                let walk = sample.walk as usize;
                let (name, own) = site(&frames.stacks[walk], sample.state != State::Running, frames);
                let (seconds, lines) = sites.entry(name).or_default();
                *seconds += self.weights[at];
                if let Some(line) = own.and_then(|number| frames.line(recording, walk, number)) {
                    *lines.entry(line).or_default() += self.weights[at];
                }
            }
        }
        let longest = |lines: BTreeMap<String, f64>| {
            let first = lines.into_iter().reduce(|most, line| if line.1 > most.1 { line } else { most });
            first.map(|(line, _)| line)
        };
        let site = |(name, (seconds, lines))| CallSite { name, seconds, line: longest(lines) };
        let mut sites: Vec<CallSite> = sites.into_iter().map(site).collect();
        sites.sort_by(|one, other| other.seconds.total_cmp(&one.seconds).then_with(|| one.name.cmp(&other.name)));
        sites
    }
}

/// The call site of a stack: the program's own function, and the function with a role that it called, or that entered
/// the kernel. With the number of the own function's frame.
fn site(stack: &[u32], in_kernel: bool, frames: &Frames) -> (String, Option<u32>) {
    let role = |at: &usize| frames.all[stack[*at] as usize].role;
    let name = |at: usize| stack.get(at).map(|number| frames.all[*number as usize].name.as_str());
    let allocator = (0..stack.len()).rev().find(|at| role(at) == Role::Allocator);
    let called = allocator.or_else(|| {
        let inner = (0..stack.len()).take_while(|at| role(at) != Role::Other).last();
        inner.or(in_kernel.then_some(0))
    });
    let own = called.map_or(0, |at| at + 1);
    let shown = match (called.and_then(name), name(own)) {
        (Some(called), Some(caller)) => format!("{called} in {caller}"),
        (Some(called), None) => called.to_owned(),
        (None, own) => own.unwrap_or("[unknown]").to_owned(),
    };
    (shown, stack.get(own).copied())
}

/// Returns the part of each sample's time that was spent in page faults.
///
/// The kernel counts the time of all calls and faults together; the time that samples in calls do not explain is the
/// faults'. It is spread over the samples of the functions that perf events saw taking faults; without those, over the
/// samples during whose stop there were faults.
fn faulting(recording: &Recording, frames: &Frames, samples: &[Attributed], processor: &ProcessorTime) -> Vec<f64> {
    let wanted = fault_seconds(recording, processor);
    let user = |at: usize| recording.samples[at].state == State::Running;
    // A thread that waits for a processor during its stop shows no fault: the faults of its function count.
    let function = |at: usize| frames.stacks[recording.samples[at].walk as usize].first().copied();
    let mut functions: HashMap<Option<u32>, (f64, f64)> = HashMap::new();
    for at in (0..samples.len()).filter(|at| user(*at)) {
        let (sum, count) = functions.entry(function(at)).or_default();
        if recording.faults.is_empty() {
            *sum += f64::from(recording.samples[at].faults.min(64));
        }
        *count += 1.0;
    }
    for (walk, faults) in &recording.faults {
        if let Some((sum, _)) = functions.get_mut(&frames.stacks[*walk as usize].first().copied()) {
            *sum += *faults as f64;
        }
    }
    let mean = |at: usize| functions.get(&function(at)).map_or(0.0, |(sum, count)| sum / count);
    let mut parts: Vec<f64> = (0..samples.len()).map(|at| if user(at) { mean(at) } else { 0.0 }).collect();
    if samples.is_empty() || wanted <= 0.0 {
        return vec![0.0; samples.len()];
    }
    if parts.iter().all(|part| *part == 0.0) {
        parts = (0..samples.len()).map(|at| if user(at) { 1.0 } else { 0.0 }).collect();
    }
    // A sample's time in faults is at most all of its time. The excess is spread over the others.
    let mut factor = 1.0;
    for _ in 0..24 {
        let spread: f64 = (0..parts.len()).map(|at| (parts[at] * factor).min(1.0) * processor.with[at]).sum();
        if spread <= 0.0 || (spread - wanted).abs() < wanted * 0.001 {
            break;
        }
        factor *= (wanted / spread).clamp(0.1, 10.0);
    }
    parts.iter_mut().for_each(|part| *part = (*part * factor).min(1.0));
    parts
}

/// The processor seconds of page faults.
fn fault_seconds(recording: &Recording, processor: &ProcessorTime) -> f64 {
    let samples = recording.samples.iter().zip(&processor.with);
    let in_calls: f64 = samples.filter(|(sample, _)| matches!(sample.state, State::Kernel(_))).map(|(_, s)| s).sum();
    let faults = recording.counts.faults as f64;
    // Seldom does a fault take more than 300 us, with huge pages: the rest of the kernel's time is interrupts. Nor does
    // it take less than 0.5 us (1.6 us on a virtual machine, measured with pages of 4 KiB): a thread that spins in
    // calls is seen there while it waits for a processor, so that calls seem to explain all of the kernel's time.
    let rest = (recording.counts.system_s - in_calls).max(faults * 0.5e-6);
    rest.min(faults * 300e-6).min(recording.counts.system_s)
}

fn add(shares: &mut Shares, class: Class, weight: f64, faulting: f64) {
    let rest = weight * (1.0 - faulting);
    shares.faults += weight * faulting;
    *match class {
        Class::Allocator => &mut shares.running,
        Class::AllocatorLock => &mut shares.lock,
        Class::AllocatorMemory => &mut shares.memory,
        Class::Memory | Class::Fault => &mut shares.faults,
        Class::Strings => &mut shares.strings,
        Class::Lock => &mut shares.own_lock,
        Class::Io => &mut shares.io,
        Class::Wait => &mut shares.wait,
        Class::Cpu => &mut shares.cpu,
    } += rest;
}

fn normalise(shares: &mut Shares) {
    let fields = [
        &mut shares.running,
        &mut shares.lock,
        &mut shares.memory,
        &mut shares.faults,
        &mut shares.strings,
        &mut shares.own_lock,
        &mut shares.io,
        &mut shares.wait,
        &mut shares.cpu,
    ];
    let sum: f64 = fields.iter().map(|field| **field).sum();
    if sum > 0.0 {
        for field in fields {
            *field /= sum;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trials::{Trial, is_about};

    #[test]
    fn threads_that_wait_for_work_count_only_where_no_other_is_active() {
        let one = "on ppoll: poll < serve < main";
        let shares = Trial::new().seen(30, &["running: work < main", one]).seen(10, &[one, one]).shares();
        is_about(shares.cpu, 0.75);
        is_about(shares.wait, 0.25);
    }

    #[test]
    fn a_thread_that_waits_for_data_counts_before_one_that_waits_for_work() {
        let shares = Trial::new()
            .seen(10, &["on read: read < load < main", "on ppoll: poll < main"])
            .seen(30, &["on read: read < load < main", "running: work < main"])
            .shares();
        is_about(shares.io, 0.25);
        is_about(shares.cpu, 0.75);
    }

    #[test]
    fn a_moment_is_divided_among_threads_that_run_and_that_queue_for_locks() {
        let shares = Trial::new()
            .seen(
                10,
                &[
                    "running: work < main",
                    "running: malloc < work < main",
                    "on futex: __lock < free < work < main",
                    "on futex: pthread_mutex_lock < work < main",
                ],
            )
            .shares();
        for share in [shares.cpu, shares.running, shares.lock, shares.own_lock] {
            is_about(share, 0.25);
        }
    }

    #[test]
    fn calls_of_the_kernel_count_for_those_who_make_them() {
        let shares = Trial::new()
            .seen(10, &["in mmap: mmap < malloc < work < main"])
            .seen(20, &["in munmap: munmap < work < main"])
            .seen(30, &["in futex: free < work < main"])
            .seen(10, &["in yield: sched_yield < work < main"])
            .seen(30, &["in read: read < work < main"])
            .shares();
        is_about(shares.memory, 0.10);
        is_about(shares.faults, 0.20);
        is_about(shares.lock, 0.30);
        is_about(shares.wait, 0.10);
        is_about(shares.io, 0.30);
    }

    #[test]
    fn a_string_function_counts_as_itself_and_other_code_as_the_allocator_that_called_it() {
        let shares = Trial::new()
            .seen(30, &["running: memcpy < realloc < grow < main"])
            .seen(10, &["running: lookup < malloc < grow < main"])
            .seen(20, &["on fault: memset < grow < main"])
            .seen(40, &["running: memory_of < grow < main"])
            .shares();
        is_about(shares.strings, 0.30);
        is_about(shares.running, 0.10);
        is_about(shares.faults, 0.20);
        is_about(shares.cpu, 0.40);
    }

    /// A futex without a name: the word's value decides, unless the word is on the thread's own stack.
    #[test]
    fn waits_on_a_futex_without_a_name_are_told_apart() {
        let trial = || Trial::new().seen(10, &["on futex: futex < main"]);
        is_about(trial().shares().own_lock, 1.0);
        let own = trial().with(|recording| recording.samples.iter_mut().for_each(|sample| sample.own_word = true));
        is_about(own.shares().wait, 1.0);
        let named = Trial::new().seen(10, &["on futex: __lock < pthread_cond_wait < main"]);
        is_about(named.shares().wait, 1.0);
    }

    /// Half a second of two is the kernel's, and no call explains it.
    fn with_faults() -> Trial {
        Trial::new().seen(100, &["running: memset < main"]).seen(100, &["running: compute < main"]).with(|recording| {
            recording.counts.user_s = 1.5;
            recording.counts.system_s = 0.5;
            recording.counts.faults = 10_000;
        })
    }

    #[test]
    fn faults_count_for_the_functions_in_which_they_were_seen() {
        let mut events = with_faults();
        let walk = events.walk("memset < main");
        let events = events.with(|recording| recording.faults.extend([(walk, 300)]));
        let stops = with_faults().with(|recording| recording.samples[..100].iter_mut().for_each(|it| it.faults = 3));
        for trial in [events, stops] {
            let shares = trial.shares();
            is_about(shares.faults, 0.25);
            is_about(shares.strings, 0.25);
            is_about(shares.cpu, 0.50);
        }
        // Seen nowhere, they count for all alike.
        let shares = with_faults().shares();
        is_about(shares.faults, 0.25);
        is_about(shares.strings, 0.375);
    }

    #[test]
    fn without_faults_the_time_in_the_kernel_is_nobodys_fault() {
        let shares = with_faults().with(|recording| recording.counts.faults = 0).shares();
        assert_eq!((shares.faults, shares.strings, shares.cpu), (0.0, 0.5, 0.5));
    }

    #[test]
    fn sites_name_the_outermost_function_of_the_allocator_and_its_caller() {
        let profile = Trial::new()
            .seen(10, &["running: lookup < malloc < operator new < add < main"])
            .seen(20, &["running: work < main"])
            .seen(5, &["on futex: __lock < free < drop < main"])
            .seen(1, &["running: malloc"])
            .profile();
        let sites = profile.attribution.sites(&profile.recording, &profile.frames, &|one| one.running);
        let sites: Vec<(&str, f64)> = sites.iter().map(|site| (site.name.as_str(), site.seconds)).collect();
        let names = ["work", "operator new in add", "malloc"];
        assert_eq!(sites.iter().map(|(name, _)| *name).collect::<Vec<_>>(), names);
        for ((_, found), expected) in sites.iter().zip([0.20, 0.10, 0.01]) {
            is_about(*found, expected);
        }
        let locks = profile.attribution.sites(&profile.recording, &profile.frames, &|one| !one.running);
        assert_eq!(locks.iter().map(|site| site.name.as_str()).collect::<Vec<_>>(), ["free in drop"]);
    }

    #[test]
    fn shares_over_time_are_those_of_each_part() {
        let trial = Trial::new().seen(120, &["running: work < main"]).seen(120, &["running: malloc < main"]);
        let parts = trial.profile().attribution.over_time;
        assert_eq!(parts.len(), PARTS);
        assert!(parts[..PARTS / 2].iter().all(|part| part.cpu == 1.0), "{parts:?}");
        assert!(parts[PARTS / 2..].iter().all(|part| part.running == 1.0), "{parts:?}");
    }

    #[test]
    fn a_wait_for_a_lock_is_told_from_one_for_work() {
        const PRIVATE: u64 = 128;
        let (wait, bitset) = (PRIVATE, 9 | PRIVATE);
        let (tid, busy, all) = (1 << 31 | 4321, 1 << 31 | 16, u64::from(u32::MAX));
        for (what, operation, value, musl, lock) in [
            ("musl's mutex", wait, busy, true, true),
            ("musl's recursive mutex", wait, tid, true, true),
            ("musl's read-write lock", wait, all, true, true),
            ("musl's semaphore", wait, 1 << 31, true, false),
            ("a thread that musl joins", wait, 2, true, false),
            ("glibc's mutex", wait, 2, false, true),
            ("a thread that glibc joins", bitset, 4321, false, false),
            ("Rust's mutex", bitset, 2, true, true),
            ("Rust's read-write lock, read by three", bitset, 1 << 30 | 3, true, true),
            ("Rust's parked thread", bitset, all, true, false),
            ("Rust's condition, by its counter", bitset, 77, false, false),
            ("a wake", 1 | PRIVATE, 2, false, false),
        ] {
            assert_eq!(is_locks_word([0, operation, value], musl), lock, "{what}");
        }
    }
}

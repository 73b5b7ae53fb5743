//! The verdict: a program's bottleneck, and the possible gain with a donor.
//!
//! The gain is a range, not a number. By Amdahl's law the rest of the program remains; how much of the allocator's time
//! a donor takes away can only be bounded, and `allograft bench` measures it.

use serde::Serialize;

use crate::attribution::{Attribution, Class, Shares};
use crate::frames::Frames;
use crate::recording::{Recording, State};

/// The bottleneck of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bottleneck {
    /// Its allocator: running, its lock, or the kernel's memory calls on its behalf.
    Allocator,
    /// Page faults, and memory that the program maps by itself.
    PageFaults,
    /// Memory and string functions.
    Strings,
    /// One of its own locks.
    Lock,
    /// Input, output, or work to come.
    Io,
    /// Its own code.
    Cpu,
}

impl Bottleneck {
    /// Its name in the document.
    pub fn name(self) -> &'static str {
        match self {
            Bottleneck::Allocator => "allocator",
            Bottleneck::PageFaults => "page-faults",
            Bottleneck::Strings => "strings",
            Bottleneck::Lock => "lock",
            Bottleneck::Io => "io",
            Bottleneck::Cpu => "cpu",
        }
    }
}

/// Shares of the wall clock, each from 0 to 1; their sum is 1. A moment in which several threads are active counts for
/// all of them alike; threads that wait for work count only where no other thread is active. A thread that can run is
/// active, whether it has a processor or waits for one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Share {
    /// The allocator: running, its lock, or the kernel's memory calls on its behalf.
    pub allocator: f64,
    /// Page faults, and memory that the program maps by itself.
    #[serde(rename = "page-faults")]
    pub page_faults: f64,
    /// Memory and string functions.
    pub strings: f64,
    /// Locks of the program's own.
    pub lock: f64,
    /// Input, output, or work to come.
    pub io: f64,
    /// The program's own code.
    pub cpu: f64,
}

/// The verdict.
#[derive(Debug, Clone, Serialize)]
pub struct Verdict {
    /// The part of the program that takes most of the time.
    pub bottleneck: Bottleneck,
    /// The shares of all parts.
    pub share: Share,
    /// How many times as fast the program would be with a different allocator, and with fast string functions where it
    /// has stock's: at least, and at best. 1 is as fast as now. The lower end is below 1 only where the program grows
    /// large blocks, which musl moves without a copy.
    pub best_speedup: (f64, f64),
    /// The verdict as a paragraph.
    pub text: String,
    /// The donor to try; null where no donor would help.
    pub donor: Option<String>,
    /// The command line to try it with; null where no donor would help.
    pub command: Option<String>,
}

/// The part of the time in musl's allocator and on its lock that a donor saves at least. By `cargo xtask bench
/// profile`, snmalloc saves 0.8 to 1 of it. It may save nothing of the time in the kernel's memory calls.
const LEAST_GAIN: f64 = 0.6;
/// How much longer a donor may take for blocks that musl lets the kernel move: donors copy them. By the program `grown`
/// of the same command: 0.6 of its time in `mremap`, and 3.7 times as slow with snmalloc.
const COPIES: f64 = 5.0;
/// From this share of `mremap` on, a donor may be slower.
const MOVES: f64 = 0.05;
/// The part of the time in an allocator that even the fastest one takes.
const LEAST_COST: f64 = 0.03;
/// The most that a donor saves in the program's own code, as a part of the time in the allocator: blocks are closer
/// together, and an out-of-order processor counts some of the allocator's time for the code behind it. By the program
/// `mixed` of the same command: 0.21 of its time in malloc and free, and 1.5 times as fast with snmalloc.
const BESIDE: f64 = 0.5;
/// The part of the time in musl's string functions that fast ones save at most.
const STRINGS_GAIN: f64 = 0.7;
/// From this gain on, at best, nothing says that a different allocator would not help.
pub const WORTH_TRYING: f64 = 1.15;
/// From this share on something is named beside the bottleneck.
const WORTH_NAMING: f64 = 0.15;

/// Gives the verdict, without donor and command.
pub(crate) fn verdict(recording: &Recording, frames: &Frames, attribution: &Attribution) -> Verdict {
    let shares = attribution.shares;
    let share = Share {
        allocator: shares.running + shares.lock + shares.memory,
        page_faults: shares.faults,
        strings: shares.strings,
        lock: shares.own_lock,
        io: shares.io + shares.wait,
        cpu: shares.cpu,
    };
    let bottleneck = bottleneck(&share);
    let stock = is_stock(recording);
    let best_speedup = speedup(recording, attribution, stock);
    let text = text(recording, frames, attribution, bottleneck, &share, best_speedup)
        + &gain(best_speedup, stock && share.strings >= WORTH_NAMING);
    Verdict { bottleneck, share, best_speedup, text, donor: None, command: None }
}

/// The greatest share; of equal ones, the first.
fn bottleneck(share: &Share) -> Bottleneck {
    let all = [
        (Bottleneck::Allocator, share.allocator),
        (Bottleneck::PageFaults, share.page_faults),
        (Bottleneck::Strings, share.strings),
        (Bottleneck::Lock, share.lock),
        (Bottleneck::Io, share.io),
        (Bottleneck::Cpu, share.cpu),
    ];
    let greatest = all.iter().map(|(_, share)| *share).fold(0.0, f64::max);
    all.iter().find(|(_, share)| *share >= greatest).map_or(Bottleneck::Cpu, |(bottleneck, _)| *bottleneck)
}

/// Whether one of musl's stock allocators serves malloc.
fn is_stock(recording: &Recording) -> bool {
    use inspector::{Libc, name};
    recording.report().is_some_and(|report| {
        let dynamic = report.link == Some(inspector::Link::Dynamic) && report.libc == Libc::Musl;
        dynamic || [name::MALLOCNG, name::OLDMALLOC].contains(&report.malloc.name.as_str())
    })
}

/// Returns how many times as fast the program would be: at least and at best.
///
/// By Amdahl's law: the time outside of the allocator remains. With a lock out of the way, all threads want a processor
/// at once, so at least their processor time over the number of processors remains. The time on the program's own locks
/// is what other threads do meanwhile: at best it shrinks as they do.
fn speedup(recording: &Recording, attribution: &Attribution, stock: bool) -> (f64, f64) {
    let shares = attribution.shares;
    // Two standard errors of a share from as many moments.
    let moments = recording.moments.len().max(1) as f64;
    let error = |share: f64| 2.0 * (share * (1.0 - share) / moments).sqrt() + 1.0 / moments;
    let churns = churns(&shares);
    let allocator = shares.running + shares.lock + shares.memory;
    let faults = if churns { shares.faults } else { 0.0 };
    let strings = if stock { STRINGS_GAIN * shares.strings } else { 0.0 };
    let beside = BESIDE * shares.running.min(shares.cpu);
    let most = allocator - LEAST_COST * shares.running + beside + faults + strings;
    let active = (1.0 - shares.own_lock - shares.io - shares.wait).max(f64::MIN_POSITIVE);
    let most = most + shares.own_lock * (most / active).min(1.0);
    let most = (most + error(most)).clamp(0.0, 0.999);
    let duration = recording.duration.as_secs_f64().max(f64::MIN_POSITIVE);
    let floor = attribution.other_cpu_s / (duration * recording.processors as f64);
    // Its share is also estimated from samples.
    let floor = (floor - error(floor.min(1.0))).max(0.0);
    let high = 1.0 / (1.0 - most).max(floor.min(1.0)).max(0.001);
    let least = if stock { LEAST_GAIN * (shares.running + shares.lock) } else { 0.0 };
    let least = (least - error(allocator)).max(0.0);
    // Where many threads share few processors, not all of the lock's time can be gained.
    let low = (1.0 / (1.0 - least)).min(high).max(1.0);
    match moves(recording, attribution) {
        moves if stock && moves >= MOVES => (low / (1.0 + COPIES * moves), high.max(1.0)),
        _ => (low, high.max(1.0)),
    }
}

/// The share of the time in which the kernel moves blocks for the allocator.
fn moves(recording: &Recording, attribution: &Attribution) -> f64 {
    let total: f64 = attribution.weights.iter().sum::<f64>().max(f64::MIN_POSITIVE);
    let samples = recording.samples.iter().zip(&attribution.samples).zip(&attribution.weights);
    let moving = samples.filter(|((sample, attributed), _)| {
        let (State::Kernel(call) | State::Blocked(call, _)) = sample.state else { return false };
        attributed.class == Class::AllocatorMemory && libc::c_long::try_from(call) == Ok(libc::SYS_mremap)
    });
    moving.map(|(_, weight)| weight).sum::<f64>() / total
}

/// Whether page faults come from memory that the allocator maps anew again and again.
fn churns(shares: &Shares) -> bool {
    shares.memory > 0.02 && shares.memory > 0.04 * shares.faults
}

fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

fn text(
    recording: &Recording,
    frames: &Frames,
    attribution: &Attribution,
    bottleneck: Bottleneck,
    share: &Share,
    (_, high): (f64, f64),
) -> String {
    let shares = attribution.shares;
    let length = recording.duration.as_secs_f64().max(f64::MIN_POSITIVE);
    let faults = recording.counts.faults as f64 / length;
    let first = |wanted: &dyn Fn(Class) -> bool| {
        let sites = attribution.sites(recording, frames, &|one| wanted(one.class));
        sites.first().map(|site| format!(" (most: `{}`)", site.name)).unwrap_or_default()
    };
    let parts = format!(
        "{} running in it, {} blocked on its lock, {} in the kernel's memory calls for it",
        percent(shares.running),
        percent(shares.lock),
        percent(shares.memory)
    );
    let mut text = match bottleneck {
        Bottleneck::Allocator => {
            format!("The allocator is the bottleneck: {} of the time, {parts}.", percent(share.allocator))
        }
        Bottleneck::PageFaults if churns(&shares) => format!(
            "Page faults are the bottleneck: {} of the time, {faults:.0} a second, on memory that the allocator gives \
             back and maps again.",
            percent(share.page_faults)
        ),
        Bottleneck::PageFaults => format!(
            "Page faults and memory that the program maps by itself are the bottleneck: {} of the time, {faults:.0} \
             faults a second. This is often blamed on the allocator, which has {} of the time{}.",
            percent(share.page_faults),
            percent(share.allocator),
            if high < WORTH_TRYING { ": a different allocator would not help" } else { "" }
        ),
        Bottleneck::Strings => format!(
            "Memory and string functions are the bottleneck: {} of the time{}. This is often blamed on the allocator, \
             which has {}.",
            percent(share.strings),
            first(&|class| class == Class::Strings),
            percent(share.allocator)
        ),
        Bottleneck::Lock => format!(
            "A lock of the program's own is the bottleneck: {} of the time{}. The allocator has {}{}.",
            percent(share.lock),
            first(&|class| class == Class::Lock),
            percent(share.allocator),
            match high {
                high if high < WORTH_TRYING => ": a different allocator would not help",
                _ => ", and who waits for a lock waits for what others do meanwhile",
            }
        ),
        Bottleneck::Io if shares.wait >= shares.io => format!(
            "The program waits for work: {} of the time no thread did anything but sleep, poll or wait. The \
             allocator has {}.",
            percent(share.io),
            percent(share.allocator)
        ),
        Bottleneck::Io => format!(
            "Input and output are the bottleneck: {} of the time{}. The allocator has {}.",
            percent(share.io),
            first(&|class| class == Class::Io),
            percent(share.allocator)
        ),
        Bottleneck::Cpu => format!(
            "The program's own code is the bottleneck: {} of the time{}. The allocator has {}.",
            percent(share.cpu),
            first(&|class| class == Class::Cpu),
            percent(share.allocator)
        ),
    };
    let beside = [
        (Bottleneck::Allocator, share.allocator, format!("the allocator ({parts})")),
        (Bottleneck::PageFaults, share.page_faults, format!("page faults ({faults:.0} a second)")),
        (Bottleneck::Strings, share.strings, "memory and string functions".to_owned()),
        (Bottleneck::Lock, share.lock, "locks of the program's own".to_owned()),
        (Bottleneck::Io, share.io, "input, output and waiting".to_owned()),
    ];
    let beside: Vec<String> = beside
        .into_iter()
        .filter(|(what, share, _)| *what != bottleneck && *share >= WORTH_NAMING)
        .map(|(_, share, name)| format!("{} {name}", percent(share)))
        .collect();
    if !beside.is_empty() {
        text += &format!(" Beside it: {}.", beside.join("; "));
    }
    let waiting = attribution.processor.waiting();
    if waiting >= WORTH_NAMING {
        text += &format!(
            " Threads that could run waited for a processor for {} of that time, which counts as running here.",
            percent(waiting)
        );
    }
    text
}

/// Returns the sentence on how many times as fast the program would be. `with_strings`: much of that is due to string
/// functions.
fn gain((low, high): (f64, f64), with_strings: bool) -> String {
    let with = if with_strings { "another allocator and fast string functions" } else { "another allocator" };
    match (low, high) {
        (low, high) if low < 1.0 => format!(
            " With {with} it would be {low:.2} to {} times as fast: large blocks grow here by `mremap`, where others \
             copy them, and may be slower.",
            at_best(high)
        ),
        (_, high) if high < 1.05 => " Another allocator would make it no faster to speak of.".to_owned(),
        (low, high) => format!(" With {with} it would be {low:.2} to {} times as fast, at best.", at_best(high)),
    }
}

/// An upper bound in words: beyond 100, the rest of the program is too short to be measured.
fn at_best(high: f64) -> String {
    if high > 100.0 { "more than 100".to_owned() } else { format!("{high:.2}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trials::{Trial, is_about};

    fn of(trial: Trial) -> Verdict {
        trial.profile().analysis.verdict
    }

    /// One thread is in malloc, another waits for its lock.
    fn queue() -> Trial {
        Trial::new().seen(200, &["running: malloc < work < main", "on futex: __lock < free < work < main"])
    }

    #[test]
    fn a_program_in_its_allocator_may_gain_much_and_gains_some_at_least() {
        let verdict = of(queue());
        let says = "The allocator is the bottleneck: 100 % of the time, 50 % running in it, 50 % blocked on its lock, 0 % \
                    in the kernel's memory calls for it.";
        assert!(verdict.bottleneck == Bottleneck::Allocator && verdict.text.starts_with(says), "{}", verdict.text);
        let (low, high) = verdict.best_speedup;
        assert!((2.3..2.5).contains(&low) && high > 20.0, "{low} to {high}");
        assert!(verdict.donor.is_none() && verdict.command.is_none());
    }

    #[test]
    fn less_is_certain_with_an_allocator_that_is_not_stock() {
        assert_eq!(of(queue().malloc("jemalloc")).best_speedup.0, 1.0);
    }

    #[test]
    fn a_program_in_its_own_code_gains_nothing() {
        let verdict = of(Trial::new().seen(400, &["running: work < main"]));
        assert_eq!(verdict.bottleneck, Bottleneck::Cpu);
        assert!(
            verdict.text.starts_with("The program's own code is the bottleneck: 100 % of the time (most: `work`).")
        );
        assert!(verdict.text.ends_with("Another allocator would make it no faster to speak of."), "{}", verdict.text);
        assert!(verdict.best_speedup.0 == 1.0 && verdict.best_speedup.1 < 1.01, "{:?}", verdict.best_speedup);
    }

    /// All of the four threads would want one of the two processors.
    #[test]
    fn the_work_of_threads_that_queue_needs_processors_too() {
        let lock = "on futex: __lock < free < work < main";
        let (_, high) = of(Trial::new().seen(400, &["running: work < main", lock, lock, lock])).best_speedup;
        assert!((1.9..2.4).contains(&high), "{high}");
    }

    #[test]
    fn blocks_that_the_kernel_moves_may_be_copied_by_others() {
        let verdict = of(Trial::new()
            .seen(60, &["in mremap: mremap < realloc < grow < main"])
            .seen(40, &["running: work < main"]));
        assert!(verdict.best_speedup.0 < 0.5, "{:?}", verdict.best_speedup);
        assert!(verdict.text.contains("large blocks grow here by `mremap`"), "{}", verdict.text);
        let other = Trial::new().seen(60, &["in mremap: mremap < realloc < grow < main"]).malloc("jemalloc");
        assert!(of(other).best_speedup.0 >= 1.0);
    }

    #[test]
    fn each_bottleneck_has_its_words() {
        let lock = "on futex: pthread_mutex_lock < work < main";
        let cases = [
            (Bottleneck::Io, "on ppoll: poll < main", "The program waits for work: 60 % of the time no thread did"),
            (
                Bottleneck::Io,
                "on read: read < load < main",
                "Input and output are the bottleneck: 60 % of the time (most: `",
            ),
            (
                Bottleneck::Lock,
                lock,
                "A lock of the program's own is the bottleneck: 60 % of the time (most: `pthread_mutex_lock in work`).",
            ),
            (
                Bottleneck::Strings,
                "running: memcpy < copy < main",
                "Memory and string functions are the bottleneck: 60 % of the time (most: `memcpy in copy`). This is \
                 often blamed on the allocator, which has 0 %.",
            ),
            (
                Bottleneck::PageFaults,
                "on fault: fill < main",
                "Page faults and memory that the program maps by itself are the bottleneck: 60 % of the time, 0 faults a",
            ),
        ];
        for (bottleneck, line, says) in cases {
            let verdict = of(Trial::new().seen(60, &[line]).seen(40, &["running: work < main"]));
            assert!(verdict.bottleneck == bottleneck && verdict.text.starts_with(says), "{}", verdict.text);
            let gains = verdict.text.contains(" With another allocator and fast string functions it would be 1.00 to ");
            assert_eq!(gains, bottleneck == Bottleneck::Strings, "{}", verdict.text);
        }
    }

    #[test]
    fn faults_on_memory_that_the_allocator_maps_again_are_its_own() {
        let trial = |inner: &str| {
            Trial::new().seen(60, &["on fault: fill < main"]).seen(20, &[inner]).seen(20, &["running: work < main"])
        };
        let churning = of(trial("in munmap: munmap < free < fill < main"));
        assert!(churning.text.contains("on memory that the allocator gives back and maps again."), "{}", churning.text);
        assert!(churning.best_speedup.1 > 4.0, "{:?}", churning.best_speedup);
        let other = of(trial("in munmap: munmap < fill < main"));
        assert!(other.text.contains("often blamed on the allocator, which has 0 %"), "{}", other.text);
        assert!(other.best_speedup.1 < WORTH_TRYING, "{:?}", other.best_speedup);
    }

    #[test]
    fn large_parts_beside_the_bottleneck_and_waits_for_a_processor_are_named() {
        let trial = Trial::new().seen(60, &["running: work < main"]).seen(40, &["running: malloc < work < main"]);
        let verdict = of(trial.with(|recording| {
            recording.samples.iter_mut().for_each(|sample| sample.ran = Some(0.005));
            recording.counts.user_s = 0.5;
        }));
        is_about(verdict.share.allocator, 0.4);
        let beside = "Beside it: 40 % the allocator (40 % running in it, 0 % blocked on its lock, 0 % in the kernel's";
        assert!(verdict.text.contains(beside), "{}", verdict.text);
        assert!(verdict.text.contains("waited for a processor for 50 % of that time"), "{}", verdict.text);
    }

    #[test]
    fn the_upper_end_is_told_as_far_as_it_is_known() {
        assert_eq!([1.0, 99.999, 999.9].map(at_best), ["1.00", "100.00", "more than 100"]);
    }

    #[test]
    fn the_greatest_share_is_the_bottleneck() {
        let even = Share { allocator: 0.3, page_faults: 0.1, strings: 0.1, lock: 0.3, io: 0.1, cpu: 0.1 };
        assert_eq!(bottleneck(&even), Bottleneck::Allocator);
        assert_eq!(bottleneck(&Share { cpu: 0.4, ..even }), Bottleneck::Cpu);
        assert_eq!(bottleneck(&Share { page_faults: 0.4, ..even }), Bottleneck::PageFaults);
    }
}

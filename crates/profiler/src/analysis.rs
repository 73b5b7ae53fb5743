//! The analysis of a recording: the document that `allograft profile --json` prints, except for the donor and its
//! command.

use serde::Serialize;

use crate::attribution::{Attribution, CallSite, Class};
use crate::calls::{self, Calls};
use crate::frames::Frames;
use crate::recording::{Ended, Recording, Sample, State};
use crate::verdict::{self, Verdict};

/// The results of a recording.
#[derive(Debug, Clone, Serialize)]
pub struct Analysis {
    /// The file of the program: if there were several processes, the one that ran in most samples.
    pub program: String,
    /// The process that was started or attached to.
    pub pid: i32,
    /// Its architecture.
    pub arch: String,
    /// The allocator that serves its malloc, as `inspect` names it; `unknown` if its file does not show it.
    pub malloc: String,
    /// The circumstances of the recording.
    pub recording: Recorded,
    /// The verdict: the program's bottleneck, its shares, and a donor's possible gain.
    pub verdict: Verdict,
    /// The parts of `allocator` and of `io` in the verdict's shares.
    pub detail: Detail,
    /// The kernel's figures for the time of the recording, per second.
    pub rates: Rates,
    /// The functions in which most time passed, on a processor, the most first. At most 20.
    pub running: Vec<Site>,
    /// The functions in which threads were blocked on locks, the most first. At most 20.
    pub locks: Vec<Site>,
    /// Warnings about the figures.
    pub warnings: Vec<String>,
}

/// The circumstances of a recording.
#[derive(Debug, Clone, Serialize)]
pub struct Recorded {
    /// The way in which threads were sampled. Always `ptrace`: those that run are stopped for some microseconds.
    pub sampler: String,
    /// Seconds from the first moment to the last.
    pub duration_s: f64,
    /// The source of page faults: `perf-events`, or `ptrace`, by the stops, where the kernel allows no events or saw no
    /// fault.
    pub faults: String,
    /// Seconds for which all threads together had a processor, by the kernel's accounts.
    pub processor_s: f64,
    /// The number of moments at which all threads were sampled.
    pub moments: usize,
    /// The number of samples of threads.
    pub samples: usize,
    /// The number of sampled threads.
    pub threads: usize,
    /// The number of sampled processes.
    pub processes: usize,
    /// The part of the samples whose stack ends before the thread's first function.
    pub truncated: f64,
    /// The processor time that recording took, as a part of the duration.
    pub overhead: f64,
    /// The program's exit code, if it ended by itself.
    pub exit_code: Option<i32>,
    /// The signal that ended the program.
    pub signal: Option<i32>,
    /// Whether the recording was interrupted.
    pub interrupted: bool,
}

/// Parts of shares.
#[derive(Debug, Clone, Serialize)]
pub struct Detail {
    /// In the allocator, running.
    pub allocator_running: f64,
    /// Blocked on the allocator's locks.
    pub allocator_lock: f64,
    /// In mmap, munmap, madvise and their like on its behalf.
    pub allocator_memory: f64,
    /// Waiting for work while no thread did anything: sleeping, polling, waiting for a child.
    pub waiting: f64,
    /// The part of the time in which threads could run, but waited for a processor. The shares count them as running.
    pub processor_wait: f64,
}

/// Figures per second.
#[derive(Debug, Clone, Serialize)]
pub struct Rates {
    /// Page faults without a disk.
    pub page_faults: f64,
    /// How often threads yielded their processor voluntarily.
    pub voluntary_switches: f64,
    /// Calls of futex, estimated, since they are counted for a part of the time. Null if they could not be counted.
    pub futex_calls: Option<f64>,
    /// Calls of mmap, munmap, mremap, mprotect, madvise and brk, estimated in the same way.
    pub memory_calls: Option<f64>,
    /// Processors in use, on average.
    pub processors: f64,
}

/// A function and its part of the time.
#[derive(Debug, Clone, Serialize)]
pub struct Site {
    /// The function. For one that the program calls in a library or an allocator, with the caller.
    pub function: String,
    /// The line of the source at which most of that passed, such as `server.c:12`: in the program's own function. Null
    /// if the file does not say.
    pub line: Option<String>,
    /// Its share of the wall clock, from 0 to 1.
    pub share: f64,
}

/// The most sites of a list.
const SITES: usize = 20;

/// A recording with its analysis.
pub struct Profile {
    /// The analysis.
    pub analysis: Analysis,
    pub(crate) recording: Recording,
    pub(crate) frames: Frames,
    pub(crate) attribution: Attribution,
}

/// Finds the bottleneck of the recorded program.
pub fn analyse(recording: Recording) -> Profile {
    let frames = Frames::new(&recording);
    let attribution = Attribution::new(&recording, &frames);
    let analysis = analysis(&recording, &frames, &attribution);
    Profile { analysis, recording, frames, attribution }
}

impl Profile {
    /// The inspector's report on the program's file.
    pub fn report(&self) -> Option<&inspector::Report> {
        self.recording.report()
    }
}

fn analysis(recording: &Recording, frames: &Frames, attribution: &Attribution) -> Analysis {
    let length = recording.duration.as_secs_f64().max(f64::MIN_POSITIVE);
    let counts = recording.counts;
    let verdict = verdict::verdict(recording, frames, attribution);
    let total: f64 = attribution.weights.iter().sum::<f64>().max(f64::MIN_POSITIVE);
    let sites = |wanted: &dyn Fn(crate::attribution::Attributed) -> bool| {
        let sites = attribution.sites(recording, frames, wanted).into_iter().take(SITES);
        let site = |CallSite { name, line, seconds }| Site { function: name, line, share: seconds / total };
        sites.map(site).collect::<Vec<_>>()
    };
    let cut = recording.samples.iter().filter(|sample| recording.walks[sample.walk as usize].truncated).count();
    let samples = recording.samples.len();
    let mut pids: Vec<i32> = recording.threads.iter().map(|thread| thread.pid).collect();
    pids.sort_unstable();
    pids.dedup();
    let shares = attribution.shares;
    let calls = calls(recording, attribution.processor.total_s / length);
    Analysis {
        program: recording.path.clone(),
        pid: recording.pid,
        arch: std::env::consts::ARCH.to_owned(),
        malloc: recording
            .report()
            .map_or_else(|| inspector::name::UNKNOWN.to_owned(), |report| report.malloc.name.clone()),
        recording: Recorded {
            sampler: "ptrace".to_owned(),
            faults: if recording.faults.is_empty() { "ptrace" } else { "perf-events" }.to_owned(),
            duration_s: recording.duration.as_secs_f64(),
            processor_s: attribution.processor.total_s,
            moments: recording.moments.len(),
            samples,
            threads: recording.threads.len(),
            processes: pids.len(),
            truncated: cut as f64 / samples.max(1) as f64,
            overhead: recording.own_s / length,
            exit_code: match recording.ended {
                Some(Ended::Exit(code)) => Some(code),
                _ => None,
            },
            signal: match recording.ended {
                Some(Ended::Signal(signal)) => Some(signal),
                _ => None,
            },
            interrupted: recording.interrupted,
        },
        detail: Detail {
            allocator_running: shares.running,
            allocator_lock: shares.lock,
            allocator_memory: shares.memory,
            waiting: shares.wait,
            processor_wait: attribution.processor.waiting(),
        },
        rates: Rates {
            page_faults: counts.faults as f64 / length,
            voluntary_switches: counts.voluntary_switches as f64 / length,
            futex_calls: calls.map(|calls| calls.futex),
            memory_calls: calls.map(|calls| calls.memory),
            processors: attribution.processor.total_s / length,
        },
        running: sites(&|one| one.running),
        locks: sites(&|one| matches!(one.class, Class::AllocatorLock | Class::Lock)),
        warnings: warnings(recording, frames, cut),
        verdict,
    }
}

/// Calls per second: the calls per second of processor time, times the program's processor time per second.
fn calls(recording: &Recording, processors: f64) -> Option<Calls> {
    let ran = |sample: &&Sample| !matches!(sample.state, State::Blocked(..));
    let is_other = |sample: &Sample| matches!(sample.state, State::Kernel(call) if !calls::is_followed(call));
    let all = recording.samples.iter().filter(ran).count().max(1);
    let other = recording.samples.iter().filter(|sample| is_other(sample)).count();
    recording.watch.rates(processors * (1.0 - other as f64 / all as f64))
}

/// The part of truncated stacks from which a warning is given.
const MANY_CUT: f64 = 0.25;

/// The part of the moments that were due, below which something held the sampler back.
const STARVED: f64 = 0.5;

fn warnings(recording: &Recording, frames: &Frames, cut: usize) -> Vec<String> {
    let mut warnings = Vec::new();
    let samples = recording.samples.len().max(1);
    match recording.ended {
        Some(Ended::Exit(code)) if code != 0 => warnings.push(format!("the program ended with exit code {code}")),
        Some(Ended::Signal(signal)) => warnings.push(format!("the program was ended by signal {signal}")),
        _ => {}
    }
    for pid in &recording.left {
        warnings.push(format!("process {pid} has another user's rights and could not be ended: it goes on"));
    }
    if recording.lost > 0 {
        warnings.push(format!(
            "{} samples of threads failed, because the threads were stopped or traced by another program: that time \
             does not count",
            recording.lost
        ));
    }
    match recording.moments.len() {
        100.. => {}
        // A longer run would not have many more.
        moments if (moments as f64) < STARVED * recording.due() => warnings.push(format!(
            "only {moments} moments were sampled in {:.1} s, where {:.0} were due: other work took the processors, or a \
             moment of this many threads takes long. Profile when less else runs, or leave the sampler a processor \
             (taskset)",
            recording.duration.as_secs_f64(),
            recording.due()
        )),
        moments => warnings.push(format!(
            "only {moments} moments were sampled: let the program run longer for a narrower range"
        )),
    }
    if cut as f64 / samples as f64 > MANY_CUT {
        warnings.push(format!(
            "{:.0} % of the stacks end before the thread's first function: they are labelled `[truncated]`",
            100.0 * cut as f64 / samples as f64
        ));
    }
    let named =
        recording.program.and_then(|number| recording.library.modules.get(number as usize)).is_none_or(|module| {
            module.donor.is_some()
                || recording.report().is_some_and(|report| report.malloc.name == inspector::name::NONE)
                || module.symbols.has("malloc")
                || module.symbols.has("free")
                || recording.report().is_none_or(|report| report.link == Some(inspector::Link::Dynamic))
        });
    if !named {
        warnings.push(
            "the program is stripped, and its allocator's functions were not found in the code: time in them counts as \
             the program's own"
                .to_owned(),
        );
    }
    if frames.all.is_empty() {
        warnings.push("no thread was seen running or blocked".to_owned());
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::Recording;
    use crate::trials::{Trial, is_about};

    fn analysed(change: impl FnOnce(&mut Recording)) -> Analysis {
        let trial = Trial::new()
            .seen(60, &["running: malloc < work < main", "on futex: pthread_mutex_lock < work < main"])
            .seen(140, &["running: work < main", "on ppoll: poll < main"]);
        trial.with(change).profile().analysis
    }

    #[test]
    fn a_whole_recording_has_no_warnings() {
        let analysis = analysed(|recording| recording.counts.faults = 400);
        assert_eq!(analysis.warnings, Vec::<String>::new());
        assert_eq!((analysis.program.as_str(), analysis.malloc.as_str()), ("/bin/program", "mallocng"));
        let recorded = &analysis.recording;
        assert_eq!((recorded.moments, recorded.samples, recorded.threads, recorded.processes), (200, 400, 2, 1));
        assert_eq!((recorded.exit_code, recorded.signal, recorded.faults.as_str()), (None, None, "ptrace"));
        is_about(recorded.duration_s, 2.0);
        is_about(recorded.processor_s, 2.0);
        is_about(analysis.rates.page_faults, 200.0);
        is_about(analysis.rates.processors, 1.0);
        assert_eq!(analysis.rates.futex_calls, None, "no thread was followed");
    }

    #[test]
    fn sites_have_their_shares_of_the_wall_clock() {
        let analysis = analysed(|_| {});
        let sites = |sites: &[Site]| sites.iter().map(|site| site.function.clone()).collect::<Vec<_>>();
        assert_eq!(sites(&analysis.running), ["work", "malloc in work"]);
        is_about(analysis.running[0].share, 0.70);
        is_about(analysis.running[1].share, 0.15);
        assert_eq!(sites(&analysis.locks), ["pthread_mutex_lock in work"]);
        is_about(analysis.locks[0].share, 0.15);
        is_about(analysis.detail.allocator_running, 0.15);
        is_about(analysis.detail.waiting, 0.0);
    }

    #[test]
    fn what_makes_figures_uncertain_is_a_warning() {
        let only = |change: fn(&mut Recording)| {
            let mut warnings = analysed(change).warnings;
            assert_eq!(warnings.len(), 1, "{warnings:?}");
            warnings.remove(0)
        };
        assert_eq!(only(|it| it.ended = Some(Ended::Exit(3))), "the program ended with exit code 3");
        assert_eq!(only(|it| it.ended = Some(Ended::Signal(9))), "the program was ended by signal 9");
        assert!(only(|it| it.left = vec![77]).starts_with("process 77 has another user's rights"));
        assert!(only(|it| it.lost = 5).starts_with("5 samples of threads failed"));
        let stripped = Trial::new().seen(200, &["running: work < main"]).profile().analysis.warnings;
        assert!(matches!(stripped.as_slice(), [one] if one.starts_with("the program is stripped")), "{stripped:?}");
        let known = Trial::new().seen(200, &["running: work < main"]).malloc(inspector::name::NONE).profile();
        assert_eq!(known.analysis.warnings, Vec::<String>::new());
        let short = Trial::new().seen(20, &["running: malloc < main"]).profile().analysis.warnings;
        assert!(matches!(short.as_slice(), [one] if one.starts_with("only 20 moments were sampled: let")), "{short:?}");
        let starved = |due| {
            let mut recording = Trial::new().seen(20, &["running: malloc < main"]).recording();
            recording.rate = due / recording.duration.as_secs_f64();
            analyse(recording).analysis.warnings
        };
        let told = starved(60.0);
        let text = "where 60 were due: other work took the processors";
        assert!(matches!(told.as_slice(), [one] if one.contains(text) && !one.contains("longer")), "{told:?}");
        assert!(starved(30.0)[0].contains("run longer"));
    }

    #[test]
    fn stacks_that_end_early_are_a_warning_from_a_quarter_on() {
        let warned = |cut: u32| {
            let mut trial = Trial::new().seen(200 - cut, &["running: malloc < main"]).seen(cut, &["running: free"]);
            let walk = trial.walk("free") as usize;
            let mut recording = trial.recording();
            recording.walks[walk].truncated = true;
            analyse(recording).analysis.warnings
        };
        assert_eq!(warned(50), Vec::<String>::new());
        assert!(warned(60)[0].starts_with("30 % of the stacks end before the thread's first function"));
    }
}

//! The choice of an arm.
//!
//! An arm is faster only if the test of its rounds says so, at a level for all arms together: of a dozen arms that are
//! the same, one looks faster by chance. Of the arms whose times cannot be told apart, the one with the least memory is
//! chosen.

use serde::{Deserialize, Serialize};

use crate::rates::Standing;
use crate::report::figures;
use crate::results::{ArmResult, CaseResult};
use crate::statistics::{Ratio, holm};

/// The objective of a choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Objective {
    /// The fastest.
    Speed,
    /// The one with the least peak, if it is not slower.
    Memory,
    /// The fastest whose peak is at most [`MOST_MEMORY`] times stock's, or at most [`MEMORY_ALLOWANCE`] above it. For a
    /// server, the limit also applies to its memory a second after the load.
    Balanced,
}

impl Objective {
    /// Returns its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Objective::Speed => "speed",
            Objective::Memory => "memory",
            Objective::Balanced => "balanced",
        }
    }
}

/// The greatest peak of a balanced choice, relative to stock's.
pub const MOST_MEMORY: f64 = 1.25;
/// The greatest peak of a balanced choice above stock's, in bytes, even if the ratio is exceeded: the extra memory of a
/// small program does not matter.
pub const MEMORY_ALLOWANCE: u64 = 16 << 20;
/// The greatest time of a worthwhile change, relative to stock's.
const WORTH_TIME: f64 = 0.97;
/// The greatest peak of a worthwhile change, relative to stock's.
const WORTH_MEMORY: f64 = 0.95;
/// The greatest time that the objective of memory accepts, relative to stock's.
const MOST_TIME: f64 = 1.05;
/// Arms whose times differ by less than this are equally fast. The one with less memory is chosen.
const AS_FAST: f64 = 1.02;
/// An interval is wide if its ends differ by more than this.
const WIDE: f64 = 1.2;
/// The least number of rounds with which the test can find a difference among several arms.
const ENOUGH: usize = 8;
/// The level of the test, for all arms together.
const LEVEL: f64 = 0.05;

/// The chosen arm, and the reason.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Recommendation {
    /// The arm's name; `stock`: change nothing.
    pub arm: String,
    /// Whether there were too few rounds to choose: `arm` is stock then.
    #[serde(default)]
    pub undecided: bool,
    /// A sentence or two with the figures.
    pub reason: String,
    /// The command that applies it. `None` for stock.
    pub command: Option<String>,
    /// The objective.
    pub objective: Objective,
    /// The arms that no other arm beats in both time and peak memory.
    pub pareto: Vec<String>,
}

impl Recommendation {
    /// Returns the arm to take. `None` if there is no answer yet.
    pub fn chosen(&self) -> Option<&str> {
        (!self.undecided).then_some(&self.arm)
    }
}

/// An arm that may be chosen.
struct Candidate<'r> {
    arm: &'r ArmResult,
    time: Ratio,
    /// The p-value of its difference, corrected for the number of arms.
    corrected: f64,
    /// The peak.
    memory: Option<ArmMemory>,
    /// A server's memory a second after the load.
    idle: Option<ArmMemory>,
}

/// Memory compared with stock's; both are known.
#[derive(Clone, Copy)]
struct ArmMemory {
    /// Relative to stock's.
    ratio: f64,
    bytes: u64,
    stock: u64,
}

impl ArmMemory {
    fn peak(arm: &ArmResult, stock: &ArmResult) -> Option<ArmMemory> {
        let (ratio, bytes) = arm.memory_ratio_to_stock.zip(arm.peak_memory_bytes)?;
        Some(ArmMemory { ratio, bytes, stock: stock.peak_memory_bytes? })
    }

    fn idle(arm: &ArmResult, stock: &ArmResult) -> Option<ArmMemory> {
        let (bytes, stock) = arm.idle_memory_bytes.zip(stock.idle_memory_bytes.filter(|bytes| *bytes > 0))?;
        Some(ArmMemory { ratio: bytes as f64 / stock as f64, bytes, stock })
    }

    /// Whether it is within one of the limits of a balanced choice.
    fn is_acceptable(self) -> bool {
        self.ratio <= MOST_MEMORY || self.bytes <= self.stock.saturating_add(MEMORY_ALLOWANCE)
    }
}

impl std::fmt::Display for ArmMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let megabytes = |bytes| bytes as f64 / 1e6;
        write!(
            f,
            "{:.2} times stock's ({:.1} MB against {:.1} MB)",
            self.ratio,
            megabytes(self.bytes),
            megabytes(self.stock)
        )
    }
}

/// Returns both limits, for `at most {limits}`.
fn limits() -> String {
    format!("{MOST_MEMORY} times stock's or {} MiB above it, whichever is more", MEMORY_ALLOWANCE >> 20)
}

/// Chooses among the arms, the first of which is stock. `None` if no other arm was measured.
pub fn recommend(arms: &[ArmResult], cases: &[CaseResult], objective: Objective) -> Option<Recommendation> {
    let candidates = candidates(arms);
    if candidates.is_empty() {
        return None;
    }
    let chosen = choose(&candidates, objective);
    let rounds = cases.iter().map(|case| case.rounds).min().unwrap_or(0);
    let undecided = chosen.is_none() && objective != Objective::Memory && (1..ENOUGH).contains(&rounds);
    let mut reason = match chosen {
        Some(candidate) => reason_to_take(candidate, &candidates, objective, rounds),
        None if undecided => no_reason(&candidates, rounds),
        None => reason_to_keep(&candidates, cases, objective, rounds),
    };
    if let Some(candidate) = chosen {
        reason.push_str(&latency(&candidate.arm.origin.name, cases));
    }
    if let Some(code) = cases.iter().find_map(|case| case.exit_code.filter(|code| *code != 0)) {
        reason.push_str(&format!(
            " But the program ended with exit code {code} in every run, with stock too: this is of use only if it did \
             its work."
        ));
    }
    Some(Recommendation {
        arm: chosen.map_or("stock", |candidate| candidate.arm.origin.name.as_str()).to_owned(),
        undecided,
        reason,
        command: chosen.and_then(|candidate| candidate.arm.origin.command.clone()),
        objective,
        pareto: pareto(arms),
    })
}

/// Says how the chosen arm's latencies stand to stock's at equal rates. Empty if they were not measured.
fn latency(name: &str, cases: &[CaseResult]) -> String {
    let mut text = String::new();
    for case in cases.iter().filter(|case| !case.rates.is_empty()) {
        let stands = |standing: Standing| {
            figures::places(&case.rates, |rate| {
                rate.arms.iter().any(|arm| arm.name == name && arm.standing == Some(standing))
            })
        };
        let of = if cases.len() > 1 { format!(" of {}", case.title()) } else { String::new() };
        let tail = figures::tail_name(&case.rates);
        match (stands(Standing::Better), stands(Standing::Worse)) {
            (None, None) => {
                text.push_str(&format!(" At equal rates its {tail}{of} shows no certain difference from stock's."))
            }
            (better, worse) => {
                if let Some(better) = better {
                    text.push_str(&format!(" At equal rates it is better than stock by {tail}{of} {better}."));
                }
                if let Some(worse) = worse {
                    text.push_str(&format!(" But at equal rates it is worse than stock by {tail}{of} {worse}."));
                }
            }
        }
    }
    text
}

fn candidates(arms: &[ArmResult]) -> Vec<Candidate<'_>> {
    let measured: Vec<(&ArmResult, Ratio)> = arms
        .iter()
        .skip(1)
        .filter(|arm| arm.origin.eligible && arm.failure.is_none())
        .filter_map(|arm| Some((arm, arm.ratio_to_stock?)))
        .collect();
    let corrected = holm(&measured.iter().map(|(_, time)| time.p_value).collect::<Vec<_>>());
    let candidate = |((arm, time), corrected)| Candidate {
        arm,
        time,
        corrected,
        memory: ArmMemory::peak(arm, &arms[0]),
        idle: ArmMemory::idle(arm, &arms[0]),
    };
    measured.into_iter().zip(corrected).map(candidate).collect()
}

impl Candidate<'_> {
    fn is_faster(&self) -> bool {
        self.time.value <= WORTH_TIME && self.corrected < LEVEL
    }

    /// Whether its memory is within the limits of a balanced choice, at the peak and, for a server, when it is idle.
    fn is_acceptable(&self) -> bool {
        self.memory.is_some_and(ArmMemory::is_acceptable) && self.idle.is_none_or(ArmMemory::is_acceptable)
    }

    /// Returns the memory that is beyond the limits of a balanced choice, for `NAME, but {}`.
    fn unacceptable(&self) -> String {
        match (self.memory, self.idle) {
            (None, _) => "its memory could not be measured".to_owned(),
            (Some(peak), Some(idle)) if peak.is_acceptable() => {
                format!("its memory a second after the load is {idle}")
            }
            (Some(peak), _) => format!("its peak memory is {peak}"),
        }
    }

    /// Compares memory; less comes first, and memory that could not be measured last.
    fn by_memory(one: &&Self, other: &&Self) -> std::cmp::Ordering {
        let memory = |candidate: &Self| candidate.memory.map_or(f64::INFINITY, |memory| memory.ratio);
        memory(one).total_cmp(&memory(other))
    }

    /// Whether its time cannot be distinguished from the other arm's: they differ by little, or one is in the other's
    /// interval.
    fn is_as_fast_as(&self, other: &Self) -> bool {
        let (one, two) = (self.time, other.time);
        let is_within = |value: f64, ratio: Ratio| match (ratio.low, ratio.high) {
            (Some(low), Some(high)) => (low..=high).contains(&value),
            _ => false,
        };
        let (less, more) = (one.value.min(two.value), one.value.max(two.value));
        more <= less * AS_FAST || is_within(one.value, two) || is_within(two.value, one)
    }

    /// Whether its interval is so wide that its time is known roughly only.
    fn is_wide(&self) -> bool {
        matches!((self.time.low, self.time.high), (Some(low), Some(high)) if high > low * WIDE)
    }

    fn by_time(one: &&Self, other: &&Self) -> std::cmp::Ordering {
        one.time.value.total_cmp(&other.time.value)
    }
}

fn choose<'c, 'r>(candidates: &'c [Candidate<'r>], objective: Objective) -> Option<&'c Candidate<'r>> {
    let fits = |candidate: &&Candidate<'_>| match objective {
        Objective::Speed => candidate.is_faster(),
        Objective::Balanced => candidate.is_faster() && candidate.is_acceptable(),
        Objective::Memory => {
            candidate.memory.is_some_and(|memory| memory.ratio <= WORTH_MEMORY) && candidate.time.value <= MOST_TIME
        }
    };
    let fitting: Vec<&Candidate<'_>> = candidates.iter().filter(fits).collect();
    // None of them is certainly faster.
    let as_fast = |candidate: &&&Candidate<'_>| {
        fitting.iter().all(|other| other.time.value >= candidate.time.value || candidate.is_as_fast_as(other))
    };
    let takes_any_time = objective == Objective::Memory;
    fitting.iter().filter(|candidate| takes_any_time || as_fast(candidate)).copied().min_by(Candidate::by_memory)
}

/// Formats as `0.44 (95 % interval 0.42 to 0.46)`.
fn interval(ratio: &Ratio) -> String {
    match (ratio.low, ratio.high) {
        (Some(low), Some(high)) => format!("{:.2} (95 % interval {low:.2} to {high:.2})", ratio.value),
        _ => format!("{:.2} (a single round: no interval)", ratio.value),
    }
}

fn confidence(candidate: &Candidate<'_>, rounds: usize) -> String {
    let p = if candidate.corrected < 0.001 {
        "<\u{a0}0.001".to_owned()
    } else {
        format!("=\u{a0}{:.3}", candidate.corrected)
    };
    let rounds = figures::rounds(rounds);
    format!("{rounds}, p\u{a0}{p} with all arms considered")
}

fn reason_to_take(chosen: &Candidate<'_>, candidates: &[Candidate<'_>], objective: Objective, rounds: usize) -> String {
    let name = &chosen.arm.origin.name;
    let mut text =
        format!("{name} takes {} times stock's time; {}", interval(&chosen.time), confidence(chosen, rounds));
    match chosen.memory {
        Some(memory) => text.push_str(&format!(". Its peak memory is {memory}")),
        None => text.push_str(". Its memory could not be measured"),
    }
    if let Some(idle) = chosen.idle {
        text.push_str(&format!(". A second after the load it holds {idle}"));
    }
    if objective == Objective::Balanced {
        text.push_str(&format!(", and may be at most {}", limits()));
    }
    let others = || candidates.iter().filter(|other| other.arm.origin.name != *name && other.is_faster());
    // Only arms within the limits of memory are alternatives.
    let is_possible = |other: &&Candidate<'_>| objective != Objective::Balanced || other.is_acceptable();
    let alike = others().filter(is_possible).filter(|other| chosen.is_as_fast_as(other)).min_by(Candidate::by_time);
    if let Some(alike) = alike.filter(|alike| objective != Objective::Memory && alike.time.value < chosen.time.value) {
        let memory =
            alike.memory.map_or("memory could not be measured".to_owned(), |memory| format!("peak memory is {memory}"));
        text.push_str(&format!(
            ". Its time cannot be distinguished from that of {}, {}, whose {memory}",
            alike.arm.origin.name,
            interval(&alike.time)
        ));
    }
    let quicker = others().filter(|other| other.time.value < chosen.time.value);
    let quicker =
        quicker.filter(|other| !is_possible(other) || !chosen.is_as_fast_as(other)).min_by(Candidate::by_time);
    match (objective, quicker) {
        (Objective::Balanced, Some(quicker)) => {
            let memory = match quicker.memory {
                Some(_) => format!("but {}, more than that", quicker.unacceptable()),
                None => format!("and {}", quicker.unacceptable()),
            };
            text.push_str(&format!(". {} is faster ({:.2}), {memory}", quicker.arm.origin.name, quicker.time.value));
        }
        (Objective::Memory, Some(quicker)) => {
            text.push_str(&format!(". {} is faster ({:.2})", quicker.arm.origin.name, quicker.time.value));
        }
        _ => {}
    }
    text.push('.');
    if chosen.is_wide() {
        text.push_str(&too_wide(chosen));
    }
    text
}

/// Says that an interval is wide, and how to narrow it.
fn too_wide(candidate: &Candidate<'_>) -> String {
    let Some((low, high)) = candidate.time.low.zip(candidate.time.high) else { return String::new() };
    format!(
        " The interval is wide: it may take anything from {:.0} to {:.0} % of stock's time. A greater `--budget` \
         narrows it.",
        100.0 * low,
        100.0 * high
    )
}

/// Returns the best arm: one that is certainly faster, rather than one that may be faster still by chance.
fn best<'c, 'r>(candidates: &'c [Candidate<'r>]) -> Option<&'c Candidate<'r>> {
    let faster = candidates.iter().filter(|candidate| candidate.is_faster()).min_by(Candidate::by_time);
    faster.or_else(|| candidates.iter().min_by(Candidate::by_time))
}

/// Says why nothing can be chosen yet.
fn no_reason(candidates: &[Candidate<'_>], rounds: usize) -> String {
    let so_far = best(candidates).map(|best| {
        format!(" The best so far is {}: {} times stock's time.", best.arm.origin.name, interval(&best.time))
    });
    format!(
        "That is too little to tell by ({}).{} A greater `--budget` gives an answer.",
        figures::rounds(rounds),
        so_far.unwrap_or_default()
    )
}

fn reason_to_keep(candidates: &[Candidate<'_>], cases: &[CaseResult], objective: Objective, rounds: usize) -> String {
    let best = best(candidates);
    let mut text = "Keep what you have: ".to_owned();
    match (objective, best) {
        (Objective::Memory, _) => {
            let least = candidates.iter().min_by(Candidate::by_memory);
            match least.and_then(|candidate| Some((candidate, candidate.memory?))) {
                Some((least, memory)) => text.push_str(&format!(
                    "nothing saves 5 % of stock's peak memory without costing 5 % more time. The arm with the lowest \
                     peak is {}: {:.2} times stock's memory and {:.2} times its time.",
                    least.arm.origin.name, memory.ratio, least.time.value
                )),
                None => text.push_str("memory could not be measured."),
            }
        }
        (_, Some(best)) if best.is_faster() => {
            let limits = best.memory.map_or(String::new(), |_| format!(", and may be at most {}", limits()));
            let memory = format!("{}{limits}", best.unacceptable());
            text.push_str(&format!(
                "{} is the fastest ({} times stock's time), but {memory}. If that does not matter: `--for speed`.",
                best.arm.origin.name,
                interval(&best.time),
            ));
            return text;
        }
        (_, Some(best)) => text.push_str(&format!(
            "nothing is faster than stock by 3 % or more with confidence. Next comes {}: {} times stock's time; {}.",
            best.arm.origin.name,
            interval(&best.time),
            confidence(best, rounds)
        )),
        (_, None) => {}
    }
    if let (Objective::Speed | Objective::Balanced, Some(best)) = (objective, best.filter(|best| best.is_wide())) {
        text.push_str(&too_wide(best));
    }
    if (1..ENOUGH).contains(&rounds) {
        text.push_str(&format!(" But so few rounds ({rounds}) tell little: give it a greater `--budget`."));
    } else if let Some(noise) = cases.iter().find_map(|case| case.too_noisy.as_ref()) {
        text.push_str(&format!(" But {noise}."));
    }
    text
}

/// Returns the Pareto-optimal arms among the eligible ones, by time and peak memory.
fn pareto(arms: &[ArmResult]) -> Vec<String> {
    let point = |arm: &ArmResult| Some((arm.ratio_to_stock?.value, arm.peak_memory_bytes? as f64));
    let eligible = || arms.iter().filter(|arm| arm.origin.eligible && arm.failure.is_none());
    let beaten = |arm: &ArmResult| {
        point(arm).is_none_or(|(time, memory)| {
            eligible().filter_map(point).any(|(other_time, other_memory)| {
                other_time <= time && other_memory <= memory && (other_time < time || other_memory < memory)
            })
        })
    };
    eligible().filter(|arm| !beaten(arm)).map(|arm| arm.origin.name.clone()).collect()
}

#[cfg(test)]
mod tests;

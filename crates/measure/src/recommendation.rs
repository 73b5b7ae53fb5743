//! The choice of an arm.

use serde::{Deserialize, Serialize};

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
    /// The fastest whose peak is at most [`MOST_MEMORY`] times stock's, or at most [`MEMORY_ALLOWANCE`] above it. Of a
    /// server, this holds for its memory a second after the load, too.
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
/// small program matters to nobody.
pub const MEMORY_ALLOWANCE: u64 = 16 << 20;
/// The greatest time of a worthwhile change, relative to stock's.
const WORTH_TIME: f64 = 0.97;
/// The greatest peak of a worthwhile change, relative to stock's.
const WORTH_MEMORY: f64 = 0.95;
/// The greatest time that the objective of memory accepts, relative to stock's.
const MOST_TIME: f64 = 1.05;
/// Arms whose times differ by less than this are equally fast. The one with less memory is chosen.
const AS_FAST: f64 = 1.02;
/// The least number of rounds with which the test can find a difference among several arms.
const ENOUGH: usize = 8;
/// The level of the test, for all arms together.
const LEVEL: f64 = 0.05;

/// The chosen arm, and the reason.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Recommendation {
    /// The arm's name; `stock`: change nothing.
    pub arm: String,
    /// A sentence or two with the figures.
    pub reason: String,
    /// The command that applies it. `None` for stock.
    pub command: Option<String>,
    /// The objective.
    pub objective: Objective,
    /// The arms that no other arm beats in both time and peak memory.
    pub pareto: Vec<String>,
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
    let reason = match chosen {
        Some(candidate) => reason_to_take(candidate, &candidates, objective, rounds),
        None => reason_to_keep(&candidates, cases, objective, rounds),
    };
    Some(Recommendation {
        arm: chosen.map_or("stock", |candidate| candidate.arm.origin.name.as_str()).to_owned(),
        reason,
        command: chosen.and_then(|candidate| candidate.arm.origin.command.clone()),
        objective,
        pareto: pareto(arms),
    })
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

    /// Whether its memory is within the limits of a balanced choice, at the peak and, of a server, when it is idle.
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
    let fastest = fitting.iter().map(|candidate| candidate.time.value).min_by(f64::total_cmp)?;
    let as_fast = |candidate: &&Candidate<'_>| candidate.time.value <= fastest * AS_FAST;
    let takes_any_time = objective == Objective::Memory;
    fitting.into_iter().filter(|candidate| takes_any_time || as_fast(candidate)).min_by(Candidate::by_memory)
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
    let quicker = candidates.iter().filter(|other| other.is_faster() && other.time.value * AS_FAST < chosen.time.value);
    let quicker = quicker.min_by(Candidate::by_time);
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
    text
}

fn reason_to_keep(candidates: &[Candidate<'_>], cases: &[CaseResult], objective: Objective, rounds: usize) -> String {
    let best = |faster: bool| {
        let those = candidates.iter().filter(move |candidate| candidate.is_faster() || !faster);
        those.min_by(Candidate::by_time)
    };
    // Prefer to mention an arm that is certainly faster, rather than one that may be faster still by chance.
    let best = best(true).or_else(|| best(false));
    let mut text = "Keep what you have: ".to_owned();
    match (objective, best) {
        (Objective::Memory, _) => {
            let least = candidates.iter().min_by(Candidate::by_memory);
            match least.and_then(|candidate| Some((candidate, candidate.memory?))) {
                Some((least, memory)) => text.push_str(&format!(
                    "nothing saves 5 % of stock's peak memory without costing 5 % more time; the least has {} ({:.2} times \
                     stock's memory, {:.2} times its time).",
                    least.arm.origin.name, memory.ratio, least.time.value
                )),
                None => text.push_str("memory could not be measured."),
            }
        }
        (_, Some(best)) if best.is_faster() => {
            let limits = best.memory.map_or(String::new(), |_| format!(", and may be at most {}", limits()));
            let memory = format!("{}{limits}", best.unacceptable());
            text.push_str(&format!(
                "{} is the first of what is faster ({} times stock's time), but {memory}. If that does not matter: `--for speed`.",
                best.arm.origin.name,
                interval(&best.time),
            ));
            return text;
        }
        (_, Some(best)) => text.push_str(&format!(
            "nothing is faster than stock by 3 % or more with confidence. The best is {}: {} times stock's time; {}.",
            best.arm.origin.name,
            interval(&best.time),
            confidence(best, rounds)
        )),
        (_, None) => {}
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
mod tests {
    use super::*;
    use crate::results::Origin;
    use crate::statistics::Method;

    fn bytes(megabytes: f64) -> u64 {
        (megabytes * 1e6) as u64
    }

    /// Returns arms with these peaks in bytes, stock's first. The others take half of stock's time.
    fn of_peaks(peaks: &[Option<u64>]) -> Vec<ArmResult> {
        let stock = peaks[0];
        let arm_of = |(number, peak): (usize, &Option<u64>)| ArmResult {
            peak_memory_bytes: *peak,
            memory_ratio_to_stock: peak.zip(stock).map(|(peak, stock)| peak as f64 / stock as f64),
            ..if number == 0 { arm("stock", 1.0, 1.0, None) } else { arm(&format!("donor {number}"), 0.5, 0.001, None) }
        };
        peaks.iter().enumerate().map(arm_of).collect()
    }

    fn arm(name: &str, time: f64, p_value: f64, memory: Option<f64>) -> ArmResult {
        let stock = name == "stock";
        ArmResult {
            origin: Origin {
                name: name.to_owned(),
                donor: (!stock).then(|| name.to_owned()),
                command: (!stock).then(|| format!("allograft graft libc.a --donor {name}")),
                eligible: name != "glibc",
                ..Origin::default()
            },
            failure: None,
            median_wall_s: Some(time),
            idle_memory_bytes: None,
            processor_ratio_to_stock: None,
            // Stock needs 100 MB, so the allowance does not decide.
            peak_memory_bytes: memory.map(|memory| bytes(memory * 100.0)),
            ratio_to_stock: Some(Ratio {
                value: time,
                low: Some(time * 0.99),
                high: Some(time * 1.01),
                p_value,
                method: Method::SignedRank,
            }),
            memory_ratio_to_stock: memory,
            runs: Vec::new(),
            warm_up: Vec::new(),
            memory_runs: Vec::new(),
        }
    }

    fn arms() -> Vec<ArmResult> {
        vec![
            arm("stock", 1.0, 1.0, Some(1.0)),
            arm("lean", 0.8, 0.001, Some(0.9)),
            arm("fast", 0.5, 0.001, Some(2.0)),
            arm("good", 0.6, 0.001, Some(1.2)),
            arm("as good", 0.595, 0.001, Some(1.24)),
            arm("glibc", 0.3, 0.001, Some(0.5)),
        ]
    }

    #[test]
    fn the_objective_decides() {
        let take = |objective| recommend(&arms(), &[], objective).unwrap();
        assert_eq!(take(Objective::Speed).arm, "fast");
        let balanced = take(Objective::Balanced);
        assert_eq!(
            (balanced.arm.as_str(), balanced.command.as_deref()),
            ("good", Some("allograft graft libc.a --donor good"))
        );
        assert!(balanced.reason.contains("0.60 (95 % interval 0.59 to 0.61)"), "{}", balanced.reason);
        assert!(balanced.reason.contains("fast is faster (0.50)"), "{}", balanced.reason);
        assert_eq!(take(Objective::Memory).arm, "lean");
        assert_eq!(balanced.pareto, ["lean", "fast", "good", "as good"]);
    }

    #[test]
    fn stock_stays_where_nothing_is_better_by_what_counts() {
        let kept = |others: Vec<ArmResult>| {
            let mut arms = vec![arm("stock", 1.0, 1.0, Some(1.0))];
            arms.extend(others);
            recommend(&arms, &[], Objective::Balanced).unwrap()
        };
        // One is certainly faster, but by too little; one by much, but perhaps by chance; one needs too much memory; of
        // one the memory is unknown.
        for other in [
            arm("little", 0.98, 0.0001, Some(1.0)),
            arm("chance", 0.8, 0.2, Some(1.0)),
            arm("hungry", 0.5, 0.0001, Some(1.3)),
            arm("unknown", 0.5, 0.0001, None),
        ] {
            let name = other.origin.name.clone();
            let kept = kept(vec![other]);
            assert_eq!((kept.arm.as_str(), kept.command), ("stock", None), "{name}");
            assert!(kept.reason.starts_with("Keep what you have") && kept.reason.contains(&name), "{}", kept.reason);
        }
        // The reason names the arm that is certainly faster, not the one that may be faster still by chance.
        let told = kept(vec![arm("chance", 0.4, 0.2, Some(1.0)), arm("hungry", 0.5, 0.0001, Some(2.0))]).reason;
        assert!(told.contains("hungry is the first of what is faster (0.50"), "{told}");
        // One of twenty arms is below 5 % by chance.
        let many =
            (0..20).map(|number| arm(&format!("donor {number}"), 0.9, if number == 0 { 0.04 } else { 0.5 }, Some(1.0)));
        assert_eq!(kept(many.collect()).arm, "stock");
        assert!(recommend(&arms()[..1], &[], Objective::Speed).is_none());
    }

    /// Regression test: 16 MiB more than stock are acceptable, whatever multiple of a small program's memory they are.
    #[test]
    fn memory_may_grow_by_a_quarter_or_by_an_allowance() {
        let take = |peaks: &[Option<u64>]| {
            let taken = recommend(&of_peaks(peaks), &[], Objective::Balanced).unwrap();
            (taken.arm, taken.reason)
        };
        let stock = 2_000_000;
        let most = stock + MEMORY_ALLOWANCE;
        let (arm, reason) = take(&[Some(stock), Some(most)]);
        assert_eq!(arm, "donor 1", "{reason}");
        let (arm, reason) = take(&[Some(stock), Some(most + 1)]);
        assert_eq!(arm, "stock", "{reason}");
        let told = "its peak memory is 9.39 times stock's (18.8 MB against 2.0 MB), and may be at most 1.25 times stock's or 16 MiB \
                    above it, whichever is more";
        assert!(reason.contains(told) && reason.contains("`--for speed`"), "{reason}");
        // For a large program the quarter is more than that.
        let (large, quarter) = (400_000_000, 500_000_000);
        assert_eq!(take(&[Some(large), Some(quarter)]).0, "donor 1");
        assert_eq!(take(&[Some(large), Some(quarter + 1)]).0, "stock");
        // Of two equally fast arms, the one that needs less memory. An arm with unknown memory is not chosen.
        assert_eq!(take(&[Some(stock), Some(stock * 4), Some(stock * 2), None]).0, "donor 2");
        for unknown in [&[Some(stock), None][..], &[None, Some(stock)], &[None, None]] {
            let (arm, reason) = take(unknown);
            assert_eq!(arm, "stock");
            assert!(reason.contains("but its memory could not be measured"), "{reason}");
        }
        let mut chance = of_peaks(&[Some(stock), Some(stock)]);
        chance[1].ratio_to_stock = chance[1].ratio_to_stock.map(|ratio| Ratio { p_value: 0.3, ..ratio });
        let kept = recommend(&chance, &[], Objective::Balanced).unwrap();
        assert!(kept.arm == "stock" && kept.reason.contains("nothing is faster than stock by 3 %"), "{}", kept.reason);
    }

    /// What a server keeps when nobody asks it anything is paid for all day.
    #[test]
    fn idle_memory_of_a_server_counts_beside_its_peak() {
        let idle = |arms: Vec<ArmResult>, bytes: [u64; 2]| -> Vec<ArmResult> {
            let of = |(arm, bytes)| ArmResult { idle_memory_bytes: Some(bytes), ..arm };
            arms.into_iter().zip(bytes).map(of).collect()
        };
        let peaks = || of_peaks(&[Some(200_000_000), Some(210_000_000)]);
        let kept = recommend(&idle(peaks(), [4_000_000, 180_000_000]), &[], Objective::Balanced).unwrap();
        assert_eq!(kept.arm, "stock", "{}", kept.reason);
        let told = "its memory a second after the load is 45.00 times stock's (180.0 MB against 4.0 MB), and may be at most 1.25";
        assert!(kept.reason.contains(told), "{}", kept.reason);
        let taken = recommend(&idle(peaks(), [4_000_000, 20_000_000]), &[], Objective::Balanced).unwrap();
        assert_eq!(taken.arm, "donor 1", "{}", taken.reason);
        assert!(taken.reason.contains("A second after the load it holds 5.00 times stock's"), "{}", taken.reason);
        let speed = recommend(&idle(peaks(), [4_000_000, 180_000_000]), &[], Objective::Speed).unwrap();
        assert_eq!(speed.arm, "donor 1", "speed alone does not ask for memory");
    }

    /// Regression test, from a measured server: two megabytes more than stock's were once a reason to stay seven times
    /// as slow.
    #[test]
    fn a_small_server_is_not_kept_from_the_cure() {
        let measured = |name: &str, time: f64, low: f64, high: f64, megabytes: f64| ArmResult {
            peak_memory_bytes: Some(bytes(megabytes)),
            memory_ratio_to_stock: Some(megabytes / 2.0),
            ratio_to_stock: Some(Ratio {
                value: time,
                low: Some(low),
                high: Some(high),
                p_value: 0.001,
                method: Method::SignedRank,
            }),
            ..arm(name, time, 0.001, None)
        };
        let stock = measured("stock", 1.0, 1.0, 1.0, 2.0);
        let mimalloc = measured("mimalloc", 0.14, 0.11, 0.17, 7.6);
        let others = [measured("jemalloc", 0.16, 0.13, 0.19, 2.8), measured("glibc", 0.23, 0.2, 0.26, 4.6)];
        let arms: Vec<ArmResult> = [stock, mimalloc].into_iter().chain(others).collect();
        let taken = recommend(&arms, &[], Objective::Balanced).unwrap();
        assert_eq!(taken.arm, "mimalloc", "{}", taken.reason);
        for told in [
            "0.14 (95 % interval 0.11 to 0.17) times stock's time",
            "Its peak memory is 3.80 times stock's (7.6 MB against 2.0 MB)",
            "at most 1.25 times stock's or 16 MiB above it",
        ] {
            assert!(taken.reason.contains(told), "`{told}` is missing in: {}", taken.reason);
        }
    }
}

//! One comparison: its plan, its results, and the reason for its end.

mod comparison;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::case::Case;
use crate::executor::{Calls, Clock, End, Executor, Figures, Memory, RunError, Status};
use crate::statistics::Target;

pub use comparison::{Comparison, Need, Until};

/// The amount of measuring.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Plan {
    /// The seed of the random order of runs.
    pub seed: u64,
    /// The least number of rounds, unless the budget is spent before.
    pub least_rounds: usize,
    /// The greatest number of rounds.
    pub most_rounds: usize,
    /// The time for everything. No round but the first begins if it would probably end later. Several comparisons share
    /// it.
    #[serde(rename = "budget_s", with = "in_seconds")]
    pub budget: Duration,
    /// The wanted half width of intervals: 0.01 is about 1 %.
    pub precision: f64,
    /// The half width that is enough for a large difference, as a share of the difference's logarithm. 0: every
    /// interval has to be as narrow as `precision` says.
    #[serde(default = "a_tenth", skip_serializing_if = "is_a_tenth")]
    pub of_the_difference: f64,
    /// The number of runs of each arm before those that count. At least one is made, to check its output and read its
    /// memory.
    pub warm_up: usize,
    /// The number of runs of each arm that measure memory.
    pub memory_runs: usize,
    /// Whether system calls are counted.
    pub count_calls: bool,
    /// Whether all arms must print the same.
    pub compare_output: bool,
}

fn a_tenth() -> f64 {
    0.1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_a_tenth(share: &f64) -> bool {
    (share - a_tenth()).abs() < f64::EPSILON
}

/// The least number of rounds at a rate: with fewer, the signed-rank test cannot find a difference.
const LEAST_AT_A_RATE: usize = 6;
/// The greatest number of rounds at a rate.
const MOST_AT_A_RATE: usize = 60;
/// The wanted half width of the intervals of latencies, relative to that of times: they vary far more.
const OF_LATENCIES: f64 = 5.0;

impl Plan {
    /// Returns the plan for the latencies at a rate. The checks, and the runs for memory, are those at full load.
    #[must_use]
    pub fn at_a_rate(&self) -> Plan {
        Plan {
            least_rounds: LEAST_AT_A_RATE.min(self.most_rounds),
            most_rounds: MOST_AT_A_RATE.min(self.most_rounds),
            precision: self.precision * OF_LATENCIES,
            memory_runs: 0,
            count_calls: false,
            ..self.clone()
        }
    }

    /// The wanted width of intervals.
    pub fn target(&self) -> Target {
        Target { precision: self.precision, of_the_difference: self.of_the_difference }
    }
}

mod in_seconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(duration.as_secs_f64())
    }

    pub(super) fn deserialize<'d, D: Deserializer<'d>>(deserializer: D) -> Result<Duration, D::Error> {
        Duration::try_from_secs_f64(f64::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

impl Default for Plan {
    fn default() -> Self {
        Plan {
            seed: 0,
            least_rounds: 10,
            most_rounds: 400,
            budget: Duration::from_secs(300),
            precision: 0.01,
            of_the_difference: a_tenth(),
            warm_up: 1,
            memory_runs: 3,
            count_calls: true,
            compare_output: true,
        }
    }
}

/// The environment of a session.
pub struct Tools<'t> {
    /// Runs the arms.
    pub executor: &'t mut dyn Executor,
    /// Tells the time for the budget.
    pub clock: &'t dyn Clock,
    /// Receives reports of progress.
    pub observer: &'t mut dyn FnMut(Progress<'_>),
    /// Whether the user wants it to end.
    pub interrupted: &'t dyn Fn() -> bool,
}

/// The current activity.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Progress<'p> {
    /// The first runs of this arm.
    Checking(&'p str),
    /// Memory runs of this arm.
    Memory(&'p str),
    /// Runs of this arm that count system calls.
    Calls(&'p str),
    /// Runs of this arm that find a rate which it does not reach.
    Capacity(&'p str),
    /// A timed round at a rate of requests per second.
    AtRate {
        /// The rate.
        rate: u64,
        /// The round's number, from 1 on.
        round: usize,
    },
    /// A timed round.
    Round {
        /// The round's number, from 1 on.
        round: usize,
        /// The longest time left, if it is known.
        left: Option<Duration>,
    },
}

/// The measurements of one arm. Those that could not be made are absent.
#[derive(Debug, Clone, Default)]
pub struct ArmRuns {
    /// The reason why it is excluded.
    pub failure: Option<String>,
    /// The runs that do not count.
    pub warm_up: Vec<Figures>,
    /// The timed runs.
    pub runs: Vec<Run>,
    /// The runs that measured memory.
    pub memory: Vec<Memory>,
    /// The reason why memory was not measured.
    pub no_memory: Option<String>,
    /// The run that counted system calls.
    pub calls: Option<Calls>,
    /// The reason why they were not counted.
    pub no_calls: Option<String>,
}

/// A timed run that counts.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The round's number, from 0 on. Runs of the same round are compared with each other.
    pub round: usize,
    /// Its place in the round, from 0 on.
    pub position: usize,
    /// Its figures.
    #[serde(flatten)]
    pub figures: Figures,
}

/// The result of a comparison.
#[derive(Debug, Clone)]
pub struct Session {
    /// The arms, in the order of the case.
    pub arms: Vec<ArmRuns>,
    /// The end and the output of the first arm, which all runs had to repeat. `None` for servers, which we end.
    pub end: Option<End>,
    /// The reason for its end.
    pub stopped: Stopped,
}

/// The reason why a comparison ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stopped {
    /// The intervals are narrow enough.
    Narrow,
    /// The next round would not have fitted into the budget.
    Budget,
    /// The greatest number of rounds is reached.
    Rounds,
    /// The user ended it.
    Interrupted,
    /// The first arm failed in a round.
    Failed,
}

/// The reason why a comparison is impossible.
#[derive(Debug, Error)]
pub enum SessionError {
    /// The first arm cannot be run.
    #[error("{arm}: {source}")]
    Run {
        /// Its name.
        arm: String,
        /// The error.
        source: RunError,
    },
    /// A signal ends the first arm.
    #[error("{arm} ends with {status}{}", complained(.complaint))]
    Fails {
        /// Its name.
        arm: String,
        /// The way in which it ended.
        status: Status,
        /// The end of its standard error.
        complaint: String,
    },
    /// The first arm ends differently each time.
    #[error("{arm} does not end the same way twice: with {first}, then with {second}{}", complained(.complaint))]
    Changing {
        /// Its name.
        arm: String,
        /// The way in which it ended the first time.
        first: Status,
        /// The way in which it ended the second time.
        second: Status,
        /// The end of its standard error, the second time.
        complaint: String,
    },
    /// The first arm prints something different each time.
    #[error("{arm} does not print the same twice: `{first}`, then `{second}`")]
    Unsteady {
        /// Its name.
        arm: String,
        /// The beginning of its output.
        first: String,
        /// The beginning of its output the second time.
        second: String,
    },
}

fn complained(complaint: &str) -> String {
    if complaint.is_empty() { String::new() } else { format!(": {complaint}") }
}

/// Compares the arms of `case` within the budget of `plan`.
///
/// # Errors
/// The first arm cannot be measured. A later arm that ends differently from the first, or prints something different,
/// is only excluded.
pub fn compare(case: &Case, plan: &Plan, tools: &mut Tools<'_>) -> Result<Session, SessionError> {
    let until = tools.clock.now() + plan.budget;
    let mut comparison = Comparison::new(case, plan.clone());
    comparison.open(None, tools)?;
    comparison.go_on(Until { aim: until, end: None }, tools);
    Ok(comparison.finish())
}

/// Returns the comparison that gets the next round of a shared budget. Comparisons with too few rounds come first, the
/// one with the least time so far before the others; then the one that needs the least time to become precise, so that
/// as many as possible become precise. `needs`: for each comparison, `None` if it needs no more rounds.
pub fn neediest(needs: &[Option<Need>]) -> Option<usize> {
    let needing = || needs.iter().enumerate().filter_map(|(at, need)| Some((at, need.as_ref()?)));
    let begun = needing().filter(|(_, need)| need.is_basic).min_by_key(|(_, need)| need.spent);
    begun.or_else(|| needing().min_by_key(|(_, need)| need.left)).map(|(at, _)| at)
}

/// Returns the logarithms of the ratios of runs in the same rounds: of the time; for a server, of the time per request.
pub fn log_ratios(runs: &[Run], to: &[Run]) -> Vec<f64> {
    paired_logs(runs, to, |figures| Some(figures.cost()))
}

/// Returns the ratios of the program's processor time, or of a server's per request. A run without a figure is left
/// out.
pub fn processor_log_ratios(runs: &[Run], to: &[Run]) -> Vec<f64> {
    paired_logs(runs, to, Figures::processor_cost)
}

/// Returns the ratios of any figure of runs in the same rounds. A run without the figure is left out.
pub(crate) fn paired_logs(runs: &[Run], to: &[Run], figure: impl Fn(&Figures) -> Option<f64>) -> Vec<f64> {
    let mut ratios = Vec::with_capacity(runs.len());
    let mut others = to.iter().peekable();
    for run in runs {
        while others.next_if(|other| other.round < run.round).is_some() {}
        if let Some(other) = others.next_if(|other| other.round == run.round) {
            let both = figure(&run.figures).zip(figure(&other.figures));
            ratios.extend(both.map(|(one, other)| (one / other).ln()));
        }
    }
    ratios
}

#[cfg(test)]
mod trials;

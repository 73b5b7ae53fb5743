//! One comparison: how much is measured, what comes of it, and why it ended.

mod comparison;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::case::Case;
use crate::executor::{Calls, Clock, End, Executor, Figures, Memory, RunError, Status};

pub use comparison::{Comparison, Until};

/// How much to measure.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Plan {
    /// What the order of runs is drawn with.
    pub seed: u64,
    /// Rounds before which it does not stop, unless the budget is spent.
    pub least_rounds: usize,
    /// Rounds after which it stops.
    pub most_rounds: usize,
    /// Time for everything. A round that would probably end later is not begun, but for the first. Of several
    /// comparisons: for all of them together.
    #[serde(rename = "budget_s", with = "in_seconds")]
    pub budget: Duration,
    /// The half width that intervals should have: 0.01 is about 1 %.
    pub precision: f64,
    /// Runs before those that count, for each arm; one at least, in which its answer is checked, and its memory read.
    pub warm_up: usize,
    /// Runs for memory, for each arm.
    pub memory_runs: usize,
    /// Whether system calls are counted.
    pub count_calls: bool,
    /// Whether all arms have to print the same.
    pub compare_output: bool,
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
            warm_up: 1,
            memory_runs: 3,
            count_calls: true,
            compare_output: true,
        }
    }
}

/// What a session works with.
pub struct Tools<'t> {
    /// Runs the arms.
    pub executor: &'t mut dyn Executor,
    /// Tells the time for the budget.
    pub clock: &'t dyn Clock,
    /// Hears what is being done.
    pub observer: &'t mut dyn FnMut(Progress<'_>),
    /// Whether somebody wants it to end.
    pub interrupted: &'t dyn Fn() -> bool,
}

/// What is being done.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Progress<'p> {
    /// Its first runs.
    Checking(&'p str),
    /// Runs for memory.
    Memory(&'p str),
    /// Runs that count system calls.
    Calls(&'p str),
    /// A timed round.
    Round {
        /// From 1 on.
        round: usize,
        /// At most so long, if it is known.
        left: Option<Duration>,
    },
}

/// What was measured of one arm. What could not be measured is not there.
#[derive(Debug, Clone, Default)]
pub struct ArmRuns {
    /// Why it is out of the comparison.
    pub failure: Option<String>,
    /// Runs that do not count.
    pub warm_up: Vec<Figures>,
    /// Runs that do.
    pub runs: Vec<Run>,
    /// Runs of their own.
    pub memory: Vec<Memory>,
    /// Why there are none.
    pub no_memory: Option<String>,
    /// A run of its own.
    pub calls: Option<Calls>,
    /// Why there is none.
    pub no_calls: Option<String>,
}

/// A timed run that counts.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// From 0 on. Runs of the same round are compared with each other.
    pub round: usize,
    /// Its place in the round, from 0 on.
    pub position: usize,
    /// What it took.
    #[serde(flatten)]
    pub figures: Figures,
}

/// A comparison as it came out.
#[derive(Debug, Clone)]
pub struct Session {
    /// In the order of the case's arms.
    pub arms: Vec<ArmRuns>,
    /// How the first arm ended when its answer was kept, and what it said: what all runs repeated. Nothing for servers,
    /// which are ended.
    pub end: Option<End>,
    /// Why it ended.
    pub stopped: Stopped,
}

/// Why a comparison ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stopped {
    /// The intervals are narrow enough.
    Narrow,
    /// The next round would not have fitted into the budget.
    Budget,
    /// There are as many rounds as there may be.
    Rounds,
    /// Somebody wanted it to.
    Interrupted,
    /// The first arm failed in a round.
    Failed,
}

/// Why there is nothing to compare with.
#[derive(Debug, Error)]
pub enum SessionError {
    /// The first arm does not run.
    #[error("{arm}: {source}")]
    Run {
        /// Its name.
        arm: String,
        /// Why.
        source: RunError,
    },
    /// A signal ends the first arm.
    #[error("{arm} ends with {status}{}", complained(.complaint))]
    Fails {
        /// Its name.
        arm: String,
        /// How it ends.
        status: Status,
        /// What it says.
        complaint: String,
    },
    /// The first arm ends otherwise each time.
    #[error("{arm} does not end the same way twice: with {first}, then with {second}{}", complained(.complaint))]
    Changing {
        /// Its name.
        arm: String,
        /// How it ended.
        first: Status,
        /// How it ended the second time.
        second: Status,
        /// What it said then.
        complaint: String,
    },
    /// The first arm prints something else each time.
    #[error("{arm} does not print the same twice: `{first}`, then `{second}`")]
    Unsteady {
        /// Its name.
        arm: String,
        /// What it printed.
        first: String,
        /// What it printed the second time.
        second: String,
    },
}

fn complained(complaint: &str) -> String {
    if complaint.is_empty() { String::new() } else { format!(": {complaint}") }
}

/// Compares the arms of `case`, as long as the budget of `plan` lasts.
///
/// # Errors
/// When the first arm cannot be measured. Another one that ends otherwise than the first, or prints something else, is
/// taken out.
pub fn compare(case: &Case, plan: &Plan, tools: &mut Tools<'_>) -> Result<Session, SessionError> {
    let until = tools.clock.now() + plan.budget;
    let mut comparison = Comparison::new(case, plan.clone());
    comparison.open(None, tools)?;
    comparison.go_on(Until { aim: until, end: None }, tools);
    Ok(comparison.finish())
}

/// Logarithms of the ratios of runs in the same rounds.
pub fn log_ratios(runs: &[Run], to: &[Run]) -> Vec<f64> {
    let mut ratios = Vec::with_capacity(runs.len());
    let mut others = to.iter().peekable();
    for run in runs {
        while others.next_if(|other| other.round < run.round).is_some() {}
        if let Some(other) = others.next_if(|other| other.round == run.round) {
            ratios.push((run.figures.cost() / other.figures.cost()).ln());
        }
    }
    ratios
}

#[cfg(test)]
mod trials;

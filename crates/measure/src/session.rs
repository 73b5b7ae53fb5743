//! One comparison: checks, runs for memory and system calls, then timed rounds until enough is known.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::case::Case;
use crate::executor::{Calls, Clock, End, Executor, Figures, Memory, RunError, Status};
use crate::statistics::{median, narrow_enough, rounds_needed};

/// How much to measure.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Plan {
    /// What the order of runs is drawn with.
    pub seed: u64,
    /// Rounds before which it does not stop, unless the budget is spent.
    pub least_rounds: usize,
    /// Rounds after which it stops.
    pub most_rounds: usize,
    /// Time for everything. A round that would probably end later is not begun, but for the first.
    #[serde(rename = "budget_s", with = "in_seconds")]
    pub budget: Duration,
    /// The half width that intervals should have: 0.01 is about 1 %.
    pub precision: f64,
    /// Runs before those that count, for each arm; one at least, in which its answer is checked.
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
    /// The first arm fails.
    #[error("{arm} ends with {status}{}", complained(.complaint))]
    Fails {
        /// Its name.
        arm: String,
        /// How it ends.
        status: Status,
        /// What it says.
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

/// An arm other than the first may take so many times as long as that one, and so much more, before it is ended.
const PATIENCE: (u32, Duration) = (20, Duration::from_secs(30));
/// System calls are counted only where so many rounds fit into the budget.
const ROUNDS_FOR_CALLS: f64 = 12.0;
/// Nothing runs for longer than this.
const FOREVER: Duration = Duration::from_secs(24 * 3600);

/// Compares the arms of `case`.
///
/// # Errors
/// When the first arm cannot be measured. Another one that fails, or prints something else than the first, is taken out.
pub fn compare(case: &Case, plan: &Plan, tools: &mut Tools<'_>) -> Result<Session, SessionError> {
    let started = tools.clock.now();
    let mut under_way = UnderWay {
        case,
        plan,
        arms: case.arms.iter().map(|arm| ArmRuns { failure: arm.broken.clone(), ..ArmRuns::default() }).collect(),
        limit: FOREVER,
        expected: None,
        random: fastrand::Rng::with_seed(plan.seed),
        deadline: started + plan.budget,
    };
    let stopped = match under_way.check(tools) {
        Err(SessionError::Run { source: RunError::Interrupted, .. }) => Stopped::Interrupted,
        Err(error) => return Err(error),
        Ok(()) if (tools.interrupted)() => Stopped::Interrupted,
        Ok(()) => {
            under_way.memory(tools);
            under_way.calls(tools);
            under_way.rounds(tools)
        }
    };
    Ok(Session { arms: under_way.arms, stopped })
}

struct UnderWay<'s> {
    case: &'s Case,
    plan: &'s Plan,
    arms: Vec<ArmRuns>,
    limit: Duration,
    expected: Option<End>,
    random: fastrand::Rng,
    deadline: Duration,
}

impl UnderWay<'_> {
    fn name(&self, arm: usize) -> &str {
        &self.case.arms[arm].name
    }

    /// The arms that are still in the comparison, in random order.
    fn order(&mut self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.arms.len()).filter(|arm| self.arms[*arm].failure.is_none()).collect();
        self.random.shuffle(&mut order);
        order
    }

    /// Runs every arm for the first time, the first one twice, and compares what they say.
    fn check(&mut self, tools: &mut Tools<'_>) -> Result<(), SessionError> {
        let first = self.check_first(tools)?;
        self.expected = Some(first);
        let others: Vec<usize> = self.order().into_iter().filter(|arm| *arm != 0).collect();
        for arm in others {
            for _ in 0..self.plan.warm_up.max(1) {
                if (tools.interrupted)() || self.arms[arm].failure.is_some() {
                    break;
                }
                (tools.observer)(Progress::Checking(self.name(arm)));
                if let Some(figures) = self.timed(arm, tools) {
                    self.arms[arm].warm_up.push(figures);
                }
            }
        }
        Ok(())
    }

    fn check_first(&mut self, tools: &mut Tools<'_>) -> Result<End, SessionError> {
        let mut expected: Option<End> = None;
        for _ in 0..self.plan.warm_up.max(2) {
            let arm = self.name(0).to_owned();
            (tools.observer)(Progress::Checking(&arm));
            let run = tools.executor.time(&self.case.arms[0].invocation, FOREVER);
            let run = run.map_err(|source| SessionError::Run { arm: arm.clone(), source })?;
            if run.end.status != Status::Exit(0) {
                let End { status, complaint, .. } = run.end;
                return Err(SessionError::Fails { arm, status, complaint });
            }
            if let Some(first) = &expected
                && self.plan.compare_output
                && first.digest != run.end.digest
            {
                return Err(SessionError::Unsteady { arm, first: first.head.clone(), second: run.end.head });
            }
            self.arms[0].warm_up.push(run.figures);
            expected.get_or_insert(run.end);
        }
        let slowest = self.arms[0].warm_up.iter().map(|figures| figures.wall_s).fold(0.0, f64::max);
        self.limit = Duration::from_secs_f64(slowest) * PATIENCE.0 + PATIENCE.1;
        expected.ok_or(SessionError::Run { arm: self.name(0).to_owned(), source: RunError::Interrupted })
    }

    /// One run of an arm. One that fails is taken out, with the reason.
    fn timed(&mut self, arm: usize, tools: &mut Tools<'_>) -> Option<Figures> {
        let failure = match tools.executor.time(&self.case.arms[arm].invocation, self.limit) {
            Ok(run) => match self.wrong(&run.end) {
                None => return Some(run.figures),
                Some(wrong) => wrong,
            },
            Err(RunError::Interrupted) => return None,
            Err(error) => error.to_string(),
        };
        // Ctrl-C may reach the program before it reaches us.
        if !(tools.interrupted)() {
            self.arms[arm].failure = Some(failure);
        }
        None
    }

    fn wrong(&self, end: &End) -> Option<String> {
        let expected = self.expected.as_ref()?;
        if end.status != expected.status {
            return Some(format!("ends with {}{}", end.status, complained(&end.complaint)));
        }
        let same = !self.plan.compare_output || end.digest == expected.digest;
        (!same).then(|| format!("prints `{}`, and {} prints `{}`", end.head, self.name(0), expected.head))
    }

    /// How often a round fits into what is left of the budget.
    fn rounds_left(&self, tools: &Tools<'_>) -> f64 {
        let each = self.round_time(0, Duration::ZERO).as_secs_f64();
        let left = self.deadline.saturating_sub(tools.clock.now()).as_secs_f64();
        if each > 0.0 { left / each } else { f64::INFINITY }
    }

    /// Up to a quarter of the budget; once in any case, since without memory there is no balanced choice.
    fn memory(&mut self, tools: &mut Tools<'_>) {
        let share = self.rounds_left(tools) / 4.0;
        let fitting = (1..=self.plan.memory_runs).rev().find(|runs| to_f64(*runs) <= share);
        let runs = fitting.unwrap_or(1).min(self.plan.memory_runs);
        for _ in 0..runs {
            for arm in self.order() {
                if (tools.interrupted)() {
                    return;
                }
                if self.arms[arm].no_memory.is_some() {
                    continue;
                }
                (tools.observer)(Progress::Memory(self.name(arm)));
                match tools.executor.memory(&self.case.arms[arm].invocation, self.limit) {
                    Ok(memory) => self.arms[arm].memory.push(memory),
                    Err(RunError::Interrupted) => return,
                    Err(error) => self.arms[arm].no_memory = Some(error.to_string()),
                }
            }
        }
    }

    /// Counting costs a stop for each call; where there are millions, a part of the program has to do.
    fn calls(&mut self, tools: &mut Tools<'_>) {
        if !self.plan.count_calls {
            return;
        }
        if self.rounds_left(tools) < ROUNDS_FOR_CALLS {
            let reason = "the budget is short, and time and memory come first";
            for arm in self.arms.iter_mut().filter(|arm| arm.failure.is_none()) {
                arm.no_calls = Some(reason.to_owned());
            }
            return;
        }
        let count = u32::try_from(self.arms.len().max(1)).unwrap_or(u32::MAX);
        let limit = (self.plan.budget / 10 / count).clamp(Duration::from_secs(1), Duration::from_secs(20));
        for arm in self.order() {
            if (tools.interrupted)() {
                return;
            }
            (tools.observer)(Progress::Calls(self.name(arm)));
            match tools.executor.calls(&self.case.arms[arm].invocation, limit) {
                Ok(calls) => self.arms[arm].calls = Some(calls),
                Err(RunError::Interrupted) => return,
                Err(error) => self.arms[arm].no_calls = Some(error.to_string()),
            }
        }
    }

    fn rounds(&mut self, tools: &mut Tools<'_>) -> Stopped {
        let began = tools.clock.now();
        for round in 0..self.plan.most_rounds {
            let now = tools.clock.now();
            let each = self.round_time(round, now.saturating_sub(began));
            if round > 0 && now + each > self.deadline {
                return Stopped::Budget;
            }
            let logs = self.log_ratios();
            if round >= self.plan.least_rounds && narrow_enough(&logs, self.plan.precision) {
                return Stopped::Narrow;
            }
            let needed = rounds_needed(&logs, self.plan.precision);
            let needed =
                needed.map(|needed| needed.clamp(to_f64(self.plan.least_rounds), to_f64(self.plan.most_rounds)));
            let expected = needed.map(|needed| each.mul_f64((needed - to_f64(round)).max(1.0)));
            let left = expected.unwrap_or(Duration::MAX).min(self.deadline.saturating_sub(now));
            (tools.observer)(Progress::Round { round: round + 1, left: Some(left) });
            if !self.round(round, tools) {
                return Stopped::Interrupted;
            }
            if self.arms[0].failure.is_some() {
                return Stopped::Failed;
            }
        }
        Stopped::Rounds
    }

    /// Says no when it was interrupted: a round counts whole or not at all.
    fn round(&mut self, round: usize, tools: &mut Tools<'_>) -> bool {
        let mut done = Vec::new();
        for (position, arm) in self.order().into_iter().enumerate() {
            if (tools.interrupted)() {
                return false;
            }
            match self.timed(arm, tools) {
                Some(figures) => done.push((arm, Run { round, position, figures })),
                None if self.arms[arm].failure.is_some() => {}
                None => return false,
            }
        }
        for (arm, run) in done {
            self.arms[arm].runs.push(run);
        }
        true
    }

    /// How long a round takes, by those before or by the runs before the first.
    fn round_time(&self, rounds: usize, spent: Duration) -> Duration {
        if let Ok(rounds @ 1..) = u32::try_from(rounds) {
            return spent / rounds;
        }
        let runs = self.arms.iter().filter(|arm| arm.failure.is_none());
        let each = runs.filter_map(|arm| arm.warm_up.last()).map(|figures| figures.wall_s);
        Duration::from_secs_f64(each.sum())
    }

    fn log_ratios(&self) -> Vec<Vec<f64>> {
        let in_it = self.arms.iter().skip(1).filter(|arm| arm.failure.is_none());
        let of_arms: Vec<Vec<f64>> = in_it.map(|arm| log_ratios(&arm.runs, &self.arms[0].runs)).collect();
        if !of_arms.is_empty() {
            return of_arms;
        }
        // Nothing to compare with: its own spread.
        let costs: Vec<f64> = self.arms[0].runs.iter().map(|run| run.figures.cost()).collect();
        let middle = median(&costs);
        vec![costs.iter().map(|cost| (cost / middle).ln()).collect()]
    }
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

#[allow(clippy::cast_precision_loss, reason = "a number of runs")]
fn to_f64(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod trials;

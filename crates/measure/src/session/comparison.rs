//! Checks, runs for memory and system calls, then timed rounds until the intervals are narrow enough.
//!
//! There are two phases, so that several comparisons can share a budget: [`Comparison::open`] makes the minimum of
//! measurements, [`Comparison::go_on`] makes the result more precise.

use std::time::Duration;

use super::{ArmRuns, Plan, Progress, Run, Session, SessionError, Stopped, Tools, complained, paired_logs};
use crate::case::Case;
use crate::executor::{CallsRun, End, Figures, MemoryRun, RunError, Status};
use crate::statistics::{median, narrow_enough, rounds_needed};

/// The limit for an arm other than the first: this many times the first arm's time, plus this time.
const PATIENCE: (u32, Duration) = (20, Duration::from_secs(30));
/// The least number of rounds that must fit into the budget for system calls to be counted.
const ROUNDS_FOR_CALLS: f64 = 12.0;
/// The limit for any run.
const FOREVER: Duration = Duration::from_secs(24 * 3600);

/// The deadlines of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Until {
    /// No round begins that would probably end later.
    pub aim: Duration,
    /// A run that lasts until then is ended, and its round does not count.
    pub end: Option<Duration>,
}

/// The rounds that a comparison still needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Need {
    /// Whether it has not even the least number of rounds.
    pub is_basic: bool,
    /// The time that its rounds have taken.
    pub spent: Duration,
    /// The time of the next round.
    pub next: Duration,
    /// The time until it is precise, by an estimate from its rounds so far.
    pub left: Duration,
}

/// The figure by which runs are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Figure {
    /// The time; for a server, the time per request.
    Cost,
    /// The latency of a server at a rate. A run that did not reach the rate has none.
    Latency,
}

impl Figure {
    fn get(self, figures: &Figures) -> Option<f64> {
        match self {
            Figure::Cost => Some(figures.cost()),
            Figure::Latency => figures.latency_ms(),
        }
    }
}

/// A comparison in progress.
#[derive(Debug)]
pub struct Comparison<'s> {
    case: &'s Case,
    plan: Plan,
    figure: Figure,
    arms: Vec<ArmRuns>,
    /// The duration of the last run of each arm, in seconds.
    lasted: Vec<f64>,
    /// The limit for a run.
    limit: Duration,
    /// The time at which everything has to end.
    end: Option<Duration>,
    expected: Option<End>,
    random: fastrand::Rng,
    rounds: usize,
    in_rounds: Duration,
    stopped: Stopped,
}

impl<'s> Comparison<'s> {
    /// Returns a comparison before its first run. The budget of `plan` is not used: the caller passes deadlines to each
    /// phase.
    pub fn new(case: &'s Case, plan: Plan) -> Comparison<'s> {
        Comparison {
            case,
            figure: Figure::Cost,
            arms: case.arms.iter().map(|arm| ArmRuns { failure: arm.broken.clone(), ..ArmRuns::default() }).collect(),
            lasted: vec![0.0; case.arms.len()],
            limit: FOREVER,
            end: None,
            expected: None,
            random: fastrand::Rng::with_seed(plan.seed),
            rounds: 0,
            in_rounds: Duration::ZERO,
            stopped: Stopped::Budget,
            plan,
        }
    }

    /// Returns a comparison of latencies at the rate of the case's load. Its arms have been checked at full load, with
    /// no rate, so it begins with the first round. No run takes longer than `limit`.
    pub fn at_a_rate(case: &'s Case, plan: Plan, limit: Duration) -> Comparison<'s> {
        Comparison { figure: Figure::Latency, limit, ..Comparison::new(case, plan) }
    }

    /// Checks the output of the arms, measures their memory, and runs one round. Nothing runs after `end`; with `None`
    /// there is no deadline.
    ///
    /// # Errors
    /// The first arm cannot be measured.
    pub fn open(&mut self, end: Option<Duration>, tools: &mut Tools<'_>) -> Result<(), SessionError> {
        self.end = end;
        let checked = if self.figure == Figure::Cost { self.check(tools) } else { Ok(()) };
        match checked {
            Err(SessionError::Run { source: RunError::Interrupted, .. }) => {
                self.stopped = if self.is_over(tools) { Stopped::Budget } else { Stopped::Interrupted };
            }
            Err(error) => return Err(error),
            Ok(()) if self.is_over(tools) => self.stopped = Stopped::Budget,
            Ok(()) if (tools.interrupted)() => self.stopped = Stopped::Interrupted,
            Ok(()) => {
                (tools.observer)(Progress::Round { round: 1, left: None });
                if let Some(stopped) = self.counted_round(tools) {
                    self.stopped = stopped;
                }
            }
        }
        Ok(())
    }

    /// Returns the number of whole rounds so far.
    pub fn rounds(&self) -> usize {
        self.rounds
    }

    /// Returns, for each arm, the reason why it is excluded so far.
    pub fn failures(&self) -> impl Iterator<Item = Option<&str>> {
        self.arms.iter().map(|arm| arm.failure.as_deref())
    }

    /// Returns the reason why the first arm failed in a round, if it did. The comparison cannot go on then.
    pub fn failed(&self) -> Option<&str> {
        self.arms[0].failure.as_deref().filter(|_| self.stopped == Stopped::Failed)
    }

    /// Runs more for memory, counts system calls, and makes rounds until the intervals are narrow enough or the time is
    /// over.
    pub fn go_on(&mut self, until: Until, tools: &mut Tools<'_>) {
        self.measure_memory(until, tools);
        self.count_calls(until, tools);
        if self.is_going() {
            self.end = until.end;
            self.stopped = self.more_rounds(until.aim, tools);
        }
    }

    /// Runs more for memory, for up to a quarter of the time.
    pub fn measure_memory(&mut self, until: Until, tools: &mut Tools<'_>) {
        if self.is_going() {
            self.end = until.end;
            self.memory(until.aim, tools);
        }
    }

    /// Counts system calls, if there is time for it.
    pub fn count_calls(&mut self, until: Until, tools: &mut Tools<'_>) {
        if self.is_going() {
            self.end = until.end;
            self.calls(until.aim, tools);
        }
    }

    /// Makes one more round, or records that there is no time for it.
    pub fn make_round(&mut self, until: Until, tools: &mut Tools<'_>) {
        if self.is_going() {
            self.end = until.end;
            self.stopped = self.one_round(until.aim, tools).unwrap_or(Stopped::Budget);
        }
    }

    fn is_going(&self) -> bool {
        self.rounds > 0 && !matches!(self.stopped, Stopped::Interrupted | Stopped::Failed)
    }

    /// Returns the rounds and the time that it needs to become precise. `None` if it is precise, or cannot go on.
    pub fn need(&mut self) -> Option<Need> {
        if !self.is_going() {
            return None;
        }
        if let Some(stopped) = self.enough() {
            self.stopped = stopped;
            return None;
        }
        Some(self.estimate())
    }

    fn estimate(&self) -> Need {
        let next = self.next_round_time();
        let needed = rounds_needed(&self.log_ratios(), self.plan.target()).unwrap_or(f64::INFINITY);
        let needed = needed.clamp(self.plan.least_rounds as f64, self.plan.most_rounds as f64);
        let left = next.mul_f64((needed - self.rounds as f64).max(1.0));
        Need { is_basic: self.rounds < self.plan.least_rounds, spent: self.in_rounds, next, left }
    }

    /// Returns the results so far.
    pub fn finish(self) -> Session {
        let is_server = self.case.arms.first().is_some_and(|arm| arm.invocation.load.is_some());
        Session { arms: self.arms, end: self.expected.filter(|_| !is_server), stopped: self.stopped }
    }

    fn name(&self, arm: usize) -> &str {
        &self.case.arms[arm].name
    }

    fn is_over(&self, tools: &Tools<'_>) -> bool {
        self.end.is_some_and(|end| tools.clock.now() >= end)
    }

    /// Returns the limit for a run that begins now, and whether the deadline shortens it.
    fn limit(&self, tools: &Tools<'_>) -> (Duration, bool) {
        let left = self.end.map(|end| end.saturating_sub(tools.clock.now()));
        left.filter(|left| *left < self.limit).map_or((self.limit, false), |left| (left, true))
    }

    /// Returns the remaining arms in random order.
    fn order(&mut self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.arms.len()).filter(|arm| self.arms[*arm].failure.is_none()).collect();
        self.random.shuffle(&mut order);
        order
    }

    /// Whether an arm is in the next round. Once there are enough rounds, the round has only the first arm and the arms
    /// that are not yet precise. Like the rule that ends a comparison, this one looks at absolute values of log ratios
    /// only.
    fn is_wanted(&self, arm: usize) -> bool {
        if self.arms[arm].failure.is_some() {
            return false;
        }
        let precise = || self.is_saturated(arm) || narrow_enough(&self.pairs(arm), self.plan.target());
        arm == 0 || self.rounds < self.plan.least_rounds || !precise()
    }

    /// Runs every arm for the first time, the first one twice, and compares their output. The first run of each also
    /// measures memory: under ptrace a program behaves the same, and a second run would add a third to the least time
    /// of a comparison.
    fn check(&mut self, tools: &mut Tools<'_>) -> Result<(), SessionError> {
        let first = self.check_first(tools)?;
        self.expected = Some(first);
        let others: Vec<usize> = self.order().into_iter().filter(|arm| *arm != 0).collect();
        for arm in others {
            if (tools.interrupted)() || self.is_over(tools) {
                return Ok(());
            }
            (tools.observer)(Progress::Checking(self.name(arm)));
            let traced = self.memory_run(arm, tools);
            let right = traced.as_ref().is_some_and(|traced| self.difference(arm, &traced.end).is_none());
            // Where tracing does not work, or the program fails under it, a plain run decides.
            let plain = if right { self.plan.warm_up.saturating_sub(1) } else { self.plan.warm_up.max(1) };
            for _ in 0..plain {
                if (tools.interrupted)() || self.is_over(tools) || self.arms[arm].failure.is_some() {
                    break;
                }
                if let Some(figures) = self.timed_run(arm, tools) {
                    self.arms[arm].warm_up.push(figures);
                }
            }
            if self.arms[arm].failure.is_none() {
                self.keep_memory(arm, traced.filter(|_| right));
            }
        }
        Ok(())
    }

    /// Runs the first arm. Every run must repeat its exit code, whatever it is: linters end with a code other than 0
    /// when they find something. Only a program that a signal ends has failed.
    fn check_first(&mut self, tools: &mut Tools<'_>) -> Result<End, SessionError> {
        (tools.observer)(Progress::Checking(self.name(0)));
        let traced = self.memory_run(0, tools);
        let mut traced = traced.filter(|traced| matches!(traced.end.status, Status::Exit(_)));
        let mut expected: Option<End> = traced.as_ref().map(|traced| traced.end.clone());
        let mut left = self.plan.warm_up.max(if expected.is_some() { 1 } else { 2 });
        while left > 0 {
            left -= 1;
            let arm = self.name(0).to_owned();
            (tools.observer)(Progress::Checking(&arm));
            let (limit, cut) = self.limit(tools);
            let run = tools.executor.time(&self.case.arms[0].invocation, limit);
            let run = run.map_err(|source| match source {
                RunError::TimeOut(_) if cut => SessionError::Run { arm: arm.clone(), source: RunError::Interrupted },
                source => SessionError::Run { arm: arm.clone(), source },
            })?;
            let End { status, complaint, .. } = &run.end;
            if matches!(status, Status::Signal(_)) {
                return Err(SessionError::Fails { arm, status: *status, complaint: complaint.clone() });
            }
            if let Some(first) = &expected
                && first.status != *status
            {
                if traced.take().is_none() {
                    let (first, second, complaint) = (first.status, *status, complaint.clone());
                    return Err(SessionError::Changing { arm, first, second, complaint });
                }
                // It ends differently under tracing, or each time. Another plain run decides.
                let reason = format!("traced it ends with {}, and with {status} otherwise", first.status);
                self.arms[0].no_memory = Some(reason);
                (expected, left) = (None, left.max(1));
            } else if let Some(first) = &expected
                && self.plan.compare_output
                && first.digest != run.end.digest
            {
                return Err(SessionError::Unsteady { arm, first: first.head.clone(), second: run.end.head });
            }
            self.lasted[0] = run.figures.wall_s;
            self.arms[0].warm_up.push(run.figures);
            expected.get_or_insert(run.end);
        }
        self.keep_memory(0, traced);
        let slowest = self.arms[0].warm_up.iter().map(|figures| figures.wall_s).fold(0.0, f64::max);
        self.limit = Duration::from_secs_f64(slowest) * PATIENCE.0 + PATIENCE.1;
        expected.ok_or(SessionError::Run { arm: self.name(0).to_owned(), source: RunError::Interrupted })
    }

    /// Runs an arm for its memory. If that fails, records the reason and returns `None`.
    fn memory_run(&mut self, arm: usize, tools: &mut Tools<'_>) -> Option<MemoryRun> {
        if self.plan.memory_runs == 0 || self.arms[arm].no_memory.is_some() {
            return None;
        }
        let (limit, cut) = self.limit(tools);
        match tools.executor.memory(&self.case.arms[arm].invocation, limit) {
            Ok(traced) => return Some(traced),
            Err(RunError::Interrupted) => {}
            // The budget is spent, or a plain run will report the same failure.
            Err(RunError::TimeOut(_)) if cut => {}
            Err(error @ (RunError::TimeOut(_) | RunError::Server(_))) if arm != 0 => {
                self.arms[arm].failure = Some(error.to_string()).filter(|_| !(tools.interrupted)());
            }
            Err(error) => self.arms[arm].no_memory = Some(error.to_string()),
        }
        None
    }

    fn keep_memory(&mut self, arm: usize, traced: Option<MemoryRun>) {
        let Some(MemoryRun { memory, wall_s, .. }) = traced else { return };
        if self.lasted[arm] == 0.0 {
            self.lasted[arm] = wall_s;
        }
        match memory {
            Some(memory) => self.arms[arm].memory.push(memory),
            None => self.arms[arm].no_memory = Some("its memory could not be read when it ended".to_owned()),
        }
    }

    /// Runs an arm once. If that fails, excludes the arm with the reason and returns `None`.
    fn timed_run(&mut self, arm: usize, tools: &mut Tools<'_>) -> Option<Figures> {
        let (limit, cut) = self.limit(tools);
        let failure = match tools.executor.time(&self.case.arms[arm].invocation, limit) {
            Ok(run) => match self.difference(arm, &run.end) {
                None => {
                    self.lasted[arm] = run.figures.wall_s;
                    return Some(run.figures);
                }
                Some(difference) => difference,
            },
            Err(RunError::Interrupted) => return None,
            Err(RunError::TimeOut(_)) if cut => return None,
            Err(error) => error.to_string(),
        };
        // Ctrl-C may reach the program before it reaches this process.
        if !(tools.interrupted)() {
            self.arms[arm].failure = Some(failure);
        }
        None
    }

    fn is_expected(&self, status: Status) -> bool {
        self.expected.as_ref().is_none_or(|expected| expected.status == status)
    }

    /// Returns the difference between the end of a run and the first arm's. `None` if they are equal.
    fn difference(&self, arm: usize, end: &End) -> Option<String> {
        let expected = self.expected.as_ref()?;
        if !self.is_expected(end.status) {
            let before = if arm == 0 { "as before".to_owned() } else { format!("as {}", self.name(0)) };
            let complaint = complained(&end.complaint);
            return Some(format!("ends with {}, not with {} {before}{complaint}", end.status, expected.status));
        }
        let same = !self.plan.compare_output || end.digest == expected.digest;
        (!same).then(|| format!("prints `{}`, and {} prints `{}`", end.head, self.name(0), expected.head))
    }

    /// Returns how many rounds fit into the time that is left.
    fn rounds_left(&self, aim: Duration, tools: &Tools<'_>) -> f64 {
        let each = self.round_time().as_secs_f64();
        let left = aim.saturating_sub(tools.clock.now()).as_secs_f64();
        if each > 0.0 { left / each } else { f64::INFINITY }
    }

    fn memory(&mut self, aim: Duration, tools: &mut Tools<'_>) {
        let share = self.rounds_left(aim, tools) / 4.0;
        let fitting = (1..self.plan.memory_runs).rev().find(|runs| (*runs as f64) <= share);
        for _ in 0..fitting.unwrap_or(0) {
            for arm in self.order() {
                if (tools.interrupted)() || self.is_over(tools) {
                    return;
                }
                if self.arms[arm].no_memory.is_some() {
                    continue;
                }
                (tools.observer)(Progress::Memory(self.name(arm)));
                let (limit, _) = self.limit(tools);
                match tools.executor.memory(&self.case.arms[arm].invocation, limit) {
                    Ok(MemoryRun { memory: Some(memory), end, .. }) if self.difference(arm, &end).is_none() => {
                        self.arms[arm].memory.push(memory);
                    }
                    Err(RunError::Interrupted) => return,
                    // There is a memory figure already. The rounds will show whether the arm still works.
                    Ok(_) | Err(_) => {}
                }
            }
        }
    }

    /// Counts system calls. Each costs a stop, so only the first part of programs with millions of calls is counted.
    fn calls(&mut self, aim: Duration, tools: &mut Tools<'_>) {
        if !self.plan.count_calls {
            return;
        }
        if self.rounds_left(aim, tools) < ROUNDS_FOR_CALLS {
            let reason = "the budget is short, and time and memory come first";
            for arm in self.arms.iter_mut().filter(|arm| arm.failure.is_none()) {
                arm.no_calls = Some(reason.to_owned());
            }
            return;
        }
        let count = u32::try_from(self.arms.len().max(1)).unwrap_or(u32::MAX);
        let share = aim.saturating_sub(tools.clock.now()) / 10;
        let limit = (share / count).clamp(Duration::from_secs(1), Duration::from_secs(20));
        for arm in self.order() {
            if (tools.interrupted)() || self.is_over(tools) {
                return;
            }
            (tools.observer)(Progress::Calls(self.name(arm)));
            let limit = limit.min(self.limit(tools).0);
            match tools.executor.calls(&self.case.arms[arm].invocation, limit) {
                Ok(CallsRun { calls, status }) => match status.filter(|status| !self.is_expected(*status)) {
                    None => self.arms[arm].calls = Some(calls),
                    Some(status) => {
                        self.arms[arm].no_calls = Some(format!("it ends with {status} while they are counted"))
                    }
                },
                Err(RunError::Interrupted) => return,
                Err(error) => self.arms[arm].no_calls = Some(error.to_string()),
            }
        }
    }

    fn more_rounds(&mut self, aim: Duration, tools: &mut Tools<'_>) -> Stopped {
        loop {
            if let Some(stopped) = self.one_round(aim, tools) {
                return stopped;
            }
        }
    }

    /// Returns the reason to end, if there are enough rounds.
    fn enough(&self) -> Option<Stopped> {
        let is_precise = || self.log_ratios().iter().all(|logs| narrow_enough(logs, self.plan.target()));
        if self.rounds >= self.plan.most_rounds {
            return Some(Stopped::Rounds);
        }
        (self.rounds >= self.plan.least_rounds && is_precise()).then_some(Stopped::Narrow)
    }

    /// Makes one more round. Returns the reason to end, if no round was made, or if it was the last.
    fn one_round(&mut self, aim: Duration, tools: &mut Tools<'_>) -> Option<Stopped> {
        if let Some(stopped) = self.enough() {
            return Some(stopped);
        }
        let need = self.estimate();
        let now = tools.clock.now();
        if now + need.next > aim {
            return Some(Stopped::Budget);
        }
        let left = need.left.min(aim.saturating_sub(now));
        (tools.observer)(Progress::Round { round: self.rounds + 1, left: Some(left) });
        self.counted_round(tools)
    }

    /// Makes a round. Returns the reason if it was the last one.
    fn counted_round(&mut self, tools: &mut Tools<'_>) -> Option<Stopped> {
        let began = tools.clock.now();
        if !self.round(self.rounds, tools) {
            let over = self.is_over(tools) && !(tools.interrupted)();
            return Some(if over { Stopped::Budget } else { Stopped::Interrupted });
        }
        self.in_rounds += tools.clock.now().saturating_sub(began);
        if self.arms[0].failure.is_some() {
            return Some(Stopped::Failed);
        }
        self.rounds += 1;
        None
    }

    /// Makes a round. Returns false if it was interrupted: a partial round does not count.
    fn round(&mut self, round: usize, tools: &mut Tools<'_>) -> bool {
        let mut done = Vec::new();
        let wanted: Vec<usize> = self.order().into_iter().filter(|arm| self.is_wanted(*arm)).collect();
        for (position, arm) in wanted.into_iter().enumerate() {
            if (tools.interrupted)() || self.is_over(tools) {
                return false;
            }
            match self.timed_run(arm, tools) {
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

    /// Returns the duration of a round, from the rounds so far, or from the runs before them.
    fn round_time(&self) -> Duration {
        if let Ok(rounds @ 1..) = u32::try_from(self.rounds) {
            return self.in_rounds / rounds;
        }
        let arms = self.arms.iter().zip(&self.lasted).filter(|(arm, _)| arm.failure.is_none());
        Duration::from_secs_f64(arms.map(|(_, lasted)| lasted).sum())
    }

    /// Returns the duration of the next round. Once arms are left out of rounds, that is the sum of their last runs.
    fn next_round_time(&self) -> Duration {
        if self.rounds < self.plan.least_rounds {
            return self.round_time();
        }
        let wanted = (0..self.arms.len()).filter(|arm| self.is_wanted(*arm));
        Duration::from_secs_f64(wanted.map(|arm| self.lasted[arm]).sum())
    }

    /// Returns the logarithms of an arm's ratios to the first arm.
    fn pairs(&self, arm: usize) -> Vec<f64> {
        paired_logs(&self.arms[arm].runs, &self.arms[0].runs, |figures| self.figure.get(figures))
    }

    /// Whether an arm, or the first one, did not reach the rate in most runs: more rounds would not add anything.
    fn is_saturated(&self, arm: usize) -> bool {
        self.figure == Figure::Latency && 2 * self.pairs(arm).len() < self.arms[arm].runs.len()
    }

    fn log_ratios(&self) -> Vec<Vec<f64>> {
        let in_it = (1..self.arms.len()).filter(|arm| self.arms[*arm].failure.is_none() && !self.is_saturated(*arm));
        let of_arms: Vec<Vec<f64>> = in_it.map(|arm| self.pairs(arm)).collect();
        if !of_arms.is_empty() {
            return of_arms;
        }
        // With only one arm, its own spread is used. A saturated one has none.
        let figures: Vec<f64> = self.arms[0].runs.iter().filter_map(|run| self.figure.get(&run.figures)).collect();
        let middle = median(&figures);
        let logs: Vec<f64> = figures.iter().map(|figure| (figure / middle).ln()).collect();
        if logs.is_empty() { Vec::new() } else { vec![logs] }
    }
}

//! Tests equal rates with servers of known capacity and latency, on a clock that the tests set.

use std::cell::Cell;
use std::rc::Rc;

use super::*;
use crate::case::{Arm, Invocation, Load};
use crate::executor::{CallsRun, Clock, End, Executor, Figures, MemoryRun, Service, Status, TimedRun};
use crate::session::{Session, compare};

/// A clock that advances only when a server runs.
#[derive(Clone, Default)]
struct Turned(Rc<Cell<Duration>>);

impl Clock for Turned {
    fn now(&self) -> Duration {
        self.0.get()
    }
}

/// Servers that answer up to a number of requests per second. An arm's program is its number.
struct Servers {
    clock: Turned,
    /// The capacity of each arm, and the milliseconds of its 99th percentile below that.
    arms: Vec<(f64, f64)>,
    /// The standard deviation of latencies, on the logarithmic scale.
    noise: f64,
    random: fastrand::Rng,
    /// The rate and the arm of each run.
    ran: Vec<(Option<u64>, usize)>,
    /// The arm that fails.
    fails: Option<usize>,
}

impl Servers {
    fn new(arms: &[(f64, f64)], noise: f64, seed: u64) -> Servers {
        let random = fastrand::Rng::with_seed(seed ^ 0x5eed);
        Servers { clock: Turned::default(), arms: arms.to_vec(), noise, random, ran: Vec::new(), fails: None }
    }

    /// The sum of twelve uniform numbers has the variance 1.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.random.f64()).sum::<f64>() - 6.0
    }

    fn tools<T>(&mut self, run: impl FnOnce(&mut Tools<'_>) -> T) -> T {
        let clock = self.clock.clone();
        run(&mut Tools { executor: self, clock: &clock, observer: &mut |_| {}, interrupted: &|| false })
    }

    fn case(&self) -> Case {
        let load = Some(Load { command: "load {rate}".to_owned(), rate: None });
        let arm = |number: usize| Arm {
            name: format!("arm {number}"),
            invocation: Invocation { program: number.to_string().into(), load: load.clone(), ..Invocation::default() },
            broken: None,
        };
        Case { name: "case".to_owned(), threads: None, size: None, arms: (0..self.arms.len()).map(arm).collect() }
    }

    /// Measures at these rates for as long as the seconds say.
    fn measure(&mut self, rates: &[u64], seed: u64, seconds: u64) -> Curve {
        let (case, plan) = (self.case(), Plan { seed, ..Plan::default() });
        let times = (self.clock.now() + Duration::from_secs(seconds), Duration::from_secs(60));
        self.tools(|tools| measure(&case, rates, &plan, times, tools)).unwrap()
    }
}

impl Executor for Servers {
    fn time(&mut self, invocation: &Invocation, _: Duration) -> Result<TimedRun, RunError> {
        let arm: usize = invocation.program.to_str().unwrap().parse().unwrap();
        let rate = invocation.load.as_ref().unwrap().rate;
        self.ran.push((rate, arm));
        self.clock.0.set(self.clock.now() + Duration::from_secs(1));
        if self.fails == Some(arm) {
            return Err(RunError::Server("it is gone".to_owned()));
        }
        let (capacity, p99_ms) = self.arms[arm];
        let p99_ms = Some(p99_ms * (self.noise * self.normal()).exp());
        let requests_per_second = rate.map_or(capacity, |rate| capacity.min(rate as f64));
        let service = Service { requests_per_second, rate: None, p50_ms: None, p90_ms: None, p99_ms, p999_ms: None };
        let service = rate.map_or(service, |rate| service.at_rate(rate));
        let end =
            End { status: Status::Exit(0), digest: [0; 32], bytes: 0, head: String::new(), complaint: String::new() };
        let figures = Figures { wall_s: 1.0, user_s: 0.1, service: Some(service), ..Figures::default() };
        Ok(TimedRun { figures, end })
    }

    fn memory(&mut self, _: &Invocation, _: Duration) -> Result<MemoryRun, RunError> {
        Err(RunError::Measuring("no memory here".to_owned()))
    }

    fn calls(&mut self, _: &Invocation, _: Duration) -> Result<CallsRun, RunError> {
        Err(RunError::Measuring("no calls here".to_owned()))
    }
}

fn standings(rate: &RateResult) -> Vec<Option<Standing>> {
    rate.arms.iter().map(|arm| arm.standing).collect()
}

#[test]
fn an_arm_that_stalls_is_worse_and_one_that_is_saturated_does_not_reach() {
    let mut servers = Servers::new(&[(10_000.0, 1.0), (4_000.0, 0.5), (20_000.0, 3.0)], 0.1, 1);
    let curve = servers.measure(&[1_000, 5_000, 15_000, 50_000], 1, 1000);
    assert_eq!(curve.left_out, Vec::<u64>::new());
    let (better, worse) = (Some(Standing::Better), Some(Standing::Worse));
    let [one, five, fifteen, fifty] = curve.rates.as_slice() else { panic!("{curve:?}") };
    assert_eq!(standings(one), [None, better, worse]);
    assert_eq!(standings(five), [None, worse, worse]);
    // Only the last arm reaches this rate, so it is better whatever its latency is.
    assert_eq!(standings(fifteen), [None, None, better]);
    assert_eq!(standings(fifty), [None, None, None]);
    let saturated = &five.arms[1];
    assert!(!saturated.reached && saturated.reached_runs == 0 && saturated.timed_runs >= 6);
    assert_eq!((saturated.answered_per_second, saturated.p99, saturated.tail_ratio()), (Some(4_000.0), None, None));
    let ratio = one.arms[2].tail_ratio().unwrap();
    assert!(ratio.low.unwrap() < 3.0 && 3.0 < ratio.high.unwrap(), "{ratio:?}");
    // More rounds would say nothing about an arm that does not reach a rate.
    assert!(fifty.rounds == 6 && one.rounds >= 6);
}

#[test]
fn every_arm_runs_once_in_a_round_and_rates_take_turns_at_random() {
    let mut servers = Servers::new(&[(1e6, 1.0), (1e6, 1.0), (1e6, 1.0)], 0.5, 3);
    let rates = [100, 200, 300];
    servers.measure(&rates, 3, 100);
    let rounds: Vec<&[(Option<u64>, usize)]> = servers.ran.chunks(3).collect();
    for round in &rounds {
        assert!(round.iter().all(|(rate, _)| *rate == round[0].0), "a round is at one rate: {round:?}");
        let mut arms: Vec<usize> = round.iter().map(|(_, arm)| *arm).collect();
        arms.sort_unstable();
        assert_eq!(arms, [0, 1, 2]);
    }
    for turn in rounds.chunks(3).filter(|turn| turn.len() == 3) {
        let mut turn: Vec<u64> = turn.iter().filter_map(|round| round[0].0).collect();
        turn.sort_unstable();
        assert_eq!(turn, rates);
    }
    let first: Vec<usize> = rounds.iter().map(|round| round[0].1).collect();
    assert!((0..3).all(|arm| first.contains(&arm)), "{first:?}");
}

#[test]
fn equal_arms_seldom_stand_differently() {
    let mut alarms = 0;
    for seed in 0..200 {
        let mut servers = Servers::new(&[(1e6, 1.0), (1e6, 1.0), (1e6, 1.0)], 0.3, seed);
        let curve = servers.measure(&[100, 200, 300, 400, 500], seed, 300);
        let differs = |arm: &RateArm| matches!(arm.standing, Some(Standing::Better | Standing::Worse));
        alarms += usize::from(curve.rates.iter().flat_map(|rate| &rate.arms).any(differs));
    }
    // At 5 % for all ten comparisons together.
    assert!(alarms <= 20, "in {alarms} of 200 curves");
}

#[test]
fn the_first_rate_is_measured_in_any_case_and_what_is_left_out_is_named() {
    let arms = [(1e6, 1.0), (1e6, 1.0)];
    let curve = Servers::new(&arms, 0.1, 1).measure(&[100, 200], 1, 0);
    assert_eq!((curve.rates.len(), curve.left_out.len()), (1, 1));
    assert!(curve.rates[0].rounds == 1 && curve.rates[0].arms[1].standing == Some(Standing::Unclear));
    // Two rounds of each rate fit, and a fifth round does not.
    let mut servers = Servers::new(&arms, 0.1, 1);
    let curve = servers.measure(&[100, 200], 1, 9);
    assert_eq!(curve.rates.iter().map(|rate| rate.rounds).collect::<Vec<_>>(), [2, 2]);
    assert!(servers.clock.now() <= Duration::from_secs(9));
}

#[test]
fn a_runs_failure_is_that_of_its_rate() {
    let mut servers = Servers::new(&[(1e6, 1.0), (1e6, 1.0)], 0.1, 1);
    servers.fails = Some(1);
    let curve = servers.measure(&[100], 1, 60);
    assert_eq!(curve.rates[0].arms[1].failure.as_deref(), Some("it is gone"));
    assert!(curve.rates[0].arms[0].reached && curve.rates[0].arms[1].standing.is_none());
    servers.fails = Some(0);
    let curve = servers.measure(&[100, 200], 1, 60);
    assert!(curve.rates.iter().all(|rate| rate.arms[0].failure.is_some() && rate.arms[1].standing.is_none()));
}

#[test]
fn full_load_is_a_rate_that_no_arm_reaches() {
    let mut servers = Servers::new(&[(9_000.0, 1.0), (300.0, 1.0), (70_000.0, 1.0)], 0.1, 1);
    let case = servers.case();
    let rate = servers.tools(|tools| overload(&case, tools)).unwrap();
    assert_eq!(rate, 2 * 256_000);
    let asked: Vec<u64> = servers.ran.iter().filter_map(|(rate, _)| *rate).collect();
    assert_eq!(asked, [1_000, 4_000, 16_000, 16_000, 16_000, 64_000, 256_000]);
    // A run without a rate reached has no latency, at full load neither.
    let plan = Plan { least_rounds: 2, most_rounds: 2, ..Plan::default() };
    let overloaded = case.at_rate(rate);
    let session: Session = servers.tools(|tools| compare(&overloaded, &plan, tools)).unwrap();
    assert!(session.arms.iter().flat_map(|arm| &arm.runs).all(|run| run.figures.latency_ms().is_none()));
    // Shares are rounded to two digits.
    let rates = [Rate::OfCapacity(0.95), Rate::PerSecond(1234), Rate::OfCapacity(0.5), Rate::PerSecond(150)];
    assert_eq!(per_second(&rates, 300.0), [150, 290, 1234]);
    // A load that claims to keep any rate is refused.
    let mut endless = Servers::new(&[(f64::INFINITY, 1.0)], 0.1, 1);
    let error = endless.tools(|tools| overload(&case, tools)).unwrap_err();
    assert!(error.to_string().contains("claims that"), "{error}");
}

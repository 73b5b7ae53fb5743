//! Tests sessions with programs of known cost, on a clock that the tests set.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::*;
use crate::case::{Arm, Invocation};
use crate::executor::{CallsRun, End, MemoryRun, TimedRun};
use crate::statistics::Ratio;

/// A clock that advances only when a program runs.
#[derive(Clone, Default)]
struct Turned(Rc<Cell<Duration>>);

impl Clock for Turned {
    fn now(&self) -> Duration {
        self.0.get()
    }
}

/// Programs of known cost on a noisy machine. The noise is the machine's, so it is the same for all arms.
struct Mock {
    clock: Turned,
    /// The seconds of each arm. An arm's program is its number.
    costs: Vec<f64>,
    noise: Noise,
    random: fastrand::Rng,
    ran: Rc<RefCell<Vec<usize>>>,
    /// The output of arms that print something different.
    prints: Vec<(usize, &'static str)>,
    /// The number of the run that fails, and the arm that does.
    breaks: Option<(usize, usize)>,
    /// The exit codes of an arm's runs in turn, including runs for memory; the last code is repeated. 0 for other arms.
    codes: Vec<(usize, Vec<i32>)>,
    asked: Rc<RefCell<Vec<usize>>>,
    /// Whether no program can be started under tracing, as in an emulator.
    untraceable: bool,
}

/// The noise of a run: standard deviation on the logarithmic scale, rare far longer runs, and a slow drift.
#[derive(Clone, Copy, Default)]
struct Noise {
    deviation: f64,
    outliers: f64,
    drift: f64,
}

impl Mock {
    fn new(costs: &[f64], noise: Noise, seed: u64) -> Mock {
        Mock {
            clock: Turned::default(),
            costs: costs.to_vec(),
            noise,
            random: fastrand::Rng::with_seed(seed ^ 0x5eed),
            ran: Rc::default(),
            prints: Vec::new(),
            breaks: None,
            codes: Vec::new(),
            asked: Rc::default(),
            untraceable: false,
        }
    }

    fn end(&self, arm: usize) -> End {
        let printed = self.prints.iter().find(|(of, _)| *of == arm).map_or("same", |(_, printed)| printed);
        let broken = self.breaks.is_some_and(|(run, of)| run <= self.ran.borrow().len() && of == arm);
        let mut digest = [0; 32];
        digest[..printed.len()].copy_from_slice(printed.as_bytes());
        let before = self.asked.borrow().iter().filter(|asked| **asked == arm).count();
        self.asked.borrow_mut().push(arm);
        let codes = self.codes.iter().find(|(of, _)| *of == arm);
        let code = codes.map_or(0, |(_, codes)| codes[before.min(codes.len() - 1)]);
        let status = if broken { Status::Signal(11) } else { Status::Exit(code) };
        let bytes = printed.len() as u64;
        End { status, digest, bytes, head: printed.to_owned(), complaint: String::new() }
    }

    fn normal(&mut self) -> f64 {
        let (one, two) = (1.0 - self.random.f64(), self.random.f64());
        (-2.0 * one.ln()).sqrt() * (std::f64::consts::TAU * two).cos()
    }
}

impl Executor for Mock {
    fn time(&mut self, invocation: &Invocation, _limit: Duration) -> Result<TimedRun, RunError> {
        let arm: usize = invocation.program.to_str().unwrap().parse().unwrap();
        let Noise { deviation, outliers, drift } = self.noise;
        let mut log = deviation * self.normal() + drift * (self.clock.now().as_secs_f64() / 40.0).sin();
        if self.random.f64() < outliers {
            log += 1.0 + self.random.f64();
        }
        let wall_s = self.costs[arm] * log.exp();
        self.clock.0.set(self.clock.now() + Duration::from_secs_f64(wall_s));
        self.ran.borrow_mut().push(arm);
        Ok(TimedRun { figures: Figures { wall_s, ..Figures::default() }, end: self.end(arm) })
    }

    /// Takes no time here, so that the tests of budgets and rounds count timed runs only.
    fn memory(&mut self, invocation: &Invocation, _: Duration) -> Result<MemoryRun, RunError> {
        if self.untraceable {
            let source = std::io::Error::from_raw_os_error(38);
            return Err(RunError::Start { program: invocation.program.display().to_string(), source });
        }
        let arm: usize = invocation.program.to_str().unwrap().parse().unwrap();
        let memory = Some(Memory { peak_bytes: 1 << 20, last_bytes: 1 << 10 });
        Ok(MemoryRun { memory, wall_s: self.costs[arm], end: self.end(arm) })
    }

    fn calls(&mut self, _: &Invocation, _: Duration) -> Result<CallsRun, RunError> {
        Err(RunError::Measuring("no calls here".to_owned()))
    }
}

const REALISTIC: Noise = Noise { deviation: 0.02, outliers: 0.05, drift: 0.1 };

fn case(arms: usize) -> Case {
    let arm = |number: usize| Arm {
        name: format!("arm {number}"),
        invocation: Invocation { program: number.to_string().into(), ..Invocation::default() },
        broken: None,
    };
    Case { name: "case".to_owned(), threads: None, size: None, arms: (0..arms).map(arm).collect() }
}

fn plan(seed: u64) -> Plan {
    Plan { seed, budget: Duration::from_secs(2000), ..Plan::default() }
}

fn run(mock: &mut Mock, plan: &Plan) -> Result<Session, SessionError> {
    let clock = mock.clock.clone();
    let case = case(mock.costs.len());
    let mut tools = Tools { executor: mock, clock: &clock, observer: &mut |_| {}, interrupted: &|| false };
    compare(&case, plan, &mut tools)
}

fn ratio(session: &Session, arm: usize) -> Ratio {
    Ratio::of_logs(&log_ratios(&session.arms[arm].runs, &session.arms[0].runs)).unwrap()
}

/// 200 comparisons of equal arms. At 5 % about ten look different; by chance 2 to 20 may (all but 3 in 1,000 cases).
#[test]
fn arms_are_compared_where_nothing_can_be_traced() {
    let mut mock = Mock { untraceable: true, ..Mock::new(&[1.0, 0.5], REALISTIC, 7) };
    let session = run(&mut mock, &plan(7)).unwrap();
    assert_eq!(session.arms[1].failure, None);
    assert!(session.arms.iter().all(|arm| arm.no_memory.is_some() && arm.memory.is_empty()));
    assert!((0.45..0.55).contains(&ratio(&session, 1).value));
}

#[test]
fn equal_arms_look_different_as_often_as_the_test_says() {
    for (name, noise, arms) in [
        ("quiet", Noise { deviation: 0.01, ..Noise::default() }, 2),
        ("realistic", REALISTIC, 2),
        ("many outliers", Noise { outliers: 0.2, ..REALISTIC }, 2),
        ("four arms", REALISTIC, 4),
    ] {
        let (mut alarms, mut missed, mut stopped_early, mut tested) = (0, 0, 0, 0);
        for seed in 0..200 {
            let mut mock = Mock::new(&vec![0.5; arms], noise, seed);
            let session = run(&mut mock, &plan(seed)).unwrap();
            stopped_early += usize::from(session.stopped == Stopped::Narrow);
            // The last arm: in the case of four arms it is one among several.
            let ratio = ratio(&session, arms - 1);
            tested += 1;
            alarms += usize::from(ratio.p_value < 0.05);
            missed += usize::from(ratio.low.unwrap() > 1.0 || ratio.high.unwrap() < 1.0);
        }
        println!("{name}: {alarms} false alarms in {tested}; {stopped_early} stopped by the rule");
        assert!((2..=20).contains(&alarms), "{name}: {alarms} false alarms in {tested}");
        assert!(missed <= 20, "{name}: 1 was outside of {missed} intervals of {tested}");
        // Otherwise the test would not cover early stopping.
        assert!(stopped_early > 150, "{name}: {stopped_early}");
    }
}

#[test]
fn three_percent_are_told_apart() {
    let (mut found, mut covered, mut rounds) = (0, 0, 0);
    for seed in 0..200 {
        let mut mock = Mock::new(&[0.5, 0.485], REALISTIC, seed);
        let session = run(&mut mock, &plan(seed)).unwrap();
        let ratio = ratio(&session, 1);
        found += usize::from(ratio.differs() && ratio.value < 1.0);
        covered += usize::from(ratio.low.unwrap() <= 0.97 && 0.97 <= ratio.high.unwrap());
        rounds += session.arms[0].runs.len();
    }
    println!("3 %: found in {found} of 200, {covered} intervals cover it, {} rounds on average", rounds / 200);
    assert!(found >= 190, "found in {found} of 200");
    assert!(covered >= 180, "the true ratio was in {covered} intervals of 200");
    assert!(rounds / 200 < 100, "{} rounds on average", rounds / 200);
}

#[test]
fn a_big_difference_takes_few_rounds() {
    let mut mock = Mock::new(&[1.0, 0.3], REALISTIC, 1);
    let session = run(&mut mock, &plan(1)).unwrap();
    assert_eq!(session.stopped, Stopped::Narrow);
    assert_eq!(session.arms[0].runs.len(), 10);
}

#[test]
fn the_order_is_random_within_rounds() {
    let mut mock = Mock::new(&[0.1; 4], Noise::default(), 1);
    let exact = Plan { most_rounds: 40, least_rounds: 40, ..plan(7) };
    let session = run(&mut mock, &exact).unwrap();
    // The first arm runs once more: its other first run measures memory, as do those of the others.
    let ran = mock.ran.borrow()[1..].to_vec();
    let rounds: Vec<&[usize]> = ran.chunks(4).collect();
    assert_eq!(rounds.len(), 40);
    for round in &rounds {
        let mut sorted = round.to_vec();
        sorted.sort_unstable();
        assert_eq!(sorted, [0, 1, 2, 3], "each arm once in a round");
    }
    for arm in 0..4 {
        for place in 0..4 {
            let there = rounds.iter().filter(|round| round[place] == arm).count();
            assert!((3..=20).contains(&there), "arm {arm} was {there} times at {place}");
        }
    }
    for (round, runs) in rounds.iter().enumerate() {
        for (position, arm) in runs.iter().enumerate() {
            assert_eq!(session.arms[*arm].runs[round].position, position);
        }
    }
    // The seed determines the order; a different seed gives a different order.
    let order = |seed: u64| {
        let mut mock = Mock::new(&[0.1; 4], Noise::default(), 1);
        run(&mut mock, &Plan { seed, ..exact.clone() }).unwrap();
        mock.ran.take()
    };
    assert_eq!(order(7)[1..], ran);
    assert_ne!(order(8)[1..], ran);
}

#[test]
fn the_budget_is_kept() {
    let mut mock = Mock::new(&[1.0, 1.0], Noise { deviation: 0.3, ..Noise::default() }, 3);
    let plan = Plan { budget: Duration::from_secs(60), ..plan(3) };
    let session = run(&mut mock, &plan).unwrap();
    assert_eq!(session.stopped, Stopped::Budget);
    let spent = mock.clock.now().as_secs_f64();
    assert!((50.0..63.0).contains(&spent), "{spent}");
    // There is always one round.
    let session = run(&mut Mock::new(&[1.0, 1.0], REALISTIC, 3), &Plan { budget: Duration::ZERO, ..plan }).unwrap();
    assert_eq!(session.arms[1].runs.len(), 1);
}

/// Two comparisons with one budget: each has its first round before any has a second, and nothing runs after the budget
/// is spent.
#[test]
fn comparisons_share_a_budget() {
    let costs = [1.0, 2.0, 1.0];
    let mut mock = Mock::new(&costs, Noise { deviation: 0.3, ..Noise::default() }, 5);
    let clock = mock.clock.clone();
    let cases = [case(3), case(3), case(3)];
    let mut comparisons: Vec<Comparison<'_>> = cases.iter().map(|case| Comparison::new(case, plan(5))).collect();
    let mut tools = Tools { executor: &mut mock, clock: &clock, observer: &mut |_| {}, interrupted: &|| false };
    // One run of the first arm and a round take some 5 s for each of them. The third does not fit.
    let end = Duration::from_secs(12);
    for (number, comparison) in comparisons.iter_mut().enumerate() {
        comparison.open((number > 0).then_some(end), &mut tools).unwrap();
    }
    assert_eq!(comparisons.iter().map(Comparison::rounds).collect::<Vec<_>>(), [1, 1, 0]);
    let aim = Duration::from_secs(40);
    for comparison in &mut comparisons {
        comparison.go_on(Until { aim, end: Some(aim) }, &mut tools);
    }
    assert!(clock.now() < aim + Duration::from_secs(3), "{:?}", clock.now());
    let sessions: Vec<Session> = comparisons.into_iter().map(Comparison::finish).collect();
    assert!(sessions.iter().all(|session| session.stopped == Stopped::Budget));
    assert!(sessions[0].arms[0].runs.len() > 3 && sessions[1].arms[0].runs.len() == 1);
    assert!(sessions[2].arms.iter().all(|arm| arm.runs.is_empty()));
    let rounds: Vec<usize> = sessions[0].arms[2].runs.iter().map(|run| run.round).collect();
    assert_eq!(rounds, (0..rounds.len()).collect::<Vec<_>>());
}

/// Once an arm's interval is narrow enough, the time goes to the others.
#[test]
fn precise_arms_leave_the_rounds_to_the_others() {
    let noise = Noise { deviation: 0.05, ..Noise::default() };
    let mut mock = Mock::new(&[1.0, 0.3, 1.0], noise, 11);
    let session = run(&mut mock, &plan(11)).unwrap();
    let runs: Vec<usize> = session.arms.iter().map(|arm| arm.runs.len()).collect();
    assert!(runs[1] < 15 && runs[0] == runs[2] && runs[2] > 60, "{runs:?}");
    assert_eq!(session.stopped, Stopped::Narrow);
    assert!((0.27..0.33).contains(&ratio(&session, 1).value));
    // Where each figure has to be precise, the large difference takes as many rounds.
    let strict = Plan { of_the_difference: 0.0, ..plan(11) };
    let session = run(&mut Mock::new(&[1.0, 0.3, 1.0], noise, 11), &strict).unwrap();
    assert!(session.arms[1].runs.len() > 60 && ratio(&session, 1).is_within(0.015));
}

#[test]
fn a_shared_budget_goes_where_it_makes_most_figures_precise() {
    let seconds = Duration::from_secs;
    let need =
        |is_basic, spent, left| Some(Need { is_basic, spent: seconds(spent), next: seconds(1), left: seconds(left) });
    // The least number of rounds comes first, in turn; then the comparison that is soon done.
    assert_eq!(neediest(&[need(false, 1, 1), need(true, 9, 9), need(true, 5, 90), None]), Some(2));
    assert_eq!(neediest(&[need(false, 1, 50), None, need(false, 90, 20)]), Some(2));
    assert_eq!(neediest(&[None, None]), None);
    // A comparison that is precise needs nothing.
    let mut mock = Mock::new(&[1.0, 0.3], REALISTIC, 1);
    let clock = mock.clock.clone();
    let of_two = case(2);
    let mut comparison = Comparison::new(&of_two, plan(1));
    let mut tools = Tools { executor: &mut mock, clock: &clock, observer: &mut |_| {}, interrupted: &|| false };
    comparison.open(None, &mut tools).unwrap();
    let until = Until { aim: seconds(1000), end: None };
    assert!(comparison.need().is_some_and(|need| need.is_basic && need.next > Duration::ZERO));
    while comparison.need().is_some() {
        comparison.make_round(until, &mut tools);
    }
    assert_eq!((comparison.rounds(), comparison.finish().stopped), (10, Stopped::Narrow));
}

#[test]
fn who_answers_differently_is_out() {
    let mut mock = Mock::new(&[0.1; 3], REALISTIC, 1);
    mock.prints.push((1, "something else"));
    let session = run(&mut mock, &plan(1)).unwrap();
    let failure = session.arms[1].failure.as_deref().unwrap();
    assert_eq!(failure, "prints `something else`, and arm 0 prints `same`");
    assert!(session.arms[1].runs.is_empty() && session.arms[2].runs.len() >= 10);
    // Unless the output is not compared.
    let mut mock = Mock::new(&[0.1; 3], REALISTIC, 1);
    mock.prints.push((1, "something else"));
    let session = run(&mut mock, &Plan { compare_output: false, ..plan(1) }).unwrap();
    assert!(session.arms[1].failure.is_none());
}

#[test]
fn who_breaks_off_half_way_is_out_and_the_others_go_on() {
    let mut mock = Mock::new(&[0.1; 3], REALISTIC, 1);
    mock.breaks = Some((20, 2));
    let session = run(&mut mock, &plan(1)).unwrap();
    assert_eq!(session.arms[2].failure.as_deref(), Some("ends with signal 11, not with exit code 0 as arm 0"));
    assert!((1..10).contains(&session.arms[2].runs.len()) && session.arms[1].runs.len() >= 10);
    let mut mock = Mock::new(&[0.1; 3], REALISTIC, 1);
    mock.breaks = Some((20, 0));
    assert_eq!(run(&mut mock, &plan(1)).unwrap().stopped, Stopped::Failed);
}

#[test]
fn a_first_arm_that_fails_is_an_error() {
    let mut mock = Mock::new(&[0.1; 2], REALISTIC, 1);
    mock.breaks = Some((0, 0));
    let error = run(&mut mock, &plan(1)).unwrap_err();
    assert_eq!(error.to_string(), "arm 0 ends with signal 11");
}

/// A linter that finds something ends with 1, which is not a failure.
#[test]
fn the_exit_code_of_the_first_arm_is_what_all_repeat() {
    let ended = |codes: &[(usize, &[i32])]| {
        let mut mock = Mock::new(&[0.1; 2], REALISTIC, 1);
        mock.codes = codes.iter().map(|(arm, codes)| (*arm, codes.to_vec())).collect();
        run(&mut mock, &plan(1))
    };
    let session = ended(&[(0, &[3]), (1, &[3])]).unwrap();
    assert!(session.arms.iter().all(|arm| arm.failure.is_none() && arm.runs.len() >= 10 && arm.memory.len() == 3));
    assert_eq!(session.end.map(|end| end.status), Some(Status::Exit(3)));
    // A later arm ends differently: from the start, or only after some rounds.
    for codes in [&[(0, &[3][..]), (1, &[0])][..], &[(0, &[3]), (1, &[3, 3, 3, 3, 3, 0])]] {
        let session = ended(codes).unwrap();
        assert_eq!(session.arms[1].failure.as_deref(), Some("ends with exit code 0, not with exit code 3 as arm 0"));
        assert!(session.arms[0].runs.len() >= 10);
    }
    // The first arm itself does: the error names both codes.
    let error = ended(&[(0, &[1, 2, 1])]).unwrap_err();
    assert_eq!(error.to_string(), "arm 0 does not end the same way twice: with exit code 2, then with exit code 1");
    let session = ended(&[(0, &[1, 1, 1, 1, 1, 2])]).unwrap();
    assert_eq!(session.stopped, Stopped::Failed);
    assert_eq!(session.arms[0].failure.as_deref(), Some("ends with exit code 2, not with exit code 1 as before"));
    // One that ends differently only under tracing is measured, except for its memory.
    let session = ended(&[(0, &[1, 0]), (1, &[1, 0])]).unwrap();
    assert!(session.arms.iter().all(|arm| arm.failure.is_none() && arm.runs.len() >= 10));
    assert_eq!(
        session.arms[0].no_memory.as_deref(),
        Some("traced it ends with exit code 1, and with exit code 0 otherwise")
    );
}

#[test]
fn an_interrupted_session_keeps_whole_rounds() {
    let mut mock = Mock::new(&[0.1; 3], REALISTIC, 1);
    let (clock, ran) = (mock.clock.clone(), mock.ran.clone());
    let mut tools = Tools {
        executor: &mut mock,
        clock: &clock,
        observer: &mut |_| {},
        // This is in the middle of the third round.
        interrupted: &|| ran.borrow().len() > 2 + 2 * 3,
    };
    let session = compare(&case(3), &plan(1), &mut tools).unwrap();
    assert_eq!(session.stopped, Stopped::Interrupted);
    assert!(session.arms.iter().all(|arm| arm.runs.len() == 2 && arm.failure.is_none()));
}

#[test]
fn what_cannot_be_measured_is_left_out_with_the_reason() {
    let session = run(&mut Mock::new(&[0.1; 2], REALISTIC, 1), &plan(1)).unwrap();
    assert_eq!(session.arms[1].memory.len(), 3);
    assert_eq!((session.arms[1].calls, session.arms[1].no_calls.as_deref()), (None, Some("no calls here")));
}

#[test]
fn progress_says_how_long_it_takes() {
    let mut mock = Mock::new(&[1.0, 1.0], REALISTIC, 1);
    let clock = mock.clock.clone();
    let mut lefts = Vec::new();
    let mut observer = |progress: Progress<'_>| {
        if let Progress::Round { left: Some(left), .. } = progress {
            lefts.push(left);
        }
    };
    let mut tools = Tools { executor: &mut mock, clock: &clock, observer: &mut observer, interrupted: &|| false };
    compare(&case(2), &Plan { budget: Duration::from_secs(50), ..plan(1) }, &mut tools).unwrap();
    assert!(lefts.len() > 10 && lefts[0] > lefts[lefts.len() - 1], "{lefts:?}");
    assert!(lefts.iter().all(|left| *left <= Duration::from_secs(50)));
}

//! Invented results for tests of the reports.

use std::time::Duration;

use crate::case::{Arm, Case, Invocation};
use crate::executor::{Calls, End, Figures, Memory, Service, Status};
use crate::machine::{Disturbance, Machine};
use crate::rates::{RateResult, judge};
use crate::recommendation::{Objective, recommend};
use crate::results::{CaseResult, Input, Origin, Results, SCHEMA_VERSION, arms};
use crate::session::{ArmRuns, Plan, Run, Session, Stopped};

/// Returns two programs, one with one and eight threads, the other in two sizes. One arm fails; its name needs
/// escaping.
pub(crate) fn results() -> Results {
    let names = ["stock", "mimalloc", "rpmalloc", "a<b&\"c\""];
    let cases =
        [("map", Some(1), None), ("map", Some(8), None), ("data", Some(2), Some(4)), ("data", Some(2), Some(8))];
    let mut sessions = Vec::new();
    let mut compared = Vec::new();
    for (name, threads, size) in cases {
        let arm = |name: &&str| Arm { name: (*name).to_owned(), invocation: Invocation::default(), broken: None };
        let case = Case { name: name.to_owned(), threads, size, arms: names.iter().map(arm).collect() };
        let scale = size.map_or(1.0, |size| f64::from(u32::try_from(size).unwrap()));
        let session = Session {
            stopped: Stopped::Narrow,
            end: Some(End {
                status: Status::Exit(3),
                digest: [0; 32],
                bytes: 0,
                head: String::new(),
                complaint: "3 <findings>".to_owned(),
            }),
            arms: vec![
                runs(scale, 10 << 20),
                runs(0.5 * scale, 11 << 20),
                runs(0.45 * scale, 40 << 20),
                ArmRuns { failure: Some("prints `<1>`, and stock prints `2`".to_owned()), ..ArmRuns::default() },
            ],
        };
        let mut result = CaseResult::new(&case, &session, &Plan::default(), Disturbance::default());
        if threads == Some(8) {
            // The first arm reaches two of these rates, the second all, the third one; the fourth fails.
            result.rates = [(1_000, [true, true, true]), (2_000, [true, true, false]), (3_000, [false, true, false])]
                .map(|(rate, reached)| RateResult::new(&case, rate, &at_rate(rate, reached)))
                .into();
            judge(&mut result.rates);
        }
        compared.push(result);
        sessions.push(session);
    }
    let origin = |name: &&str| Origin {
        name: (*name).to_owned(),
        donor: (*name != "stock").then(|| (*name).to_owned()),
        command: (*name != "stock").then(|| format!("allograft graft libc.a --donor {name}")),
        eligible: true,
        ..Origin::default()
    };
    let origins: Vec<Origin> = names.iter().map(origin).collect();
    let arms = arms(&origins, &compared, &sessions);
    Results {
        schema_version: SCHEMA_VERSION,
        allograft: "0.0.0".to_owned(),
        input: Input { kind: "suite".to_owned(), ..Input::default() },
        machine: Machine::this(),
        plan: Plan { budget: Duration::from_secs(10), ..Plan::default() },
        recommendation: recommend(&arms, &compared, Objective::Balanced),
        arms,
        cases: compared,
        warnings: vec!["a warning with < in it".to_owned()],
        interrupted: false,
    }
}

/// A session at a rate. Relative to the first arm, the second one has half the latencies, the third one twice as high
/// ones.
fn at_rate(rate: u64, reached: [bool; 3]) -> Session {
    let arm = |(factor, reached): (f64, bool)| {
        let run = |round: usize| {
            let ms = factor * (1.0 + f64::from(u32::try_from(round * 7 % 5).unwrap()) / 500.0);
            let service = Service {
                requests_per_second: rate as f64 * if reached { 1.0 } else { 0.5 },
                rate: None,
                p50_ms: Some(ms),
                p90_ms: Some(2.0 * ms),
                p99_ms: Some(5.0 * ms),
                p999_ms: Some(9.0 * ms),
            };
            let figures =
                Figures { wall_s: 1.0, user_s: 0.5, service: Some(service.at_rate(rate)), ..Figures::default() };
            Run { round, position: 0, figures }
        };
        ArmRuns { runs: (0..10).map(run).collect(), ..ArmRuns::default() }
    };
    let mut arms: Vec<ArmRuns> = [1.0, 0.5, 2.0].into_iter().zip(reached).map(arm).collect();
    arms.push(ArmRuns { failure: Some("prints `<1>`, and stock prints `2`".to_owned()), ..ArmRuns::default() });
    Session { stopped: Stopped::Narrow, end: None, arms }
}

fn runs(seconds: f64, peak: u64) -> ArmRuns {
    let run = |round: usize| {
        let wall_s = seconds * (1.0 + f64::from(u32::try_from(round * 7 % 5).unwrap()) / 500.0);
        Run { round, position: 0, figures: Figures { wall_s, user_s: seconds, ..Figures::default() } }
    };
    ArmRuns {
        runs: (0..10).map(run).collect(),
        memory: vec![Memory { peak_bytes: peak, last_bytes: peak / 2 }],
        calls: Some(Calls { futex: 12345, complete: false, ..Calls::default() }),
        ..ArmRuns::default()
    }
}

//! Measures real programs: their work, their memory when they are idle, and their start-up.

use std::time::Duration;

use anyhow::Result;
use measure::case::Case;
use measure::results::CaseResult;
use measure::session::Plan;
use serde::{Deserialize, Serialize};
use xtask::sessions;

use super::idle::{self, IdleMemory};

/// The figures.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Measured {
    /// The programs' work.
    pub(super) works: Vec<CaseResult>,
    /// Their memory when they are idle.
    pub(super) idle: Vec<IdleMemory>,
    /// Their starts: each prints its version.
    pub(super) starts: Vec<CaseResult>,
}

/// The time for timed runs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Time {
    /// A single round, whatever time it takes.
    pub(crate) quick: bool,
    /// For all runs together.
    pub(crate) minutes: u64,
    /// The share of the programs' work, from 0 to 1. The rest is for their starts.
    pub(crate) of_works: f64,
}

impl Measured {
    /// Measures the work and the starts of programs, and for each pair of `waiting` the memory of a process that a
    /// script makes idle.
    ///
    /// # Errors
    /// An arm fails, its result differs from stock's, or it never gets idle.
    pub(crate) fn measure<'c>(
        works: &[Case],
        starts: &[Case],
        waiting: impl Iterator<Item = (String, &'c Case)>,
        time: Time,
    ) -> Result<Measured> {
        Ok(Measured {
            works: time.compared(works, time.of_works, 100)?,
            starts: time.compared(starts, 1.0 - time.of_works, 1000)?,
            idle: waiting.map(|(script, case)| idle::measure_idle(&script, case)).collect::<Result<_>>()?,
        })
    }
}

impl Time {
    /// Measures the cases for a share of the time, from 0 to 1, with at most `most_rounds` rounds each.
    ///
    /// # Errors
    /// An arm fails, or its result differs from stock's.
    pub(crate) fn compared(self, cases: &[Case], share: f64, most_rounds: usize) -> Result<Vec<CaseResult>> {
        let minutes = if self.quick { 0.0 } else { self.minutes as f64 * share };
        let plan = Plan {
            budget: Duration::from_secs_f64(minutes * 60.0),
            least_rounds: if self.quick { 1 } else { 10 },
            most_rounds,
            precision: 0.02,
            of_the_difference: 0.0,
            memory_runs: if self.quick { 1 } else { 3 },
            count_calls: false,
            ..Plan::default()
        };
        Ok(sessions::compare_all(cases, &plan)?.0)
    }
}

//! Measures real programs: their work, their memory when they are idle, and their start-up.

use anyhow::Result;
use measure::case::Case;
use measure::results::CaseResult;
use measure::session::Plan;
use serde::{Deserialize, Serialize};
use xtask::sessions;

use super::idle::{self, IdleMemory};
use crate::experiment::Bench;

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

impl Measured {
    /// Measures the work and the starts of programs, and for each pair of `waiting` the memory of a process that a
    /// script makes idle. `of_works`: the share of the time for the work, from 0 to 1; the rest is for the starts.
    ///
    /// # Errors
    /// An arm fails, its result differs from stock's, or it never gets idle.
    pub(crate) fn measure<'c>(
        bench: &Bench,
        works: &[Case],
        starts: &[Case],
        waiting: impl Iterator<Item = (String, &'c Case)>,
        of_works: f64,
    ) -> Result<Measured> {
        let runs = if bench.quick { 1 } else { idle::RUNS };
        Ok(Measured {
            works: compared(bench, works, of_works, 100)?,
            starts: compared(bench, starts, 1.0 - of_works, 1000)?,
            idle: waiting.map(|(script, case)| idle::measure_idle(&script, case, runs)).collect::<Result<_>>()?,
        })
    }
}

/// Measures the cases for a share of the time, from 0 to 1, with at most `most_rounds` rounds each.
///
/// # Errors
/// An arm fails, or its result differs from stock's.
pub(crate) fn compared(bench: &Bench, cases: &[Case], share: f64, most_rounds: usize) -> Result<Vec<CaseResult>> {
    let plan = Plan { most_rounds, precision: 0.02, ..bench.plan(10, share) };
    Ok(sessions::compare_all(cases, &plan)?.0)
}

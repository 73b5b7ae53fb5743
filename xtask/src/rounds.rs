//! Interleaved timed runs of several arms, and their statistics.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::command;

/// How many rounds to run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    pub(crate) least: usize,
    pub(crate) most: usize,
    /// No further round is begun, once there are enough, when it would end later than this after the start.
    pub(crate) budget: Duration,
}

/// Runs every arm once in each round, beginning with another one each time, so that drift of the machine and the
/// neighbourhood of the arms fall on all of them alike. `arm` makes the command of the arm with that number; all
/// have to print `expected` on stdout.
///
/// Returns seconds of wall-clock time: for each arm one figure for each round.
///
/// # Errors
/// When a run fails or prints something else.
pub(crate) fn interleave(
    arms: usize,
    effort: Effort,
    expected: &str,
    arm: &mut dyn FnMut(usize) -> Command,
) -> Result<Vec<Vec<f64>>> {
    let started = Instant::now();
    let mut seconds = vec![Vec::new(); arms];
    for round in 0..effort.most {
        let average = started.elapsed() / u32::try_from(round.max(1)).unwrap_or(u32::MAX);
        if round >= effort.least && started.elapsed() + average > effort.budget {
            break;
        }
        for number in order(arms, round) {
            let mut run = arm(number);
            let began = Instant::now();
            let printed = command::output(&mut run)?;
            seconds[number].push(began.elapsed().as_secs_f64());
            ensure!(printed == expected, "{run:?} printed `{}`, expected `{}`", printed.trim(), expected.trim());
        }
    }
    Ok(seconds)
}

/// The arms' numbers from `round` on, around the end; every other time around backwards, so that no arm always follows the
/// same one.
fn order(arms: usize, round: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..arms).map(|at| (at + round) % arms).collect();
    if round % 2 == 1 {
        order.reverse();
    }
    order
}

/// Middle, least and greatest of some figures.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Spread {
    /// Nothing for no figures.
    pub(crate) fn of(figures: &[f64]) -> Option<Spread> {
        let mut sorted = figures.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (low, high) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 };
        Some(Spread { median, low, high })
    }

    /// Of the ratios within each round: a round in which the machine was slow for both weighs no more than another.
    pub(crate) fn of_ratios(figures: &[f64], to: &[f64]) -> Option<Spread> {
        let ratios: Vec<f64> = figures.iter().zip(to).map(|(figure, to)| figure / to).collect();
        Spread::of(&ratios)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_arm_comes_once_in_a_round_and_first_in_some() {
        let mut first = Vec::new();
        for round in 0..8 {
            let mut order = order(4, round);
            first.push(order[0]);
            order.sort_unstable();
            assert_eq!(order, [0, 1, 2, 3]);
        }
        first.sort_unstable();
        first.dedup();
        assert!(first.len() > 1, "{first:?}");
    }

    #[test]
    fn ratios_are_paired_by_round() {
        // The second round ran on a machine ten times slower; the ratio is 0.5 in each.
        let spread = Spread::of_ratios(&[1.0, 10.0, 1.0], &[2.0, 20.0, 2.0]).unwrap();
        assert_eq!(spread, Spread { median: 0.5, low: 0.5, high: 0.5 });
        assert_eq!(Spread::of(&[4.0, 1.0, 2.0, 3.0]).unwrap(), Spread { median: 2.5, low: 1.0, high: 4.0 });
        assert_eq!(Spread::of(&[]), None);
    }

    #[test]
    fn rounds_stop_at_the_budget_but_not_before_the_least() {
        let effort = Effort { least: 2, most: 50, budget: Duration::ZERO };
        let runs = interleave(2, effort, "x\n", &mut |_| {
            let mut command = Command::new("echo");
            command.arg("x");
            command
        });
        assert_eq!(runs.unwrap().iter().map(Vec::len).collect::<Vec<_>>(), [2, 2]);
    }

    #[test]
    fn a_wrong_answer_is_an_error() {
        let effort = Effort { least: 1, most: 1, budget: Duration::ZERO };
        let wrong = interleave(1, effort, "right\n", &mut |_| {
            let mut command = Command::new("echo");
            command.arg("wrong");
            command
        });
        assert!(wrong.unwrap_err().to_string().contains("expected `right`"));
    }
}

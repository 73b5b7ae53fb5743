//! Latencies at equal rates, for a terminal.

use measure::report::rates;
use measure::results::CaseResult;

use crate::output::{Cell, Output, Page, Style};

/// Adds a table for each rate, and sentences that say which arm is better where. Nothing without rates.
pub(super) fn show(case: &CaseResult, text: &mut Page, output: &Output) {
    for rate in &case.rates {
        let title = rates::rate(rate);
        let mut table = output.table(&[&[title.as_str()], &rates::HEADS[..]].concat());
        let mut saturated = Vec::new();
        for arm in &rate.arms {
            match rates::cells(arm) {
                Ok(cells) => {
                    let ratio = arm.tail_ratio().filter(measure::statistics::Ratio::differs);
                    let cell = |(at, cell): (usize, String)| match ratio.filter(|_| at == rates::RATIO) {
                        Some(ratio) => {
                            Cell::from(cell).styled(if ratio.value < 1.0 { Style::Good } else { Style::Bad })
                        }
                        None => Cell::from(cell),
                    };
                    table.row(std::iter::once(rates::name(arm).into()).chain(cells.into_iter().enumerate().map(cell)));
                }
                Err(reason) => saturated.push(format!("  {}: {reason}", output.paint(Style::Bad, &arm.name))),
            }
        }
        text.blank();
        text.table(&table.numbers());
        for line in saturated {
            // Writing to a page does not fail.
            let _ = writeln!(text, "{line}");
        }
    }
    if !case.rates.is_empty() {
        text.blank();
    }
    for sentence in rates::conclusions(case) {
        let _ = writeln!(text, "  {sentence}");
    }
}

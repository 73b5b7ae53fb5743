//! The rows of a table in which the default donor takes more than glibc, beside what each program asks for.

use measure::report::bytes;
use measure::results::{CaseArm, CaseResult, Results};

use crate::asked::Asked;

/// The default donor, and the arm that it is compared with.
const DEFAULT: &str = "snmalloc";
const GLIBC: &str = "glibc";

/// A ratio.
#[derive(Debug, Clone, Copy)]
struct Compared {
    value: f64,
    /// The least and the greatest value that the intervals of both sides allow. `None` after a single round.
    range: Option<(f64, f64)>,
}

impl Compared {
    /// The default's time to glibc's. Both were measured relative to stock's.
    fn of_time(default: &CaseArm, glibc: &CaseArm) -> Option<Compared> {
        let (default, glibc) = (default.ratio_to_stock?, glibc.ratio_to_stock?);
        let range = || Some((default.low? / glibc.high?, default.high? / glibc.low?));
        Some(Compared { value: default.value / glibc.value, range: range() })
    }
}

/// Returns the table of those rows. `asked`: what the programs ask for, if that was counted.
pub(crate) fn table(results: &Results, asked: Option<&Asked>) -> String {
    let asks = if asked.is_some() { " it asks for |" } else { "" };
    let mut text = format!("| | time to glibc's | peak to glibc's |{asks} peak: default | glibc | stock |\n");
    text += &format!("|{}\n", " --- |".repeat(if asked.is_some() { 7 } else { 6 }));
    let mut others = 0;
    for case in &results.cases {
        match row(case, asked) {
            Some(row) => text.push_str(&row),
            None => others += 1,
        }
    }
    format!("{text}\nThe other {others} rows are at most glibc's in time and peak.\n")
}

/// Returns the row of a case, if the default takes more time or memory than glibc in it.
fn row(case: &CaseResult, asked: Option<&Asked>) -> Option<String> {
    let arm = |name: &str| case.arms.iter().find(|arm| arm.name == name);
    let (stock, default, glibc) = (case.arms.first()?, arm(DEFAULT)?, arm(GLIBC)?);
    let time = Compared::of_time(default, glibc)?;
    let peak = default.peak_memory_bytes? as f64 / glibc.peak_memory_bytes? as f64;
    if time.value <= 1.0 && peak <= 1.005 {
        return None;
    }
    let bold = |is_more: bool, text: String| if is_more { format!("**{text}**") } else { text };
    let shown = |bytes_of: Option<u64>| bytes_of.map_or_else(String::new, bytes);
    let asks = |asked: &Asked| format!(" {} |", shown(asked.bytes(&case.name, case.threads, case.size)));
    Some(format!(
        "| {} | {} ({}) | {} |{} {} | {} | {} |\n",
        case.title(),
        bold(time.value > 1.0, format!("{:.2}", time.value)),
        time.range.map_or_else(|| "one round".to_owned(), |(low, high)| format!("{low:.2}–{high:.2}")),
        bold(peak > 1.005, format!("{peak:.2}")),
        asked.map_or_else(String::new, asks),
        shown(default.peak_memory_bytes),
        shown(glibc.peak_memory_bytes),
        shown(stock.peak_memory_bytes),
    ))
}

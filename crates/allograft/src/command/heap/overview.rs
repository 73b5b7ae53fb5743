//! The report in words.

use profiler::heap::{Growth, HeapReport, HeapSite, Holds, LIMITS};
use profiler::size::{change, count, size};

use crate::command::profile::wrapped;
use crate::output::{Cell, Output, Page, Style};

/// The call sites that are shown without `--verbose`.
const SHOWN: usize = 10;

/// Returns the report: the most important first.
pub(crate) fn overview(report: &HeapReport, output: &Output) -> Page {
    let mut page = output.page();
    // Writing to a page cannot fail.
    let _ = writeln!(
        page,
        "{}: {} live in {} blocks  ({})",
        report.program,
        output.paint(Style::Strong, size(report.live.bytes)),
        count(report.live.objects),
        circumstances(report)
    );
    page.blank();
    let sampled = report.sampled.filter(|_| report.live.objects > 0).map(|sampled| {
        let period =
            report.sample_bytes.map_or_else(String::new, |bytes| format!(", about one for each {}", size(bytes)));
        let range = report.retention.live_range.map_or_else(String::new, |(from, to)| {
            format!("; it is {} to {} in 95 of 100 cases", size(from), size(to))
        });
        format!(" Estimated from {} sampled blocks{period}{range}.", count(sampled))
    });
    paragraph(&mut page, &format!("{}.{}", sentence(&report.summary()), sampled.unwrap_or_default()), output);
    page.blank();
    sites(&mut page, report, output);
    page.blank();
    paragraph(&mut page, &format!("Leak or retention? {}", report.retention.text), output);
    if let Some(advice) = advice(report) {
        page.whole(advice);
    }
    if let Some(growth) = &report.growth {
        page.blank();
        grown(&mut page, growth, output);
    }
    page
}

fn paragraph(page: &mut Page, text: &str, output: &Output) {
    for line in wrapped(text, output.columns().unwrap_or(usize::MAX).min(100)) {
        let _ = writeln!(page, "{line}");
    }
}

fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

fn circumstances(report: &HeapReport) -> String {
    let donor = report.donor.as_ref().map(|donor| format!("{donor} {}", report.version.as_deref().unwrap_or_default()));
    let parts = [
        donor.map(|donor| donor.trim_end().to_owned()),
        report.process.map(|process| format!("process {process}")),
        report.seconds.map(|seconds| format!("{seconds:.1} s after its start")),
        report.written_unix_s.and_then(date),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() { "an unknown process".to_owned() } else { parts.join(", ") }
}

/// A time, in seconds since 1970, as a date of UTC; `None` beyond the years that have four digits.
fn date(seconds: u64) -> Option<String> {
    let time = jiff::Timestamp::from_second(i64::try_from(seconds).ok()?).ok()?;
    Some(time.strftime("%Y-%m-%d %H:%M UTC").to_string())
}

fn sites(page: &mut Page, report: &HeapReport, output: &Output) {
    if report.sites.is_empty() {
        return;
    }
    // A site that holds nothing is of interest only where nothing is live.
    let held = report.sites.iter().filter(|site| output.verbose || report.live.bytes == 0 || site.live.bytes > 0);
    let held: Vec<&HeapSite> = held.collect();
    let shown = if output.verbose { held.len() } else { SHOWN };
    let mut table = output.table(&["live", "share", "blocks", "allocated", "freed ones lived", "call site"]).fitting();
    for site in held.iter().take(shown) {
        let line = site.line.as_ref().map_or_else(String::new, |line| format!(" ({line})"));
        table.row([
            size(site.live.bytes).into(),
            format!("{:.1} %", 100.0 * site.share).into(),
            count(site.live.objects).into(),
            size(site.allocated.bytes).into(),
            site.lifetime().unwrap_or_default().into(),
            format!("{}{line}", site.function).into(),
        ]);
        for callers in site.called_by() {
            let empty = ["", "", "", "", ""].map(Cell::from);
            table.row(empty.into_iter().chain([Cell::from(callers).styled(Style::Faint)]));
        }
    }
    page.table(&table);
    if let Some(more @ 1..) = held.len().checked_sub(shown) {
        let _ = writeln!(page, "and {} more, which `-v` lists", count(more as u64));
    }
}

/// The command to try if the allocator retains memory.
fn advice(report: &HeapReport) -> Option<String> {
    if !matches!(report.retention.verdict, Holds::Retained | Holds::Both) {
        return None;
    }
    let donor = donors::find(report.donor.as_deref()?)?;
    let small =
        donor.profile("small").map(|_| format!("try: allograft graft {} --profile small", donor_flag(donor.name)));
    let purge = || {
        let options = donor.options().ok()?;
        let purges = options.iter().any(|option| option.name == "purge_delay");
        purges.then(|| format!("try: allograft graft {} --set purge_delay=0", donor_flag(donor.name)))
    };
    small.or_else(purge)
}

fn donor_flag(name: &str) -> String {
    format!("PROGRAM --donor {name}")
}

fn grown(page: &mut Page, growth: &Growth, output: &Output) {
    paragraph(page, &format!("Growth: {}.", growth.summary()), output);
    let changed: Vec<_> = growth.sites.iter().filter(|site| site.bytes != 0 || site.suspect).collect();
    if changed.is_empty() {
        return;
    }
    page.blank();
    let shown = if output.verbose { changed.len() } else { SHOWN };
    let mut table = output.table(&["live", "blocks", "allocated meanwhile", "growth by call site"]).fitting();
    for site in changed.iter().take(shown) {
        table.row([
            change(site.bytes).into(),
            format!("{:+}", site.objects).into(),
            size(site.allocated.bytes).into(),
            (&site.function).into(),
        ]);
    }
    page.table(&table);
    for site in growth.sites.iter().filter(|site| site.suspect || !site.doubts.is_empty()).take(shown) {
        page.blank();
        let what = if site.suspect { "maybe a leak" } else { "hardly a leak" };
        let _ = writeln!(page, "{}: {what}", output.paint(Style::Strong, &site.function));
        for reason in &site.reasons {
            let _ = writeln!(page, "  + {reason}");
        }
        for doubt in &site.doubts {
            let _ = writeln!(page, "  - {doubt}");
        }
    }
    if growth.sites.iter().any(|site| site.suspect) {
        page.blank();
        paragraph(page, LIMITS, output);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against `date -u -d @SECONDS`.
    #[test]
    fn dates() {
        for (seconds, expected) in [
            (0, "1970-01-01 00:00 UTC"),
            (951_782_400, "2000-02-29 00:00 UTC"),
            (1_795_881_599, "2026-11-28 15:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00 UTC"),
        ] {
            assert_eq!(date(seconds).as_deref(), Some(expected));
        }
    }
}

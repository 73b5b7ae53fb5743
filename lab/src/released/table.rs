//! The tables of released programs in the docs.

use std::fmt::Write as _;

use fixtures::Arch;
use measure::statistics::{Ratio, median};

use super::source::Source;
use super::work::{self, Work};
use super::{Document, Figures, Run};

/// Returns the tables of results and of commands. Emulated programs have no times.
pub(super) fn text(document: &Document, arch: Arch) -> String {
    let by = format!("{} with {}", document.allograft, document.donor);
    let mut text = match &document.emulator {
        Some(emulator) => {
            format!("{by}, run by {emulator}.\n\n| program | work | runs of each |\n| --- | --- | --- |\n")
        }
        None => format!(
            "{by}, {} processors. Time and memory: medians. Ratio: of the graft's time to stock's in the same round, \
             with the interval in which it lies at 95 %.\n\n\
             | program | work | runs of each | time, stock | time, graft | ratio | memory, stock | memory, graft |\n\
             | --- | --- | --- | --- | --- | --- | --- | --- |\n",
            document.processors
        ),
    };
    for figures in &document.programs {
        let runs = figures.graft.iter().filter(|run| run.seconds.is_some()).count();
        let _ = write!(text, "| {} | {} | {runs} |", figures.program, figures.about);
        if document.emulator.is_none() {
            text.push_str(&costs(figures));
        }
        text.push('\n');
    }
    text.push_str("\nAll runs of a work ended with the same exit code and output:\n\n");
    text.push_str("| program | arguments | exit code | output | its SHA-256 begins with |\n");
    text.push_str("| --- | --- | --- | --- | --- |\n");
    for figures in &document.programs {
        let _ = writeln!(
            text,
            "| {} | `{}` | {} | {} bytes{}{} | `{}` |",
            figures.program,
            figures.arguments.join(" "),
            figures.exit_code,
            figures.output_bytes,
            if figures.errors { ", with stderr" } else { "" },
            if figures.sorted { ", sorted" } else { "" },
            short(&figures.output_sha256),
        );
    }
    text.push_str(&downloads(document, arch));
    text
}

/// Returns the table of packages: the download, its content, and the graft made from it.
fn downloads(document: &Document, arch: Arch) -> String {
    let mut text = String::from("\nThe downloads, and how the SHA-256 of each package and of the graft begins:\n\n");
    text.push_str("| program | download | file in the package | package | graft |\n| --- | --- | --- | --- | --- |\n");
    let mut shown: Vec<&str> = Vec::new();
    for figures in &document.programs {
        let work = work::ALL.iter().find(|work: &&Work| work.program == figures.program);
        let source =
            work.and_then(|work| Source::find(work, arch)).filter(|source| source.package() == figures.package);
        let Some(source) = source.filter(|_| !shown.contains(&figures.program.as_str())) else { continue };
        shown.push(&figures.program);
        let (path, sha256) = match source.file() {
            Some((path, sha256)) => (format!("`{path}`"), format!("`{}`", short(sha256))),
            None => ("compiled".to_owned(), "by its lock file".to_owned()),
        };
        let graft = figures.graft_sha256.as_deref().map_or_else(|| "-".to_owned(), |it| format!("`{}`", short(it)));
        let _ = writeln!(text, "| {} | `{}` | {path} | {sha256} | {graft} |", figures.program, source.download());
    }
    text
}

/// Returns the first digits of a checksum: enough to compare by eye.
fn short(sha256: &str) -> &str {
    sha256.get(..16).unwrap_or(sha256)
}

/// Returns the columns for time and memory of stock and graft.
fn costs(figures: &Figures) -> String {
    let of = |runs: &[Run], figure: fn(&Run) -> Option<f64>| runs.iter().filter_map(figure).collect::<Vec<_>>();
    let middle = |runs, figure| median(&of(runs, figure));
    let seconds = |run: &Run| run.seconds;
    let megabytes = |run: &Run| Some(run.peak? as f64 / 1e6);
    let (graft, stock) = (of(&figures.graft, seconds), of(&figures.stock, seconds));
    let Some(ratio) = Ratio::paired(&graft, &stock) else { return String::new() };
    let interval = match (ratio.low, ratio.high) {
        (Some(low), Some(high)) => format!(" ({low:.2}-{high:.2})"),
        _ => String::new(),
    };
    format!(
        " {:.3} s | {:.3} s | {:.2}{interval} | {:.1} MB | {:.1} MB |",
        middle(&figures.stock, seconds),
        middle(&figures.graft, seconds),
        ratio.value,
        middle(&figures.stock, megabytes),
        middle(&figures.graft, megabytes),
    )
}

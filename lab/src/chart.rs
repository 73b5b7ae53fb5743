//! The chart of the README: times of stock musl, of the default graft and of glibc, as bars in an SVG: one file for
//! light pages and one for dark ones.

use std::fmt::Write;
use std::fs;

use anyhow::{Context, Result, bail};
use measure::report::{bytes, seconds};
use measure::results::{CaseResult, Results};
use tools::workspace;
use xtask::page::Table;

use crate::{experiment, suite};

/// The place of the charts in README.md.
const PLACE: Table =
    Table { page: "README.md", begin: "<!-- chart: made by `cargo xtask bench tables` -->", end: "<!-- /chart -->" };

/// Colours of a chart: page, text, lesser text, and the bars of stock, graft and glibc.
struct Colours {
    file: &'static str,
    page: &'static str,
    text: &'static str,
    lesser: &'static str,
    bars: [&'static str; 3],
}

const CHARTS: [Colours; 2] = [
    Colours {
        file: "docs/images/before-after-light.svg",
        page: "#ffffff",
        text: "#1f2328",
        lesser: "#59636e",
        bars: ["#b4423a", "#1a7f4b", "#8c959f"],
    },
    Colours {
        file: "docs/images/before-after-dark.svg",
        page: "#15191f",
        text: "#e6edf3",
        lesser: "#9aa6b2",
        bars: ["#e0726a", "#3fb77a", "#7d8794"],
    },
];

/// Names of the arms on the chart, in the order of their bars, and in the figures. The graft is the default one.
const ARMS: [&str; 3] = ["stock", "graft", "glibc"];
const MEASURED: [&str; 3] = ["stock", "snmalloc", "glibc"];
/// The minimum of rounds behind a bar.
const LEAST_ROUNDS: usize = 6;

/// Sizes in the chart's own units. Pages scale it to their width, so letters have to be readable at 360 of 480.
const WIDTH: u32 = 480;
const MARGIN: u32 = 12;
/// The place where bars begin, and the length of the bar for stock.
const BARS: u32 = 58;
const LONGEST: f64 = 190.0;
const ROW: u32 = 18;
/// The height of a title with the space above it.
const TITLE: u32 = 28;
/// The height of the head.
const HEAD: u32 = 44;

/// Times of one program.
struct Group {
    title: String,
    /// The ratio to stock's time, and the text after the bar.
    bars: [(f64, String); 3],
}

/// Writes both charts.
///
/// # Errors
/// There are no figures, or a file cannot be written.
pub(crate) fn write() -> Result<()> {
    let groups = groups()?;
    for colours in &CHARTS {
        let path = workspace::root().join(colours.file);
        fs::create_dir_all(path.parent().unwrap_or(&path))?;
        fs::write(&path, drawn(&groups, colours)).with_context(|| format!("cannot write `{}`", colours.file))?;
        println!("{}: written", colours.file);
    }
    PLACE.write(&picture(&groups))
}

/// Returns the lines that show the charts, with a description in words.
fn picture(groups: &[Group]) -> String {
    let titles: Vec<&str> = groups.iter().map(|group| group.title.as_str()).collect();
    let grafts = || groups.iter().map(|group| group.bars[1].0);
    let (least, most) = (grafts().fold(f64::INFINITY, f64::min), grafts().fold(0.0, f64::max));
    let [light, dark] = CHARTS.each_ref().map(|colours| colours.file);
    format!(
        "<picture>\n  <source media=\"(prefers-color-scheme: dark)\" srcset=\"{dark}\">\n  <img src=\"{light}\" \
         width=\"600\"\n       alt=\"Run time with stock musl, with a graft and with glibc. {}. The graft takes \
         {least:.2} to {most:.2} of stock's time.\">\n</picture>",
        titles.join("; ")
    )
}

/// Returns the groups of the chart: two real programs, two programs of the suite, and the suite as a whole.
fn groups() -> Result<Vec<Group>> {
    let (suite, real) = (suite::results()?, experiment::present("real")?);
    Ok(vec![
        group("SQLite, 2 threads", case(&real, "sqlite", 2)?)?,
        group("zstd, 2 threads", case(&real, "compress", 2)?)?,
        group("An HTTP server in C, 8 threads", case(&suite, "http", 8)?)?,
        group("A hash map in C, 8 threads", case(&suite, "map", 8)?)?,
        whole(&suite)?,
    ])
}

fn case<'r>(results: &'r Results, name: &str, threads: u32) -> Result<&'r CaseResult> {
    let wanted = |case: &&CaseResult| case.name == name && case.threads == Some(threads);
    results.cases.iter().find(wanted).with_context(|| format!("no figures of `{name}` with {threads} threads"))
}

fn group(title: &str, case: &CaseResult) -> Result<Group> {
    if case.rounds < LEAST_ROUNDS {
        bail!("`{}` was measured in {} rounds, and the chart wants {LEAST_ROUNDS}", case.name, case.rounds);
    }
    let mut bars = Vec::new();
    for name in MEASURED {
        let missing = || format!("`{}` lacks figures of `{name}`", case.name);
        let arm = case.arms.iter().find(|arm| arm.name == name).with_context(missing)?;
        let (time, peak) = (arm.cost_s.with_context(missing)?.median, arm.peak_memory_bytes.with_context(missing)?);
        let (ratio, time) = match arm.ratio_to_stock {
            Some(ratio) if name != MEASURED[0] => (ratio.value, format!("{:.2} of the time", ratio.value)),
            _ if name == MEASURED[0] => (1.0, seconds(time)),
            _ => bail!(missing()),
        };
        bars.push((ratio, format!("{time}, {}", bytes(peak))));
    }
    Ok(Group { title: title.to_owned(), bars: three(bars)? })
}

fn whole(suite: &Results) -> Result<Group> {
    let mut bars = Vec::new();
    for name in MEASURED {
        let arm = suite.arms.iter().find(|arm| arm.origin.name == name).with_context(|| format!("no arm `{name}`"))?;
        let ratio = arm.ratio_to_stock.with_context(|| format!("no ratio of `{name}`"))?.value;
        let behind = if name == "stock" { "1".to_owned() } else { format!("{ratio:.2} of the time") };
        bars.push((ratio, behind));
    }
    let title = format!("Our suite: {} cases, geometric mean", suite.cases.len());
    Ok(Group { title, bars: three(bars)? })
}

fn three(bars: Vec<(f64, String)>) -> Result<[(f64, String); 3]> {
    bars.try_into().ok().context("there are not three bars")
}

fn drawn(groups: &[Group], colours: &Colours) -> String {
    let rows = u32::try_from(ARMS.len()).unwrap_or_default();
    let count = u32::try_from(groups.len()).unwrap_or_default();
    let height = HEAD + count * (TITLE + rows * ROW) + MARGIN;
    let most = groups.iter().flat_map(|group| &group.bars).fold(1.0, |most: f64, (ratio, _)| most.max(*ratio));
    let Colours { page, text, lesser, bars, .. } = colours;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\" role=\"img\" font-family=\"system-ui, sans-serif\" font-size=\"12\">\n\
         <title>Run time with stock musl, with a graft and with glibc: shorter bars are better</title>\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" rx=\"8\" fill=\"{page}\"/>\n\
         <text x=\"{MARGIN}\" y=\"22\" fill=\"{text}\" font-size=\"15\" font-weight=\"600\">\
         Run time: stock musl, graft, glibc</text>\n\
         <text x=\"{MARGIN}\" y=\"39\" fill=\"{lesser}\">shorter is better; peak memory behind the bars; the graft \
         is the default one</text>\n"
    );
    let mut y = HEAD;
    for group in groups {
        y += TITLE;
        let title = escaped(&group.title);
        let _ =
            writeln!(svg, "<text x=\"{MARGIN}\" y=\"{}\" fill=\"{text}\" font-weight=\"600\">{title}</text>", y - 7);
        for ((arm, colour), (ratio, behind)) in ARMS.iter().zip(bars).zip(&group.bars) {
            let length = ratio / most * LONGEST;
            let line = y + 11;
            let _ = writeln!(
                svg,
                "<text x=\"{MARGIN}\" y=\"{line}\" fill=\"{lesser}\">{arm}</text>\
                 <rect x=\"{BARS}\" y=\"{y}\" width=\"{length:.1}\" height=\"14\" rx=\"2\" fill=\"{colour}\"/>\
                 <text x=\"{:.1}\" y=\"{line}\" fill=\"{text}\">{behind}</text>",
                f64::from(BARS) + length + 6.0
            );
            y += ROW;
        }
    }
    svg + "</svg>\n"
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_charts_are_those_of_the_kept_figures() {
        let groups = groups().unwrap();
        for colours in &CHARTS {
            let there = fs::read_to_string(workspace::root().join(colours.file)).unwrap_or_default();
            let same = there == drawn(&groups, colours);
            assert!(same, "`{}` is not of the kept figures: `cargo xtask bench tables`", colours.file);
        }
        PLACE.check(&picture(&groups)).unwrap();
    }

    /// The graft on the chart has the default donor of `graft`.
    #[test]
    fn the_chart_shows_the_default_donor() {
        assert_eq!(MEASURED[1], format::DEFAULT_DONORS[0]);
        assert!(groups().unwrap().iter().all(|group| group.bars[1].0 < 1.0));
    }

    #[test]
    fn a_bar_is_as_long_as_its_ratio() {
        let bars = [(1.0, "1 s".to_owned()), (0.5, "half".to_owned()), (0.25, "less".to_owned())];
        let svg = drawn(&[Group { title: "a < b".to_owned(), bars }], &CHARTS[0]);
        let lengths = [LONGEST, LONGEST / 2.0, LONGEST / 4.0].map(|length| format!("width=\"{length:.1}\""));
        assert!(lengths.iter().all(|length| svg.contains(length)), "{svg}");
        assert!(svg.contains("a &lt; b"));
    }
}

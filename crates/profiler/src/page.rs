//! The report as a self-contained page: it needs no network, and shows everything without its script.

use std::fmt::Write;

use crate::analysis::{Profile, Site};
use crate::attribution::Shares;
use crate::flame::{DARK, FRAMES, LIGHT, SCRIPT, escaped};

/// The looks of the page: those of the report of `allograft bench`.
const STYLE: &str = "\
*{box-sizing:border-box}\
body{margin:0 auto;padding:2rem 1.25rem 4rem;max-width:78rem;background:var(--paper);color:var(--ink);\
font:16px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,'Noto Sans',sans-serif}\
h1{font-size:1.1rem;font-weight:600;margin:0 0 .5rem;color:var(--quiet)}h2{font-size:1.15rem;margin:2.5rem 0 .5rem}\
p{margin:.4rem 0;max-width:50rem}.quiet{color:var(--quiet);font-size:.9rem}\
.verdict{background:var(--panel);border-left:4px solid var(--accent);padding:1rem 1.25rem;border-radius:0 6px 6px 0}\
.choice{font-size:1.9rem;font-weight:700;line-height:1.2;margin:0 0 .5rem}\
.warning{background:var(--warn-panel);color:var(--warn);padding:.5rem .75rem;border-radius:6px;max-width:none}\
pre{background:var(--paper);border:1px solid var(--line);border-radius:6px;padding:.6rem .8rem;white-space:pre-wrap;\
overflow-wrap:anywhere;font:.9rem/1.4 ui-monospace,'Cascadia Mono','DejaVu Sans Mono',monospace}\
table{border-collapse:collapse;font-size:.85rem;font-variant-numeric:tabular-nums;width:100%}\
th,td{padding:.3rem .55rem;text-align:right;border-bottom:1px solid var(--line)}\
th:first-child,td:first-child{text-align:left;overflow-wrap:anywhere}th{font-weight:600;color:var(--quiet)}\
dl{display:grid;grid-template-columns:max-content 1fr;gap:.25rem 1rem;font-size:.9rem;margin:0}dt{color:var(--quiet)}\
dd{margin:0;overflow-wrap:anywhere}\
.chart{display:block;width:100%;height:160px;margin:.5rem 0 0}\
.ticks{display:flex;justify-content:space-between;max-width:none;margin:0 0 1rem}\
.flame{display:block;margin:.25rem 0 1rem}.flame svg{cursor:pointer}.flame svg:focus{outline:none}\
.flame svg:focus rect{stroke:var(--accent);stroke-width:3}.flame .caller{opacity:.6}\
.searched svg:not(.hit){opacity:.35}.searched .hit rect{stroke:var(--ink);stroke-width:1.5}\
.tools{display:flex;flex-wrap:wrap;gap:.5rem;margin:.75rem 0 .25rem}\
.tools input,.tools button{font:inherit;font-size:.9rem;padding:.25rem .6rem;border:1px solid var(--line);\
border-radius:6px;background:var(--panel);color:var(--ink)}.tools input{flex:1 1 12rem;max-width:24rem}\
.tools button:disabled{color:var(--quiet)}.line{display:block;min-height:1.5em;color:var(--quiet);font-size:.9rem;\
overflow-wrap:anywhere}\
@media(max-width:40rem){body{padding:1.25rem .75rem 3rem}.choice{font-size:1.5rem}dl{grid-template-columns:1fr}\
dt{margin-top:.4rem}}@media print{.tools,.line{display:none}}\
.s0{fill:var(--fa)}.s1{fill:#d9534f}.s2{fill:#e0a050}.s3{fill:#5fa777}.s4{fill:var(--fs)}.s5{fill:var(--fl)}\
.s6{fill:#4f9aa0}.s7{fill:var(--fn)}.s8{fill:var(--fo)}\
.key{display:inline-block;margin-right:1rem;font-size:.85rem}\
.key svg{display:inline;width:.8rem;height:.8rem;margin:0 .35rem 0 0}";

/// The parts of the time, in the order in which they are drawn.
const PARTS: [&str; 9] = [
    "in the allocator",
    "on its lock",
    "memory calls for it",
    "page faults, own mappings",
    "memory and string functions",
    "own locks",
    "input and output",
    "waiting",
    "own code",
];

fn parts(shares: &Shares) -> [f64; 9] {
    let Shares { running, lock, memory, faults, strings, own_lock, io, wait, cpu } = *shares;
    [running, lock, memory, faults, strings, own_lock, io, wait, cpu]
}

/// Returns a page with the looks and the script of all reports.
pub(crate) fn document(title: &str, body: &str) -> String {
    let theme = format!(
        ":root{{color-scheme:light dark;--paper:#fff;--ink:#1c1e21;--quiet:#5c636b;--line:#d9dde2;--panel:#f4f6f8;\
         --accent:#0b57a4;--warn:#8a5a00;--warn-panel:#fff6e0;{LIGHT}}}@media(prefers-color-scheme:dark){{:root{{\
         --paper:#15181c;--ink:#e6e8eb;--quiet:#a0a8b1;--line:#343a42;--panel:#1e2329;--accent:#7db7f5;\
         --warn:#ffcc66;--warn-panel:#2f2712;{DARK}}}}}"
    );
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/><meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\"/><title>{title}</title>\
         <style>{theme}{STYLE}{FRAMES}</style></head>\n<body>{body}<script>{SCRIPT}</script></body></html>\n"
    )
}

impl Profile {
    /// The report: verdict, shares, shares over time, both flame graphs, call sites, circumstances.
    pub fn page(&self) -> String {
        let analysis = &self.analysis;
        let verdict = &analysis.verdict;
        let mut body = format!(
            "<header><h1>What does it wait for?</h1><div class=\"verdict\"><p class=\"choice\">{}</p><p>{}</p>",
            escaped(verdict.bottleneck.name()),
            escaped(&verdict.text)
        );
        // Writing to a string cannot fail.
        if let Some(command) = &verdict.command {
            let _ = write!(body, "<pre>{}</pre>", escaped(command));
        }
        body.push_str("</div>");
        for warning in &analysis.warnings {
            let _ = write!(body, "<p class=\"warning\">{}</p>", escaped(warning));
        }
        body.push_str("</header><section><h2>Shares of the time</h2>");
        body.push_str(&self.shares());
        body.push_str("</section>");
        let flames = [
            ("On the processor", self.on_cpu(), "Time for which threads had a processor, by what called what."),
            (
                "Off the processor",
                self.off_cpu(),
                "Time for which threads were blocked, or waited for a processor; at the bottom, what they waited for.",
            ),
        ];
        for (title, flame, caption) in flames {
            let drawing = flame.element(title);
            let _ = write!(body, "<section><h2>{title}</h2><p class=\"quiet\">{caption}</p>{drawing}</section>");
        }
        body.push_str(&sites("Call sites by time on a processor", &analysis.running));
        body.push_str(&sites("Call sites by time blocked on locks", &analysis.locks));
        body.push_str(&self.circumstances());
        document("allograft profile", &body)
    }

    /// The shares over time as a stacked chart, with the whole recording's in the key.
    fn shares(&self) -> String {
        let mut text = "<p>".to_owned();
        let whole = parts(&self.attribution.shares);
        for (at, name) in PARTS.iter().enumerate().filter(|(at, _)| whole[*at] >= 0.0005) {
            let _ = write!(
                text,
                "<span class=\"key\"><svg viewBox=\"0 0 10 10\"><rect class=\"s{at}\" width=\"10\" \
                 height=\"10\"/></svg>{name} {:.1} %</span>",
                100.0 * whole[at]
            );
        }
        let over_time = &self.attribution.over_time;
        let (width, height) = (1200.0, 160.0);
        let step = width / over_time.len() as f64;
        let _ = write!(
            text,
            "</p><svg class=\"chart\" viewBox=\"0 0 {width} {height}\" preserveAspectRatio=\"none\" role=\"img\" \
             aria-label=\"shares over time\">"
        );
        for (at, shares) in over_time.iter().enumerate() {
            let mut top = 0.0;
            for (part, share) in parts(shares).into_iter().enumerate() {
                if share > 0.0 {
                    let _ = write!(
                        text,
                        "<rect class=\"s{part}\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\"/>",
                        at as f64 * step,
                        top * height,
                        step + 0.5,
                        share * height
                    );
                }
                top += share;
            }
        }
        let end = self.analysis.recording.duration_s;
        let _ = write!(text, "</svg><p class=\"quiet ticks\"><span>0 s</span><span>{end:.1} s</span></p>");
        text
    }

    fn circumstances(&self) -> String {
        let (analysis, recording, rates) = (&self.analysis, &self.analysis.recording, &self.analysis.rates);
        let mut text = "<section><h2>Circumstances</h2><dl>".to_owned();
        let rows = [
            ("program", analysis.program.clone()),
            ("malloc", analysis.malloc.clone()),
            (
                "recorded",
                format!("{:.2} s, {} moments, {} samples", recording.duration_s, recording.moments, recording.samples),
            ),
            (
                "threads",
                match recording.processes {
                    1 => format!("{} in 1 process", recording.threads),
                    processes => format!("{} in {processes} processes", recording.threads),
                },
            ),
            ("truncated stacks", format!("{:.1} %", 100.0 * recording.truncated)),
            ("processors in use", format!("{:.2}", rates.processors)),
            ("processor time", format!("{:.2} s of all threads", recording.processor_s)),
            (
                "waiting for a processor",
                format!("{:.1} % of the time of threads that could run", 100.0 * analysis.detail.processor_wait),
            ),
            ("page faults", format!("{:.0} a second", rates.page_faults)),
            ("voluntary switches", format!("{:.0} a second", rates.voluntary_switches)),
            ("calls of futex", about(rates.futex_calls)),
            ("calls of mmap and its like", about(rates.memory_calls)),
            ("time that recording took", format!("{:.1} % of one processor", 100.0 * recording.overhead)),
        ];
        for (name, value) in rows {
            let _ = write!(text, "<dt>{name}</dt><dd>{}</dd>", escaped(&value));
        }
        text + "</dl></section>"
    }
}

/// A figure that is an estimate, if there is one.
fn about(rate: Option<f64>) -> String {
    rate.map_or_else(|| "not counted".to_owned(), |rate| format!("about {rate:.0} a second"))
}

fn sites(title: &str, sites: &[Site]) -> String {
    if sites.is_empty() {
        return String::new();
    }
    let mut text =
        format!("<section><h2>{title}</h2><table><thead><tr><th>function</th><th>share</th></tr></thead><tbody>");
    for site in sites {
        let line = site
            .line
            .as_deref()
            .map_or_else(String::new, |line| format!(" <span class=\"quiet\">{}</span>", escaped(line)));
        let _ = write!(text, "<tr><td>{}{line}</td><td>{:.1} %</td></tr>", escaped(&site.function), 100.0 * site.share);
    }
    text + "</tbody></table></section>"
}

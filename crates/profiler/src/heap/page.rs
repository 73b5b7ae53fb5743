//! The report as a self-contained page: it needs no network, and shows everything without its script.

use std::collections::HashMap;
use std::fmt::Write;
use std::rc::Rc;

use super::growth::{Growth, LIMITS};
use super::names::Names;
use super::reader::{HeapProfile, LIFETIMES, Row};
use super::report::{Heap, HeapSite};
use super::sites::{frames, wanting};
use crate::flame::{Colour, Flame, escaped};
use crate::page::document;
use crate::size::{change, count, size};

/// The call sites in a table.
const SHOWN: usize = 100;

/// A stack with its frames' colours, the outermost first.
type Path = Vec<(Rc<str>, Colour)>;

impl Heap {
    /// The report: summary, leak or retention, flame graphs, tables of call sites, circumstances.
    pub fn page(&self) -> String {
        let report = &self.report;
        let mut body = format!(
            "<header><h1>What does the heap hold?</h1><div class=\"verdict\"><p class=\"choice\">{} live: {}</p>",
            size(report.live.bytes),
            escaped(&report.summary())
        );
        // Writing to a string cannot fail.
        let _ = write!(body, "<p>{}</p>", escaped(&report.retention.text));
        if let Some(growth) = &report.growth {
            let _ = write!(body, "<p>{}</p>", escaped(&growth.summary()));
        }
        body.push_str("</div>");
        for warning in &report.warnings {
            let _ = write!(body, "<p class=\"warning\">{}</p>", escaped(warning));
        }
        body.push_str("</header>");
        let live = |row: &Row| row.live.bytes;
        let mut flames =
            vec![("Live bytes", flame(&self.profile, &self.names, live), "Blocks in use, by what called what.")];
        if let Some((older, names)) = &self.older {
            flames.push((
                "Growth",
                growth(stacks(&self.profile, &self.names, live), stacks(older, names, live)),
                "Stacks that have more live bytes than in the older profile, by what is more.",
            ));
        }
        flames.push((
            "Allocated bytes",
            flame(&self.profile, &self.names, |row| row.allocated.bytes),
            "All blocks since the start, freed or not.",
        ));
        for (title, flame, caption) in flames.into_iter().filter(|(_, flame, _)| !flame.is_empty()) {
            let drawing = flame.element(title);
            let _ = write!(body, "<section><h2>{title}</h2><p class=\"quiet\">{caption}</p>{drawing}</section>");
        }
        if let Some(growth) = &report.growth {
            body.push_str(&grown(growth));
        }
        body.push_str(&sites(&report.sites));
        body.push_str(&self.circumstances());
        document("allograft heap", &body)
    }

    fn circumstances(&self) -> String {
        let report = &self.report;
        let retention = &report.retention;
        let donor = report.donor.clone().map(|donor| format!("{donor} {}", report.version.clone().unwrap_or_default()));
        let rows = [
            ("program", Some(report.program.clone())),
            ("allocator", donor),
            ("process", report.process.map(|process| process.to_string())),
            ("after its start", report.seconds.map(|seconds| format!("{seconds:.1} s"))),
            ("live", Some(format!("{} in {} blocks", size(report.live.bytes), count(report.live.objects)))),
            ("range of live bytes", retention.live_range.map(|(from, to)| format!("{} to {}", size(from), size(to)))),
            ("sampled live blocks", report.sampled.map(count)),
            ("one sample for each", report.sample_bytes.map(size)),
            (
                "allocated since the start",
                Some(format!("{} in {} blocks", size(report.allocated.bytes), count(report.allocated.objects))),
            ),
            ("resident memory of the allocator", retention.resident_bytes.map(size)),
            ("of it, not live", retention.retained_bytes.map(size)),
            ("given back to the kernel", retention.returned_bytes.map(size)),
            ("reserved address space", retention.reserved_bytes.map(size)),
        ];
        let mut text = "<section><h2>Circumstances</h2><dl>".to_owned();
        for (name, value) in rows {
            if let Some(value) = value {
                let _ = write!(text, "<dt>{name}</dt><dd>{}</dd>", escaped(&value));
            }
        }
        text + "</dl></section>"
    }
}

/// The frames of a row from the outermost to the one that wanted its blocks: what is inside of it is the allocator's.
fn path(row: &Row, names: &Names) -> Path {
    let inner = wanting(row, names).unwrap_or(0);
    let mut path: Path = frames(row, names)
        .skip(inner)
        .map(|(_, function)| {
            let known = &names.functions[function as usize];
            let colour = if known.passes { Colour::Label } else { Colour::for_role(known.role) };
            (known.function.name.clone(), colour)
        })
        .collect();
    path.reverse();
    path
}

fn flame(profile: &HeapProfile, names: &Names, bytes: fn(&Row) -> u64) -> Flame {
    let mut flame = Flame::of_bytes();
    for row in profile.rows.iter().filter(|row| bytes(row) > 0) {
        flame.add(path(row, names), bytes(row) as f64);
    }
    flame
}

/// The bytes of each stack.
fn stacks(profile: &HeapProfile, names: &Names, bytes: fn(&Row) -> u64) -> HashMap<Path, u64> {
    let mut stacks = HashMap::new();
    for row in profile.rows.iter().filter(|row| bytes(row) > 0) {
        let sum: &mut u64 = stacks.entry(path(row, names)).or_default();
        *sum = sum.saturating_add(bytes(row));
    }
    stacks
}

fn growth(new: HashMap<Path, u64>, old: HashMap<Path, u64>) -> Flame {
    let mut flame = Flame::of_bytes();
    for (path, bytes) in new {
        let more = bytes.saturating_sub(old.get(&path).copied().unwrap_or(0));
        if more > 0 {
            flame.add(path, more as f64);
        }
    }
    flame
}

fn sites(sites: &[HeapSite]) -> String {
    let mut text = "<section><h2>Call sites</h2><p class=\"quiet\">The function that wanted the blocks, and who called it. \
                    Freed blocks are counted by how long they lived.</p><table><thead><tr><th>function</th><th>live</th>\
                    <th>share</th><th>blocks</th><th>allocated</th>"
        .to_owned();
    let lifetimes = LIFETIMES
        .iter()
        .filter(|lifetime| sites.iter().any(|site| site.freed.iter().any(|freed| freed.lifetime == **lifetime)));
    let lifetimes: Vec<&str> = lifetimes.copied().collect();
    // Writing to a string cannot fail.
    for lifetime in &lifetimes {
        let _ = write!(text, "<th>freed, {lifetime}</th>");
    }
    text.push_str("</tr></thead><tbody>");
    for site in sites.iter().take(SHOWN) {
        let line = site.line.iter().map(|line| format!(" <span class=\"quiet\">{}</span>", escaped(line)));
        let callers = site.called_by().iter().map(|callers| escaped(callers)).collect::<Vec<_>>().join("<br/>");
        let _ = write!(
            text,
            "<tr><td>{}{}<br/><span class=\"quiet\">{}</span></td><td>{}</td><td>{:.1} %</td><td>{}</td><td>{}</td>",
            escaped(&site.function),
            line.collect::<String>(),
            callers,
            size(site.live.bytes),
            100.0 * site.share,
            count(site.live.objects),
            size(site.allocated.bytes)
        );
        for lifetime in &lifetimes {
            let freed = site.freed.iter().find(|freed| freed.lifetime == *lifetime);
            let _ = write!(text, "<td>{}</td>", freed.map_or_else(String::new, |freed| count(freed.objects)));
        }
        text.push_str("</tr>");
    }
    text + "</tbody></table></section>"
}

fn grown(growth: &Growth) -> String {
    let mut text = format!(
        "<section><h2>Growth by call site</h2><p class=\"quiet\">{LIMITS}</p><table><thead><tr><th>function</th>\
         <th>live bytes</th><th>blocks</th><th>allocated meanwhile</th><th>a leak?</th></tr></thead><tbody>"
    );
    for site in growth.sites.iter().take(SHOWN) {
        let reasons =
            site.reasons.iter().chain(&site.doubts).map(|reason| escaped(reason)).collect::<Vec<_>>().join("; ");
        let answer = match (site.suspect, reasons.is_empty()) {
            (true, _) => format!("maybe: {reasons}"),
            (false, true) => String::new(),
            (false, false) => format!("no: {reasons}"),
        };
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "<tr><td>{}</td><td>{}</td><td>{:+}</td><td>{}</td><td class=\"words\">{answer}</td></tr>",
            escaped(&site.function),
            change(site.bytes),
            site.objects,
            size(site.allocated.bytes)
        );
    }
    text + "</tbody></table></section>"
}

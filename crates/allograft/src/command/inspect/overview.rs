//! The text that `inspect` prints: all details of one file, or a table of several.

use inspector::{Allocator, Evidence, GraftMethod, Hook, Kind, Libc, Link, Relro, Report, Strings};

use super::Inspected;
use super::images::InspectedImage;
use crate::json::LeftOut;
use crate::output::{Cell, Output, Page, Style, counted};

pub(super) fn text(inspected: &[Inspected], images: &[InspectedImage], output: &Output) -> Page {
    let mut text = output.page();
    let alone: Vec<&Inspected> = inspected.iter().filter(|file| file.image.is_none()).collect();
    files(&mut text, &alone, alone.len() > 1, output);
    for (number, image) in images.iter().enumerate() {
        if number > 0 || alone.iter().any(|file| file.result.is_ok()) {
            text.blank();
        }
        image.text(&mut text, output);
        let inside: Vec<&Inspected> = inspected.iter().filter(|file| file.image == Some(number)).collect();
        files(&mut text, &inside, true, output);
    }
    text
}

/// Adds a line that counts the files, if there are several or a folder was named. `fits` says with `--expect` which of
/// them have the expected malloc; `left_out` counts the entries of folders that were not inspected. The files of images
/// are counted where these are described.
pub(super) fn totals(
    text: &mut Page,
    inspected: &[Inspected],
    fits: Option<&[Option<bool>]>,
    left_out: Option<&LeftOut>,
) {
    let files: Vec<usize> = (0..inspected.len()).filter(|at| inspected[*at].image.is_none()).collect();
    let is_read = |at: &usize| inspected[*at].result.is_ok();
    if left_out.is_none() && (fits.is_none() || files.len() < 2) || !files.iter().any(is_read) {
        return;
    }
    let unreadable = files.iter().filter(|at| !is_read(at)).count();
    let mut words = Vec::new();
    if let Some(fits) = fits {
        let count = |wanted| files.iter().filter(|at| is_read(at) && fits[**at] == wanted).count();
        words.push(format!("{} as expected", count(Some(true))));
        words.push(format!("{} not", count(Some(false))));
        let others = count(None);
        words.extend((others > 0).then(|| format!("{others} not counted (a backup, or no malloc)")));
    }
    words.extend((unreadable > 0 || fits.is_some()).then(|| format!("{unreadable} unreadable")));
    let words = if words.is_empty() { String::new() } else { format!(": {}", words.join(", ")) };
    let left_out = left_out.map(LeftOut::words).filter(|words| !words.is_empty());
    let left_out = left_out.map(|words| format!("; left out: {words}")).unwrap_or_default();
    let _ = writeln!(text, "{}{words}{left_out}", counted(files.len(), "file"));
}

/// Adds a table of several files, or everything about each one.
fn files(text: &mut Page, inspected: &[&Inspected], several: bool, output: &Output) {
    let read = || inspected.iter().filter_map(|file| Some((*file, file.result.as_ref().ok()?)));
    if several && !output.verbose {
        let named = |file: &Inspected| match backup(file) {
            Some(backup) => format!("{}  ({backup})", file.path.display()),
            None => file.path.display().to_string(),
        };
        table(text, read().map(|(file, report)| (named(file), report)), output);
        return;
    }
    for (file, report) in read() {
        let backup = backup(file).map(|backup| format!("  {backup}")).unwrap_or_default();
        let _ = writeln!(text, "{}: {}{backup}", file.path.display(), in_one_line(report, output));
        // Where the answer is `unknown`, the evidence is all that there is.
        let shown = |allocator: &Allocator| output.verbose || allocator.name == inspector::name::UNKNOWN;
        if shown(&report.malloc) {
            evidence(text, &report.malloc.evidence, output);
        } else if let Some(file) = &report.malloc.file {
            let _ = writeln!(text, "  {} {file}", output.paint(Style::Faint, format_args!("{:<10}", "from")));
        }
        if output.verbose {
            evidence(text, &report.strings_evidence, output);
        }
        if let Some(language) = &report.language_allocator {
            let _ = writeln!(text, "  the language's own blocks: {}", output.paint(Style::Strong, named(language)));
            if shown(language) {
                evidence(text, &language.evidence, output);
            }
        }
        if let Some(libc) = &report.libc_allocator {
            let _ = writeln!(text, "  libc's own blocks: {}", output.paint(Style::Strong, named(libc)));
            if shown(libc) {
                evidence(text, &libc.evidence, output);
            }
        }
        if output.verbose {
            let _ = writeln!(text, "  {}", facts(report).join(", "));
        }
        let _ = writeln!(
            text,
            "  {} {}",
            output.paint(Style::Faint, format_args!("{:<10}", way(report.graft.way))),
            report.graft.detail
        );
    }
}

/// Returns whose backup it is, if it is one.
fn backup(file: &Inspected) -> Option<String> {
    let host = file.backup_of.as_ref()?.file_name().unwrap_or_default();
    Some(format!("backup of {}", host.display()))
}

/// Returns the allocator, and what the file is.
pub(in crate::command) fn in_one_line(report: &Report, output: &Output) -> String {
    format!("{}  ({})", output.paint(Style::Strong, named(&report.malloc)), what(report).join(", "))
}

/// Adds a table with a line for each file. It leaves out details that only the view of one file shows.
fn table<'r>(text: &mut Page, files: impl Iterator<Item = (String, &'r Report)>, output: &Output) {
    let mut table = output.table(&["malloc", "strings", "language", "kind", "libc", "architecture", "file"]);
    let mut empty = true;
    for (path, report) in files {
        empty = false;
        let language = report.language_allocator.as_ref().map(named).unwrap_or_default();
        let kind = match report.link {
            Some(link) => linked(link),
            None => kind(report.kind),
        };
        let strings = match report.strings {
            Strings::Grafted => "grafted",
            Strings::Stock => "stock",
            Strings::Unknown => "unknown",
        };
        let what = [strings.to_owned(), language, kind.to_owned(), libc(report), report.arch.to_string(), path];
        table.row(std::iter::once(named(&report.malloc)).chain(what).map(Cell::from));
    }
    if !empty {
        text.table(&table.spaced(2));
    }
}

/// The allocator's name, and its version if that is known.
pub(in crate::command) fn named(allocator: &Allocator) -> String {
    match &allocator.version {
        Some(version) => format!("{} {version}", allocator.name),
        None => allocator.name.clone(),
    }
}

pub(super) fn evidence(text: &mut Page, evidence: &[Evidence], output: &Output) {
    for evidence in evidence {
        let source = output.paint(Style::Faint, format_args!("{:<10}", evidence.source));
        let _ = writeln!(text, "  {source} {}", evidence.detail);
    }
}

fn what(report: &Report) -> Vec<String> {
    let mut words = vec![kind(report.kind).to_owned(), report.arch.to_string()];
    words.extend(report.link.map(|link| linked(link).to_owned()));
    words.push(libc(report));
    if report.strings == Strings::Grafted {
        words.push("fast string functions".to_owned());
    }
    words
}

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Archive => "archive",
        Kind::Object => "object",
        Kind::Executable => "executable",
        Kind::Shared => "shared",
    }
}

fn linked(link: Link) -> &'static str {
    match link {
        Link::Static => "static",
        Link::StaticPie => "static-pie",
        Link::Dynamic => "dynamic",
    }
}

fn libc(report: &Report) -> String {
    let name = match report.libc {
        Libc::Musl => "musl",
        Libc::Glibc => "glibc",
        Libc::Ucrt => "ucrt",
        Libc::Msvcrt => "msvcrt",
        Libc::None => "no libc",
        Libc::Unknown => "unknown libc",
    };
    match &report.libc_version {
        Some(version) => format!("{name} {version}"),
        None => name.to_owned(),
    }
}

fn facts(report: &Report) -> Vec<String> {
    let facts = &report.facts;
    let mut words = Vec::new();
    words.extend(facts.thread_stack.map(|bytes| format!("thread stacks of {} KiB", bytes / 1024)));
    words.extend(match facts.malloc_atfork {
        Hook::Real => Some("a fork hook".to_owned()),
        Hook::Empty => Some("a fork hook that does nothing".to_owned()),
        Hook::None if report.kind == Kind::Archive => Some("no fork hook".to_owned()),
        _ => None,
    });
    words.extend(facts.relro.map(|relro| {
        match relro {
            Relro::Full => "full RELRO",
            Relro::Partial => "partial RELRO",
            Relro::None => "no RELRO",
        }
        .to_owned()
    }));
    words.extend((facts.executable_stack == Some(true)).then(|| "executable stack".to_owned()));
    words.push(if facts.symbols { "with symbols" } else { "stripped" }.to_owned());
    words
}

fn way(way: GraftMethod) -> &'static str {
    match way {
        GraftMethod::Graft => "graft",
        GraftMethod::Relink => "relink",
        GraftMethod::Preload => "preload",
        GraftMethod::None => "no graft",
        GraftMethod::Unknown => "graft?",
    }
}

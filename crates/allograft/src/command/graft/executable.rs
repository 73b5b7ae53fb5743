//! What `graft` prints of an executable.

use hosts::{Absence, Action, GraftedExecutable, StringEntry, StringFunction};
use inspector::Report;
use serde_json::{Value, json};

use super::{action, next_steps_of, text_of};
use crate::command::inspect::overview::named;
use crate::failure::Failure;
use crate::output::{Output, Page, Style};

/// What a graft leaves as it is, as a clause whose subject is the program.
pub(super) fn keeps_for_its_language(report: &Report) -> Option<String> {
    let language = report.language_allocator.as_ref()?;
    Some(format!(
        "keeps {} for its language's own blocks: only those of C code and of libc change hands",
        named(language)
    ))
}

/// An error, and where mallocng was not found, what serves malloc in its place, if that can be told.
pub(super) fn explained(error: hosts::Error, report: Option<&Report>) -> Failure {
    const UNTOLD: [&str; 3] = ["unknown", "none", "mallocng"];
    let other = report.map(|report| &report.malloc).filter(|malloc| !UNTOLD.contains(&malloc.name.as_str()));
    let other = other.filter(|_| error.has_no_mallocng());
    let mut failure = Failure::from(error);
    if let Some(other) = other {
        failure.message = format!("{}; what serves malloc is {}", failure.message, named(other));
    }
    failure
}

pub(super) fn document(host: &GraftedExecutable) -> Value {
    let entries: Vec<Value> = host
        .entries
        .iter()
        .map(|entry| json!({ "name": entry.role.name(), "address": format!("{:#x}", entry.address) }))
        .collect();
    let donor = &host.donor;
    let host = json!({
        "path": text_of(&host.path),
        "source": host.source.as_deref().map(text_of),
        "kind": "executable",
        "action": action(host.action),
        "plan": if host.action == Action::Unchanged { "unchanged" } else { "graft" },
        "arch": host.arch.name(),
        "link": if host.position_independent { "static-pie" } else { "static" },
        "donor": {
            "name": donor.donor,
            "version": donor.version,
            "options": donor.options,
            "object": donor.object,
        },
        "symbols": host.symbols,
        "entries": entries,
        "strings": strings(host),
        "fork_hook": host.fork_hook,
        "thread_end": host.thread_end,
        "tried": host.tried,
        "stock_sha256": host.stock_sha256,
        "graft_sha256": host.graft_sha256,
        "backup": host.backup.as_deref().map(text_of),
        "notes": host.notes,
    });
    json!({ "hosts": [host], "skipped": [] })
}

/// What became of the string functions: `action` is `grafted` or `off`.
fn strings(host: &GraftedExecutable) -> Value {
    let Some(donor) = &host.strings else {
        return json!({ "action": "off", "donor": null, "entries": [], "kept": [], "absent": [] });
    };
    let absent = host.strings_absent.iter();
    let absent: Vec<Value> =
        absent.map(|(function, why)| json!({ "name": function.name(), "reason": why.to_string() })).collect();
    let entry = |entry: &StringEntry| {
        let (name, address) = (entry.function.name(), format!("{:#x}", entry.address));
        match &entry.kept {
            None => json!({ "name": name, "address": address }),
            Some(kept) => json!({ "name": name, "address": address, "reason": kept.to_string() }),
        }
    };
    let (redirected, kept): (Vec<_>, Vec<_>) = host.string_entries.iter().partition(|entry| entry.kept.is_none());
    json!({
        "action": "grafted",
        "donor": {
            "name": donor.donor,
            "version": donor.version,
            "options": donor.options,
            "object": donor.object,
        },
        "entries": redirected.into_iter().map(entry).collect::<Vec<_>>(),
        "kept": kept.into_iter().map(entry).collect::<Vec<_>>(),
        "absent": absent,
    })
}

/// A line for the string functions that are exchanged, and one for each that stays.
fn describe_strings(text: &mut Page, host: &GraftedExecutable) {
    if host.strings.is_none() {
        return;
    }
    let _ = writeln!(text, "  strings: {}", redirected_names(&host.string_entries).join(" "));
    for entry in &host.string_entries {
        if let Some(kept) = &entry.kept {
            let _ = writeln!(text, "  stays:   {} at {:#x}: {kept}", entry.function, entry.address);
        }
    }
    for (reason, names) in absent_names(&host.strings_absent) {
        let _ = writeln!(text, "  absent:  {}: {reason}", names.join(" "));
    }
}

/// The functions that are redirected, each once; with its addresses where the program has several of it.
fn redirected_names(entries: &[StringEntry]) -> Vec<String> {
    let mut names: Vec<(&str, Vec<String>)> = Vec::new();
    for entry in entries.iter().filter(|entry| entry.kept.is_none()) {
        let (name, address) = (entry.function.name(), format!("{:#x}", entry.address));
        match names.iter_mut().find(|(known, _)| *known == name) {
            Some((_, addresses)) => addresses.push(address),
            None => names.push((name, vec![address])),
        }
    }
    let shown = |(name, addresses): (&str, Vec<String>)| match addresses.as_slice() {
        [_] => name.to_owned(),
        several => format!("{name} ({})", several.join(", ")),
    };
    names.into_iter().map(shown).collect()
}

/// The functions that are not there, by reason.
fn absent_names(absent: &[(StringFunction, Absence)]) -> Vec<(Absence, Vec<&'static str>)> {
    let mut reasons: Vec<(Absence, Vec<&str>)> = Vec::new();
    for (function, reason) in absent {
        match reasons.iter_mut().find(|(known, _)| known == reason) {
            Some((_, names)) => names.push(function.name()),
            None => reasons.push((*reason, vec![function.name()])),
        }
    }
    reasons
}

pub(super) fn summary(host: &GraftedExecutable, output: &Output) -> Page {
    let mut text = output.page();
    let planned = host.action == Action::Planned;
    let word = if planned { "would graft" } else { action(host.action) };
    let label = output.paint(if planned { Style::Notice } else { Style::Good }, word);
    let donor = &host.donor;
    let options = if donor.options.is_empty() { String::new() } else { format!(" ({})", donor.options) };
    let how = match host.action {
        Action::Unchanged => ", which it carries already".to_owned(),
        _ => format!(" behind {} functions of musl's", host.entries.len()),
    };
    let _ = writeln!(
        text,
        "{label}  {}  {}  {} {}{options}{how}",
        host.path.display(),
        host.arch,
        donor.donor,
        donor.version
    );
    if output.verbose {
        for entry in &host.entries {
            let _ = writeln!(text, "  {:<20} {:#x}", entry.role, entry.address);
        }
        for entry in host.string_entries.iter().filter(|entry| entry.kept.is_none()) {
            let _ = writeln!(text, "  {:<20} {:#x}", entry.function, entry.address);
        }
    }
    describe_strings(&mut text, host);
    for tried in &host.tried {
        let _ = writeln!(text, "  {tried}");
    }
    if !planned {
        next_steps_of(&mut text, &host.path, host.backup.as_deref(), host.action != Action::Unchanged, output);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_said_once() {
        let entry = |function, address| StringEntry { function, address, kept: None };
        let (memset, strlen) = (StringFunction::Memset, StringFunction::Strlen);
        let entries = [entry(memset, 0x1000), entry(strlen, 0x1100), entry(memset, 0x1200)];
        assert_eq!(redirected_names(&entries), ["memset (0x1000, 0x1200)", "strlen"]);
    }
}

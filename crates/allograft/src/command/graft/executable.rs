//! The report of `graft` on an executable.

use format::printable;
use hosts::{Absence, Edits, ExecutableOperation, Grafted, Operation, StringEntry, StringFunction};
use inspector::{Kind, Libc, Link, Report, name};

use super::{shell_quoted, step, text_of};
use crate::command::inspect::overview::named;
use crate::failure::Failure;
use crate::output::{Output, Page};

/// The allocator that a graft leaves alone, as a clause whose subject is the program.
pub(crate) fn keeps_for_its_language(report: &Report) -> Option<String> {
    let language = report.language_allocator.as_ref()?;
    Some(match language.name.as_str() {
        name::UNKNOWN => {
            "may keep an allocator of its own for its language's blocks, which is not known: then only those \
                          of C code and of libc change hands"
                .to_owned()
        }
        _ => format!(
            "keeps {} for its language's own blocks: only those of C code and of libc change hands",
            named(language)
        ),
    })
}

/// Returns the failure for an error. If the error is that there is no mallocng, it names the allocator that was found
/// instead.
pub(crate) fn explained(error: hosts::Error, report: Option<&Report>) -> Failure {
    const UNTOLD: [&str; 3] = ["unknown", "none", "mallocng"];
    let other = report.map(|report| &report.malloc).filter(|malloc| !UNTOLD.contains(&malloc.name.as_str()));
    let other = other.filter(|_| error.has_no_mallocng());
    let mut failure = Failure::from(error);
    if let Some(other) = other {
        failure.message = format!("{}; what serves malloc is {}", failure.message, named(other));
    }
    let is_static_glibc = |report: &Report| {
        report.kind == Kind::Executable && report.libc == Libc::Glibc && report.link != Some(Link::Dynamic)
    };
    let is_glibc = report.is_some_and(is_static_glibc);
    if is_glibc && failure.exit_code == 3 {
        failure.help =
            "a static program of glibc takes no donor. Link it with musl (`musl-gcc -static`, a musl target), \
                        or dynamically: into that, `allograft graft` merges one"
                .to_owned();
    }
    failure
}

/// Prints a line for the string functions that are exchanged. With `--verbose`, also one for each that stays, and for
/// those that were not found.
fn describe_strings(text: &mut Page, operation: &ExecutableOperation, output: &Output) {
    if operation.strings.is_none() {
        return;
    }
    let Some(plan) = operation.edits.redirect() else { return };
    let names = redirected_names(&plan.strings).join(" ");
    let kept = plan.strings.iter().filter(|entry| entry.kept.is_some()).count();
    if !output.verbose {
        let others = match (kept, plan.strings_absent.len()) {
            (0, 0) => String::new(),
            (kept, absent) => format!("; {kept} stay, {absent} are not there: `-v` says why"),
        };
        let _ = writeln!(text, "  strings: {names}{others}");
        return;
    }
    let _ = writeln!(text, "  strings: {names}");
    for entry in &plan.strings {
        if let Some(kept) = &entry.kept {
            let _ = writeln!(text, "  stays:   {} at {:#x}: {kept}", entry.function, entry.address);
        }
    }
    for (reason, names) in absent_names(&plan.strings_absent) {
        let _ = writeln!(text, "  absent:  {}: {reason}", names.join(" "));
    }
}

/// The redirected functions, each once. A function that the program has several times has its addresses too.
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

/// The functions that were not found, by reason.
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

/// Where the donor is, as the end of a line.
pub(super) fn place(operation: &ExecutableOperation) -> String {
    match &operation.edits {
        Edits::Redirect(plan) => format!(" behind {} functions of musl's", plan.entries.len()),
        Edits::Merge(plan) => {
            format!(" merged: its {} malloc functions come before {}'s", plan.defined, plan.libc.name())
        }
        Edits::Need(plan) => {
            format!(" in {}, which it loads before {}", printable(&plan.library), plan.libc.name())
        }
    }
}

/// Prints the lines below an executable's own line.
pub(super) fn describe(text: &mut Page, host: &Grafted, operation: &ExecutableOperation, output: &Output) {
    if let (true, Some(plan)) = (output.verbose, operation.edits.redirect()) {
        for entry in &plan.entries {
            let _ = writeln!(text, "  {:<20} {:#x}", entry.role, entry.address);
        }
        for entry in plan.strings.iter().filter(|entry| entry.kept.is_none()) {
            let _ = writeln!(text, "  {:<20} {:#x}", entry.function, entry.address);
        }
    }
    describe_strings(text, operation, output);
    for tried in &host.tried {
        let _ = writeln!(text, "  {tried}");
    }
}

/// For a loader with a backup: prints how stock comes back if no dynamic program starts any more, by a program that
/// needs no loader.
pub(super) fn rescue(text: &mut Page, host: &Grafted, output: &Output) {
    let (Operation::Executable(operation), Some(backup)) = (&host.operation, &host.backup) else { return };
    if operation.edits.redirect().is_none_or(|plan| plan.key_values.is_none()) {
        return;
    }
    let [path, backup] = [&host.path, backup].map(|path| shell_quoted(&text_of(path)));
    step(text, output, "rescue:", &format!("busybox-static mv -f {backup} {path}"));
    step(text, output, "", "any static mv does, and a static allograft; running programs keep the loader they have");
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

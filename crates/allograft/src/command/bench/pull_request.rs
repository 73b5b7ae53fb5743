//! `--pull-request`: what the maintainer of another project needs to decide.

use std::fmt::Write;

use measure::recommendation::Recommendation;
use measure::report;
use measure::results::{ArmResult, Results};

use crate::failure::Failure;
use crate::shell::quoted;

/// Returns the text: its first line is a title, the rest is Markdown.
pub(super) fn text(results: &Results) -> Result<String, Failure> {
    let recommendation = results.recommendation.as_ref().ok_or_else(|| {
        Failure::usage("there is nothing to write a pull request about: no arm was measured beside stock")
            .with_help("name donors: `--donors mimalloc,mimalloc3`")
    })?;
    let chosen = results.arms.iter().find(|arm| arm.origin.name == recommendation.arm);
    // Writing to a string cannot fail.
    let mut text = String::new();
    match chosen.zip(recommendation.command.as_deref()) {
        Some((arm, command)) => {
            let build = if is_linked(results) { "" } else { " in the musl build" };
            let _ = writeln!(text, "Use {}{build}: {}\n", provided(arm), gain(arm));
            text.push_str(&change(results, arm, command));
            let _ = writeln!(text, "## What it brings\n\n{}\n", recommendation.reason);
            text.push_str(&measured(results));
            text.push_str(&risks(results, arm, recommendation));
            text.push_str(&undo(results, command));
        }
        None => {
            let build = if is_linked(results) { "" } else { "musl build's " };
            let title = match recommendation.undecided {
                true => "No answer yet".to_owned(),
                false => format!("Keep the {build}allocator as it is"),
            };
            let _ = writeln!(text, "{title}\n\n{}\n", recommendation.reason);
            text.push_str(&measured(results));
        }
    }
    Ok(text)
}

/// Whether what was measured is a linked program, static or dynamic.
fn is_linked(results: &Results) -> bool {
    ["executable", "preloaded"].contains(&results.input.kind.as_str())
}

/// Whether a command sets variables where a dynamic program is started.
fn sets_variables(command: &str) -> bool {
    ["LD_PRELOAD=", "GLIBC_TUNABLES="].iter().any(|variable| command.contains(variable))
}

/// The arm's donor or setting, with its version.
fn provided(arm: &ArmResult) -> String {
    let donor = arm.origin.donor.as_deref().map(|donor| match &arm.origin.version {
        Some(version) => format!("{donor} {version}"),
        None => donor.to_owned(),
    });
    match (donor, arm.origin.strings) {
        (Some(donor), true) => format!("{donor} and faster string functions"),
        (Some(donor), false) => donor,
        (None, true) => "faster string functions".to_owned(),
        (None, false) => "other settings of glibc's malloc".to_owned(),
    }
}

/// The gain in a few words, for a title.
fn gain(arm: &ArmResult) -> String {
    match (arm.ratio_to_stock, arm.memory_ratio_to_stock) {
        (Some(time), _) if time.value <= 0.97 => format!("{:.2} of the time", time.value),
        (_, Some(memory)) => format!("{memory:.2} of the peak memory"),
        (time, None) => format!("{:.2} of the time", time.map_or(1.0, |time| time.value)),
    }
}

/// The lines to add to the build.
fn change(results: &Results, arm: &ArmResult, command: &str) -> String {
    if arm.origin.donor.is_none() && !arm.origin.strings {
        return format!("## The change\n\nOne line, {}.\n\n```sh\n{command}\n```\n\n", when(results, command));
    }
    let (when, version) = (when(results, command), &results.allograft);
    let archive = format!("allograft-{version}-{}-unknown-linux-musl.tar.gz", std::env::consts::ARCH);
    format!(
        "## The change\n\nTwo lines in the build, {when}. The first unpacks a release of allograft, two static programs \
         that need neither a compiler nor the network.\n\n```sh\ntar -xzf {archive} -C /usr/local/bin --strip-components 1\n\
         {command}\n```\n\n"
    )
}

/// When the command runs.
fn when(results: &Results, command: &str) -> &'static str {
    match results.input.kind.as_str() {
        _ if sets_variables(command) => "where the program is started",
        "executable" => "after the program is linked",
        "cargo" => "the second in place of `cargo build`",
        _ => "before the program is linked",
    }
}

/// The section on the measurement: the command, the tables, and how to repeat it.
fn measured(results: &Results) -> String {
    let mut text = "## Measured\n\n".to_owned();
    // Writing to a string cannot fail.
    for (purpose, command) in &results.input.commands {
        let _ = writeln!(text, "- {purpose}: `{command}`");
    }
    let input = &results.input;
    let _ = writeln!(text, "- stock: `{}` (SHA-256 {})\n", input.host, input.host_sha256);
    text.push_str(&report::measurements(results));
    if !results.warnings.is_empty() || results.interrupted {
        text.push('\n');
        for warning in &results.warnings {
            let _ = writeln!(text, "- {warning}");
        }
        if results.interrupted {
            text.push_str("- The run was interrupted: these are the rounds that were complete.\n");
        }
    }
    text.push('\n');
    text
}

/// The paragraph on the risks of the graft.
fn risks(results: &Results, arm: &ArmResult, recommendation: &Recommendation) -> String {
    let mut text = "## Risks\n\n".to_owned();
    // Writing to a string cannot fail.
    if let (Some(ratio), Some(peak)) = (arm.memory_ratio_to_stock, arm.peak_memory_bytes) {
        let _ = writeln!(text, "- Peak memory is {ratio:.2} times stock's here ({}).", report::bytes(peak));
    } else {
        text.push_str("- Memory could not be measured here.\n");
    }
    if let Some(donor) = arm.origin.donor.as_deref().and_then(donors::find) {
        let _ = writeln!(
            text,
            "- The program then holds code of {} under {}; `allograft donors --licenses` prints the text.",
            donor.name, donor.license
        );
        if !donor.name.starts_with("hardened") {
            text.push_str(
                "- musl's own allocator checks more of what a program does wrong with memory than a fast one: \
                 `docs/donors.md` of allograft says what each detects.\n",
            );
        }
    }
    let others = results.arms.iter().filter_map(|arm| Some((&arm.origin.name, arm.failure.as_ref()?)));
    for (name, failure) in others {
        let _ = writeln!(text, "- {name} was left out: {failure}.");
    }
    let _ = writeln!(
        text,
        "- These are figures of one machine and this work, chosen for {}. Other work may gain less.",
        recommendation.objective.name()
    );
    text.push_str(
        "- allograft verifies each graft with a reader of its own before it writes it, and every donor passes its \
         conformance programs: fork beside threads, cancellation, limits of memory, seccomp.\n\n",
    );
    text
}

/// How to check the result, and how to take it back.
fn undo(results: &Results, command: &str) -> String {
    let host = quoted(&results.input.host);
    let back = match results.input.kind.as_str() {
        _ if sets_variables(command) => "Take the lines away. No file has changed.".to_owned(),
        "cargo" => "Take the two lines away. The toolchain is untouched: the donor is only in the programs.".to_owned(),
        _ => format!("`allograft undo {host}` gives the stock file back, byte for byte; or take the two lines away."),
    };
    format!(
        "## Check it, and take it back\n\n`allograft inspect PROGRAM` says which allocator a program carries. {back}\n"
    )
}

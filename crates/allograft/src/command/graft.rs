//! `allograft graft`: a donor into a libc.a, or into all of a folder.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use clap::builder::PossibleValuesParser;
use hosts::{Action, Grafted, Grafts, Request};
use serde_json::{Value, json};
use surgery::plan::PlanKind;

use crate::failure::Failure;
use crate::output::{Output, Style};

/// Put a modern allocator into a musl libc.a, in place of musl's
///
/// The target is recognised by its content: a static archive, or a folder (toolchain, sysroot, unpacked SDK), of
/// which every musl libc.a is grafted, or none of them if one cannot be. Grafting a graft replaces its donor; the same
/// donor again changes nothing.
///
/// In place, the stock file stays beside the graft as libc.a.allograft-stock for `allograft undo`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  allograft graft /usr/lib/x86_64-linux-musl/libc.a
  allograft graft sysroot/lib/libc.a --donor mimalloc3 --set purge_delay=0
  allograft graft --dry-run -v ~/.rustup/toolchains/stable-x86_64-unknown-linux-gnu
  allograft graft /usr/lib/musl/lib/libc.a -o build/libc.a

Programs have to be linked again to get the new allocator: build systems do not always notice that libc.a changed.")]
pub(crate) struct Graft {
    /// The libc.a, or a folder with some under it
    target: PathBuf,
    /// The allocator to put in: see `allograft donors`
    #[arg(long, value_name = "NAME", default_value = donors::DEFAULT, value_parser = donor_names())]
    donor: String,
    /// Bake an option of the donor in; can be given several times
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = setting)]
    settings: Vec<(String, i64)>,
    /// Write the graft to a file (for a folder: a copy of it), and leave the target untouched
    #[arg(short, long, value_name = "OUT")]
    out: Option<PathBuf>,
    /// Print what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
}

fn donor_names() -> PossibleValuesParser {
    PossibleValuesParser::new(donors::all().iter().map(|donor| donor.name))
}

fn setting(text: &str) -> Result<(String, i64), String> {
    let (key, value) = text.split_once('=').ok_or("expected KEY=VALUE, such as purge_delay=0")?;
    if key.is_empty() {
        return Err("the key is missing".to_owned());
    }
    let value = value.parse().map_err(|_| format!("`{value}` is not a whole number"))?;
    Ok((key.to_owned(), value))
}

impl Graft {
    pub(crate) fn run(self, output: &Output) -> Result<ExitCode, Failure> {
        let donor = donors::find(&self.donor)
            .ok_or_else(|| Failure::usage(format!("donor `{}` is not in this build", self.donor)))?;
        let request = Request { donor, settings: self.settings, out: self.out, dry_run: self.dry_run };
        let grafts = hosts::graft(&self.target, &request)?;
        for skipped in &grafts.skipped {
            output.note(format_args!("skipped `{}`: {}", skipped.path.display(), skipped.reason));
        }
        for host in &grafts.hosts {
            for note in &host.notes {
                output.warn(format_args!("`{}` {note}", host.path.display()));
            }
        }
        for host in grafts.hosts.iter().filter(|host| !host.plan.fork_hook) {
            output.warn(format_args!(
                "`{}` has a fork that does not tell the allocator (musl before 1.2.2): programs with threads must not \
                 allocate in a forked child",
                host.path.display()
            ));
        }
        if output.json {
            output.document(document(&grafts))?;
        } else {
            output.text(&summary(&grafts, output))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn action(host: &Grafted) -> &'static str {
    match host.action {
        Action::Grafted => "grafted",
        Action::Replaced => "replaced",
        Action::Unchanged => "unchanged",
        Action::Planned => "planned",
    }
}

fn kind(plan: &PlanKind) -> &'static str {
    match plan {
        PlanKind::Graft => "graft",
        PlanKind::Replace { .. } => "replace",
        PlanKind::Unchanged => "unchanged",
    }
}

fn text_of(path: &Path) -> String {
    path.display().to_string()
}

fn document(grafts: &Grafts) -> Value {
    let hosts: Vec<Value> = grafts
        .hosts
        .iter()
        .map(|host| {
            let plan = &host.plan;
            let removed: Vec<Value> = plan
                .removed
                .iter()
                .map(|member| {
                    json!({
                        "ordinal": member.ordinal,
                        "name": member.name,
                        "size": member.size,
                        "defines": member.defines,
                    })
                })
                .collect();
            json!({
                "path": text_of(&host.path),
                "source": host.source.as_deref().map(text_of),
                "action": action(host),
                "plan": kind(&plan.kind),
                "arch": plan.arch.name(),
                "donor": {
                    "name": plan.donor.donor,
                    "version": plan.donor.version,
                    "options": plan.donor.options,
                    "object": plan.donor.object,
                },
                "removed": removed,
                "provides": plan.provides,
                "fork_hook": plan.fork_hook,
                "stock_sha256": host.stock_sha256,
                "graft_sha256": host.graft_sha256,
                "backup": host.backup.as_deref().map(text_of),
                "notes": host.notes,
            })
        })
        .collect();
    let skipped: Vec<Value> = grafts
        .skipped
        .iter()
        .map(|skipped| json!({ "path": text_of(&skipped.path), "reason": skipped.reason }))
        .collect();
    json!({ "hosts": hosts, "skipped": skipped })
}

/// A line for each host with what went out and came in, then what can be done next.
fn summary(grafts: &Grafts, output: &Output) -> String {
    let mut text = String::new();
    let word = |host: &Grafted| match (host.action, &host.plan.kind) {
        (Action::Planned, PlanKind::Replace { .. }) => "would replace",
        (Action::Planned, _) => "would graft",
        _ => action(host),
    };
    let width = grafts.hosts.iter().map(|host| word(host).len()).max().unwrap_or(0);
    for host in &grafts.hosts {
        let (plan, word) = (&host.plan, word(host));
        let label = output.paint(if host.action == Action::Planned { Style::Notice } else { Style::Good }, word);
        let pad = " ".repeat(width - word.len());
        let donor = format!("{} {}", plan.donor.donor, plan.donor.version);
        let _ = write!(text, "{label}{pad}  {}  {}  {donor}", host.path.display(), plan.arch.name());
        if !plan.donor.options.is_empty() {
            let _ = write!(text, " ({})", plan.donor.options);
        }
        let _ = match (&plan.kind, host.action) {
            (_, Action::Unchanged) => writeln!(text, ", which it carries already"),
            (PlanKind::Replace { previous }, _) => {
                writeln!(text, " in place of {} {}", previous.donor, previous.version)
            }
            _ => writeln!(text, " in place of {} members", plan.removed.len()),
        };
        if output.verbose && host.action != Action::Unchanged {
            for member in &plan.removed {
                let (ordinal, name) = (member.ordinal, &member.name);
                let _ = writeln!(
                    text,
                    "  - {ordinal:>4} {name:<20} {:>7} bytes  {}",
                    member.size,
                    member.defines.join(" ")
                );
            }
            let _ = writeln!(
                text,
                "  +      {:<20} {:>7} bytes  {}",
                "allograft.o",
                plan.donor_bytes.len(),
                plan.provides.join(" ")
            );
        }
    }
    next_steps(&mut text, grafts, output);
    text
}

fn next_steps(text: &mut String, grafts: &Grafts, output: &Output) {
    let quoted = |path: &Path| shell_quoted(&text_of(path));
    for host in &grafts.hosts {
        if host.action == Action::Planned {
            continue;
        }
        let mut line = |label: &str, value: String| {
            let _ = writeln!(text, "  {} {value}", output.paint(Style::Faint, format_args!("{label:<7}")));
        };
        if let Some(backup) = &host.backup {
            line("backup:", text_of(backup));
        }
        if host.action != Action::Unchanged || output.verbose {
            line("verify:", format!("allograft verify {}", quoted(&host.path)));
            if host.backup.is_some() {
                line("undo:", format!("allograft undo {}", quoted(&host.path)));
            }
        }
    }
}

/// A word that a POSIX shell takes for `text`.
fn shell_quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:=@%,".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_whole_numbers() {
        assert_eq!(setting("purge_delay=-1"), Ok(("purge_delay".to_owned(), -1)));
        for wrong in ["purge_delay", "=1", "a=", "a=1.5", "a=b=1", "a=99999999999999999999"] {
            assert!(setting(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn quoting() {
        assert_eq!(shell_quoted("/usr/lib/libc.a"), "/usr/lib/libc.a");
        assert_eq!(shell_quoted("it's a/libc.a"), r"'it'\''s a/libc.a'");
    }
}

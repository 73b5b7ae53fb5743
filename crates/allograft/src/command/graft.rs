//! `allograft graft`: puts an allocator and string functions into a libc.a, into an executable, or into all of a
//! folder.

pub(crate) mod executable;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use format::{DonorKind, Note};
use hosts::{
    Action, ArchiveOperation, Bundle, Carried, Grafted, Grafts, Locking, Operation, Patience, Remedy, Request, Watch,
};
use surgery::plan::{Plan, RemovedMember};

use crate::choice::Choice;
use crate::failure::{Failure, commit_reported};
use crate::json;
use crate::number::whole;
use crate::output::{Output, Page, Style, counted};
use crate::progress::Bar;
use crate::remedy;
use crate::shell::shell_quoted;
use crate::signals::Cleanup;
use crate::target::located;

/// Examples that fit on a screen.
const SCREEN: &str = "Examples:
  allograft graft sysroot/lib/libc.a          # link again: programs carry it
  allograft graft ./server --try -- --version # a linked program
  allograft graft libc.a --donor strings      # string functions alone
  allograft graft swift:ID
  allograft graft --root rootfs /lib/ld-musl-x86_64.so.1";

/// Put a donor into a libc.a, program, loader, SDK or image
///
/// The target is recognised by its content. It may be a static archive, a static executable, a folder (toolchain,
/// sysroot, unpacked SDK; or programs), or a packed Swift SDK bundle (.artifactbundle.tar.gz, .zip). In a folder or
/// bundle, every musl libc.a is grafted, or none if one cannot be; its programs are grafted by their own names.
/// Grafting a graft replaces its donors; the same graft again changes nothing. If the string functions cannot be
/// exchanged, the allocator still is, with a warning.
///
/// In a folder without a libc.a, such as the bin of an installation, every static program is grafted, and musl's
/// loader. Those that cannot be, and dynamic ones, are left alone and listed with the reason; the exit code is 0 if any
/// was grafted, and `allograft inspect FOLDER --expect DONOR` says whether all were.
///
/// A linked executable is refused unless every function of musl's allocator is found in it and nothing else touches
/// that allocator's state. The graft has to pass a self-test before it replaces the stock file. The executable keeps
/// its string functions; `--strings on` exchanges those that are proven by their code.
///
/// musl's libc.so, which is also the dynamic loader (ld-musl-x86_64.so.1), is grafted as an executable is, and serves
/// every dynamic program then. Before it is replaced, the new loader starts programs. That of the running system takes
/// `--yes`.
///
/// A dynamic program, of glibc or of musl, gets the donor as a part of its own file: it then serves the
/// program and all libraries in its process, without a second file and without LD_PRELOAD. Programs that bring an
/// allocator of their own are refused. `--needed` has the program load the donor's shared object instead.
///
/// A container image (an OCI layout or an archive of `docker save`) gets one more layer, with its static executables
/// and `libc.a`s that can be grafted; the others are listed with the reason. This takes `--out`.
///
/// A graft in place leaves the stock file beside it, as libc.a.allograft-stock, for `allograft undo`. For a packed
/// bundle, this is the whole bundle.
#[derive(Debug, Args)]
#[command(after_help = SCREEN, after_long_help = "Examples:
  allograft graft /usr/lib/x86_64-linux-musl/libc.a
  allograft graft sysroot/lib/libc.a --donor mimalloc3 --set purge_delay=0
  allograft graft sysroot/lib/libc.a --profile small
  # string functions only
  allograft graft sysroot/lib/libc.a --donor strings
  allograft graft --dry-run -v ~/.rustup/toolchains/stable-x86_64-unknown-linux-gnu
  allograft graft /usr/lib/musl/lib/libc.a -o build/libc.a
  allograft graft sdk.artifactbundle.tar.gz -o grafted.artifactbundle.tar.gz
  # an installed Swift SDK
  allograft graft swift:swift-6.1.2-RELEASE_static-linux-0.0.1
  # a target of the Rust toolchain
  allograft graft rust:x86_64-unknown-linux-musl
  # in the root folder of an image
  allograft graft --root build/rootfs /usr/lib
  # a linked program
  allograft graft ./server --try -- --version
  # every static program of a folder, into a copy of it
  allograft graft app/bin -o app/fast
  # a container image: one more layer with its programs
  allograft graft image -o grafted
  # a dynamic program, with liballograft.so beside it
  allograft graft ./server --needed
  # also the string functions that are proven
  allograft graft ./server --strings on
  # all dynamic programs of an image
  allograft graft --root build/rootfs /lib/ld-musl-x86_64.so.1

Link your programs again to give them the new allocator: build systems do not always notice that libc.a changed.")]
pub(crate) struct Graft {
    /// What to graft: a path, rust:TRIPLE or swift:ID
    ///
    /// A libc.a, an executable, a folder with archives or programs under it, a packed Swift SDK bundle, a container
    /// image (an OCI layout, with --out), rust:TRIPLE for a target of the Rust toolchain, or swift:ID for an installed
    /// Swift SDK
    target: PathBuf,
    /// Root folder of an image with the target
    ///
    /// The root folder of an image that holds the target. The target's path starts there, and symbolic links are read
    /// as in the image
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    #[command(flatten)]
    choice: Choice,
    /// Write the graft here; leave the target
    ///
    /// Write the graft to this file (for a folder: to a copy of it), and leave the target untouched
    #[arg(short, long, value_name = "OUT")]
    out: Option<PathBuf>,
    /// Replace a foreign allocator, or another OUT
    ///
    /// Replace a foreign allocator in a libc.a; with --out, replace a file that is not a graft of the target
    #[arg(long)]
    force: bool,
    /// Stock archives that bring back lost functions
    ///
    /// With --force: a stock archive, or a folder with a libc.a or libc++abi.a under it, to bring back functions that
    /// the target's libc.a has lost; can be given several times
    #[arg(long, value_name = "FILE", requires = "force")]
    stock: Vec<PathBuf>,
    /// For dynamic programs: load the donor from PATH
    ///
    /// For dynamic programs: do not merge the donor, but have the program load the shared object of `emit --as shared`,
    /// which has to be there: an absolute path, `$ORIGIN/...` with glibc, or a name that the loader searches for
    /// [default: liballograft.so beside the program]
    #[arg(long, value_name = "PATH", num_args = 0..=1, require_equals = true)]
    needed: Option<Option<OsString>>,
    /// Print what would be done
    #[arg(long)]
    dry_run: bool,
    /// Replace the system's loader, or set-id programs
    ///
    /// Replace the dynamic loader of the running system, musl's libc.so; or graft a program that is setuid or setgid,
    /// or has capabilities
    #[arg(long)]
    yes: bool,
    /// Graft although nothing can run the self-test
    ///
    /// Graft an executable for another architecture even if nothing here can run its self-test
    #[arg(long)]
    untested: bool,
    /// Seconds of processor time for the self-test
    ///
    /// Seconds of processor time that an executable's self-test may take
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = whole(1..=86_400_u64))]
    patience: u64,
    /// First compare stock and graft, run with ARGS
    ///
    /// For an executable: before anything is replaced, run stock and graft with the arguments after `--`, and compare
    #[arg(long = "try", conflicts_with = "dry_run")]
    trial: bool,
    /// Arguments of the program for --try
    #[arg(last = true, value_name = "ARGS", requires = "trial")]
    arguments: Vec<OsString>,
}

impl Graft {
    pub(crate) fn run(self, output: &Output) -> Result<ExitCode, Failure> {
        let _cleanup = Cleanup::on_signals()?;
        let target = located(&self.target, self.root.as_deref())?;
        let out = self.out.clone();
        let typed = self.target.clone();
        let request = Request {
            candidates: self.choice.candidates()?,
            strings: self.choice.strings(),
            out: self.out,
            dry_run: self.dry_run,
            force: self.force,
            stock: self.stock,
            root: self.root,
            arguments: self.trial.then_some(self.arguments),
            live: self.yes,
            untested: self.untested,
            patience: Patience(Duration::from_secs(self.patience)),
            needed: self.needed,
        };
        request.check()?;
        let target = hosts::Target::open(&target)?;
        let report = target.executable()?.and_then(|bytes| inspector::inspect(bytes).ok());
        let bar = Bar::new(output);
        let advance = |progress| bar.advance(progress);
        let locking = |locking: Locking<'_>| output.locking(locking);
        let watch = Watch { progress: Some(&advance), locking: Some(&locking) };
        let grafts = hosts::graft_under(target, &request, &watch);
        bar.finish();
        let grafts = grafts.map_err(|error| executable::explained(error, report.as_ref()))?;
        let keeps = report.as_ref().and_then(executable::keeps_for_its_language);
        let grafts = grafts.noted(|grafts| {
            remedy::add_words(grafts);
            grafts.hosts.iter_mut().for_each(|host| host.notes.extend(keeps.clone()));
        });
        commit_reported(grafts, |grafts| {
            let places = Places { out: out.as_deref(), typed: &typed };
            warnings(grafts, &places, output);
            if output.json {
                output.document(json::Grafts::from(grafts))
            } else {
                output.text(&summary(grafts, &places, output))
            }
        })?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Prints the warnings and notes about the grafts.
fn warnings(grafts: &Grafts, places: &Places<'_>, output: &Output) {
    let mut by_reason: BTreeMap<&str, Vec<&Path>> = BTreeMap::new();
    for skipped in &grafts.skipped {
        by_reason.entry(&skipped.reason).or_default().push(&skipped.path);
    }
    for (reason, paths) in by_reason {
        match paths[..] {
            // An image may have a thousand programs that are dynamic.
            [first, _, _, _, ..] if grafts.image.is_some() && !output.verbose => {
                let others = paths.len() - 1;
                output.note(format_args!(
                    "skipped `{}` and {others} more (`-v` lists them): {reason}",
                    places.shown(first).display()
                ));
            }
            _ => {
                for path in paths {
                    output.note(format_args!("skipped `{}`: {reason}", places.shown(path).display()));
                }
            }
        }
    }
    let by_name: Vec<PathBuf> = grafts.skipped.iter().filter(|it| it.by_name).map(|it| it.path.clone()).collect();
    if grafts.installation.is_some() && !by_name.is_empty() {
        output.note(remedy::help(&Remedy::GraftByName(by_name)));
    }
    for host in &grafts.hosts {
        for note in &host.notes {
            output.warn(format_args!("`{}` {note}", places.shown(&host.path).display()));
        }
    }
    if let Some(bundle) = &grafts.bundle {
        for note in &bundle.notes {
            output.warn(format_args!("`{}` {note}", places.shown(&bundle.path).display()));
        }
    }
    for note in &grafts.notes {
        output.warn(format_args!("the copy {note}"));
    }
    for host in &grafts.hosts {
        if let Operation::Archive(operation) = &host.operation
            && operation.malloc.is_some()
            && !operation.fork_hook
        {
            output.warn(format_args!(
                "`{}` has a fork that does not tell the allocator (musl before 1.2.2): programs with threads must not \
                 allocate in a forked child",
                places.shown(&host.path).display()
            ));
        }
    }
}

fn action(action: Action) -> &'static str {
    match action {
        Action::Grafted => "grafted",
        Action::Replaced => "replaced",
        Action::Unchanged => "unchanged",
        Action::Planned => "planned",
    }
}

fn text_of(path: &Path) -> String {
    path.display().to_string()
}

/// The contents of a graft: `mimalloc 2.5.2 (purge_delay=0) and strings`.
pub(super) fn named(malloc: Option<&Note>, strings: bool) -> String {
    let malloc = malloc.map(|note| match note.options.as_str() {
        "" => format!("{} {}", note.donor, note.version),
        options => format!("{} {} ({options})", note.donor, note.version),
    });
    match (malloc, strings) {
        (Some(malloc), true) => format!("{malloc} and strings"),
        (Some(malloc), false) => malloc,
        (None, _) => "strings".to_owned(),
    }
}

/// The earlier contents of a host: donors, a foreign allocator, or the number of its own members that were removed.
fn replaced(host: &Grafted, operation: &ArchiveOperation) -> String {
    let Carried { malloc, strings } = &host.before;
    if host.before.anything() {
        return named(malloc.as_ref(), strings.is_some());
    }
    if let Some(foreign) = &operation.foreign {
        return match foreign.restoration.restored.len() {
            0 => format!("somebody else's {}", foreign.allocator),
            count => format!("somebody else's {}, and {count} lost functions are back", foreign.allocator),
        };
    }
    let plans = operation.malloc.iter().chain(operation.strings.plan());
    let counts = plans.map(|plan| {
        let kind = match plan.donor_kind {
            DonorKind::Malloc => "malloc",
            DonorKind::Strings => "string",
        };
        format!("{} {kind}", plan.removed.len())
    });
    format!("{} members", counts.collect::<Vec<_>>().join(" and "))
}

/// Returns a line for each host with what went out and what came in, then the next steps.
fn summary(grafts: &Grafts, places: &Places<'_>, output: &Output) -> Page {
    let mut text = output.page();
    let word = |host: &Grafted| match host.action {
        Action::Planned if host.before.anything() => "would replace",
        Action::Planned => "would graft",
        _ => action(host.action),
    };
    let width = grafts.hosts.iter().map(|host| word(host).len()).max().unwrap_or(0);
    for host in &grafts.hosts {
        let word = word(host);
        let label = output.paint(if host.action == Action::Planned { Style::Notice } else { Style::Good }, word);
        let pad = " ".repeat(width - word.len());
        let brings = host.operation.brings();
        let donors = match &host.operation {
            Operation::Archive(_) => named(brings.malloc.as_ref(), brings.strings.is_some()),
            Operation::Executable(_) => named(brings.malloc.as_ref(), false),
        };
        let what = match (host.action, &host.operation) {
            (Action::Unchanged, _) => ", which it carries already".to_owned(),
            (_, Operation::Archive(operation)) => format!(" in place of {}", replaced(host, operation)),
            (Action::Replaced, Operation::Executable(operation)) if host.before.anything() => {
                let Carried { malloc, strings } = &host.before;
                format!("{}, in place of {}", executable::place(operation), named(malloc.as_ref(), strings.is_some()))
            }
            (_, Operation::Executable(operation)) => executable::place(operation),
        };
        let _ = writeln!(
            text,
            "{label}{pad}  {}  {}  {donors}{what}",
            places.shown(&host.path).display(),
            host.operation.arch()
        );
        if host.replaced.anything() {
            let Carried { malloc, strings } = &host.replaced;
            let earlier = named(malloc.as_ref(), strings.is_some());
            let word = if host.action == Action::Planned { "would replace" } else { "replaced" };
            let _ = writeln!(text, "  {word} an earlier graft in that file: {earlier}");
        }
        match &host.operation {
            Operation::Archive(operation) if output.verbose && host.action != Action::Unchanged => {
                for plan in operation.malloc.iter().chain(operation.strings.plan()) {
                    members(&mut text, operation, plan);
                }
            }
            Operation::Archive(_) => {}
            Operation::Executable(operation) => executable::describe(&mut text, host, operation, output),
        }
    }
    if grafts.image.is_some() || grafts.installation.is_some() {
        count(&mut text, grafts);
    }
    next_steps(&mut text, grafts, places, output);
    text
}

/// Says how many files carry the graft, if others were left alone.
fn count(text: &mut Page, grafts: &Grafts) {
    let (hosts, left) = (grafts.hosts.len(), grafts.skipped.len());
    if left + grafts.scripts == 0 {
        return;
    }
    let is_planned = grafts.hosts.iter().any(|host| host.action == Action::Planned);
    let (carry, were) = match (is_planned, hosts + left, left) {
        (true, ..) => ("would carry", "would be"),
        (false, 1, _) => ("carries", "were"),
        (false, _, 1) => ("carry", "was"),
        _ => ("carry", "were"),
    };
    let has_archives = grafts.hosts.iter().any(|host| matches!(host.operation, Operation::Archive(_)));
    let what = if has_archives { "file" } else { "program" };
    let mut line = format!("{hosts} of {} {carry} the graft", counted(hosts + left, what));
    if left > 0 {
        line += &format!("; {left} {were} left alone: the notes say why");
    }
    if grafts.scripts > 0 {
        line += &format!("; {} not counted", counted(grafts.scripts, "script"));
    }
    let _ = writeln!(text, "{line}");
}

/// Prints the members that go and the one that comes in.
fn members(text: &mut Page, operation: &ArchiveOperation, plan: &Plan) {
    for RemovedMember { ordinal, name, size, defines, .. } in operation.removed(plan.donor_kind) {
        let _ = writeln!(text, "  - {ordinal:>4} {name:<20} {size:>7} bytes  {}", defines.join(" "));
    }
    let (name, size) = (plan.donor_kind.member_name(), plan.donor_bytes.len());
    let _ = writeln!(text, "  +      {name:<20} {size:>7} bytes  {}", plan.provides.join(" "));
}

fn next_steps(text: &mut Page, grafts: &Grafts, places: &Places<'_>, output: &Output) {
    if let Some(bundle) = &grafts.bundle {
        match bundle.action {
            Action::Planned => plan_of(text, &bundle.path, bundle.backup.as_deref(), output),
            _ => steps_of_bundle(text, bundle, places, output),
        }
        return;
    }
    if let Some(image) = &grafts.image {
        if grafts.hosts.iter().all(|host| host.action != Action::Planned) {
            let image = shell_quoted(&text_of(&places.shown(image)));
            step(text, output, "undo:", &format!("allograft undo {image} -o STOCK"));
        }
        return;
    }
    for host in grafts.hosts.iter().filter(|host| host.action == Action::Planned) {
        plan_of(text, &host.path, host.backup.as_deref(), output);
    }
    if let Some(folder) = &grafts.installation {
        steps_of_folder(text, grafts, folder, places, output);
        return;
    }
    match places.out.filter(|out| out.is_dir()) {
        Some(out) => steps_of_folder(text, grafts, out, places, output),
        None => {
            for host in grafts.hosts.iter().filter(|host| host.action != Action::Planned) {
                let changed = host.action != Action::Unchanged;
                next_steps_of(text, &host.path, host.backup.as_deref(), changed, places, output);
                executable::rescue(text, host, output);
            }
        }
    }
    relink(text, grafts, output);
}

/// Prints the files that a planned graft in place would write beside its host.
fn plan_of(text: &mut Page, host: &Path, backup: Option<&Path>, output: &Output) {
    let Some(backup) = backup else { return };
    let is_new = if backup.exists() { "is there and stays" } else { "would be written" };
    step(text, output, "backup:", &format!("{} ({is_new})", text_of(backup)));
    step(text, output, "record:", &format!("{} (would be written)", text_of(&hosts::record_of(host))));
}

/// Says that programs have to be linked again after a graft of their libc.
fn relink(text: &mut Page, grafts: &Grafts, output: &Output) {
    let is_archive = |host: &&Grafted| matches!(host.operation, Operation::Archive(_));
    let is_planned = |host: &Grafted| host.action == Action::Planned;
    if grafts.swift_sdks.is_empty() && grafts.hosts.iter().filter(is_archive).any(is_planned) {
        step(text, output, "relink:", "programs carry it when they are linked again; make and others may not notice");
    }
    let changed = grafts.hosts.iter().any(|host| matches!(host.action, Action::Grafted | Action::Replaced));
    if let (true, Some(sdk)) = (changed, grafts.swift_sdks.first()) {
        let relink = format!("swift package clean && swift build --swift-sdk {}", shell_quoted(sdk));
        step(text, output, "relink:", &relink);
        step(text, output, "", "SwiftPM does not link again by itself when libc.a changes");
    }
}

pub(super) fn step(text: &mut Page, output: &Output, label: &str, value: &str) {
    text.whole(format_args!("  {} {value}", output.paint(Style::Faint, format_args!("{label:<7}"))));
}

fn next_steps_of(
    text: &mut Page,
    path: &Path,
    backup: Option<&Path>,
    changed: bool,
    places: &Places<'_>,
    output: &Output,
) {
    let quoted = shell_quoted(&text_of(&places.shown(path)));
    if let Some(backup) = backup {
        step(text, output, "backup:", &text_of(backup));
    }
    if changed || output.verbose {
        let stock = places.stock(path).map(|stock| format!(" --stock {}", shell_quoted(&text_of(stock))));
        step(text, output, "verify:", &format!("allograft verify {quoted}{}", stock.unwrap_or_default()));
        if backup.is_some() {
            step(text, output, "undo:", &format!("allograft undo {quoted}"));
        }
    }
}

/// Prints the next steps with a folder: those of all of its grafts at once.
fn steps_of_folder(text: &mut Page, grafts: &Grafts, folder: &Path, places: &Places<'_>, output: &Output) {
    if grafts.hosts.iter().any(|host| host.action == Action::Planned) {
        return;
    }
    grafts.hosts.iter().for_each(|host| executable::rescue(text, host, output));
    let (place, is_backed_up) = (places.shown(folder), grafts.hosts.iter().any(|host| host.backup.is_some()));
    let quoted = shell_quoted(&text_of(&place));
    let stock = places.stock(folder).map(|stock| format!(" --stock {}", shell_quoted(&text_of(stock))));
    step(text, output, "verify:", &format!("allograft verify {quoted}{}", stock.unwrap_or_default()));
    if is_backed_up {
        step(text, output, "undo:", &format!("allograft undo {quoted}"));
    }
}

/// Prints the next steps with a packed bundle.
fn steps_of_bundle(text: &mut Page, bundle: &Bundle, places: &Places<'_>, output: &Output) {
    next_steps_of(text, &bundle.path, bundle.backup.as_deref(), true, places, output);
    let path = shell_quoted(&text_of(&places.shown(&bundle.path)));
    if let Some(sha256) = &bundle.sha256 {
        step(text, output, "install:", &format!("swift sdk install {path}"));
        step(text, output, "", &format!("from a URL: swift sdk install URL --checksum {sha256}"));
    }
}

/// The paths of a command, in the user's spelling.
struct Places<'p> {
    out: Option<&'p Path>,
    typed: &'p Path,
}

impl Places<'_> {
    /// Returns the path of a result: in the user's spelling, if it is `--out` or in it.
    fn shown(&self, path: &Path) -> PathBuf {
        let out = self.out.and_then(|out| {
            let known = [std::path::absolute(out), out.canonicalize()].into_iter().flatten();
            let inside = known.into_iter().find_map(|known| path.strip_prefix(known).ok())?;
            Some(if inside.as_os_str().is_empty() { out.to_owned() } else { out.join(inside) })
        });
        out.unwrap_or_else(|| path.to_owned())
    }

    /// Returns the stock file that the result was made of, if it is `--out`. One that is named by a prefix, such as
    /// `rust:`, is left out.
    fn stock(&self, path: &Path) -> Option<&Path> {
        let is_out = self.out.is_some_and(|out| self.shown(path) == out);
        (is_out && self.typed.exists()).then_some(self.typed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoting() {
        assert_eq!(shell_quoted("/usr/lib/libc.a"), "/usr/lib/libc.a");
        assert_eq!(shell_quoted("it's a/libc.a"), r"'it'\''s a/libc.a'");
        assert_eq!(shell_quoted("it's\n\x1b[1m\u{9b}"), r"$'it\'s\n\033[1m\302\233'");
    }
}

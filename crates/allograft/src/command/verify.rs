//! `allograft verify`: checks that a graft is whole, and that programs linked against it work.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use format::Linked;
use hosts::{Examined, ExaminedArchive, UnpackedGraft};
use inspector::verify::{Check, Definition, Difference, NotRun};
use inspector::{InspectError, Libc, Link, Report, Strings};
use trial::TrialOptions;

use crate::command::{INCOMPLETE, verdict};
use crate::failure::{Failure, mend};
use crate::json;
use crate::output::{Output, Page, Style, counted};
use crate::shell::shell_quoted;
use crate::target::located;

/// Check a graft with independent code, and run programs
///
/// Reads the graft again. Each function of the malloc family must have exactly one provider; no symbol of stock may be
/// lost; every difference from stock must have a reason (`-v` lists them); no trace of the old allocator may be left;
/// the fork hook must be present. Then links the conformance programs with the linkers that it finds and runs them, for
/// foreign architectures under qemu-user. Lists what it could not run.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  allograft verify /usr/lib/x86_64-linux-musl/libc.a
  allograft verify out/libc.a --stock /usr/lib/x86_64-linux-musl/libc.a
  allograft verify sysroot --static-only --json

Exit codes:
  0  no check failed
  1  a check failed
  2  wrong usage, or input that cannot be read or is malformed
  5  with --strict: no check failed, and some were not run")]
pub(crate) struct Verify {
    /// What was grafted, named as for `graft`
    ///
    /// The grafted libc.a or executable, a folder with grafts under it, a packed Swift SDK bundle, swift:ID or
    /// rust:TRIPLE
    target: PathBuf,
    /// Root folder of an image with the target
    ///
    /// The root folder of an image that holds the target. The target's path starts there, and symbolic links are read
    /// as in the image
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Stock file, or folder, to compare with
    ///
    /// Compare with this stock file instead of the backup beside the graft; for a folder, with the files of the same
    /// names in this folder
    #[arg(long, value_name = "FILE")]
    stock: Option<PathBuf>,
    /// Run no programs, which take a minute
    ///
    /// Do not link and run programs, which takes about a minute of processor time for each libc.a
    #[arg(long)]
    static_only: bool,
    /// Exit with 5 if checks were not run
    ///
    /// Exit with code 5 if no check failed and any was not run, for whatever reason: --static-only counts, too
    #[arg(long)]
    strict: bool,
    /// Run every program with every linker
    ///
    /// Run every program with every linker in every mode, instead of a selection
    #[arg(long, conflicts_with = "static_only")]
    thorough: bool,
}

/// The findings about one graft.
struct Verified {
    path: PathBuf,
    stock: Option<PathBuf>,
    checks: Vec<Check>,
    differences: Vec<Difference>,
    not_run: Vec<NotRun>,
    /// A check failed because the file is not what `verify` is for.
    mistake: Option<Mistake>,
}

/// A file that is not a graft.
enum Mistake {
    /// It carries no donor.
    Stock {
        /// The reason why it takes none; `None` if it may take one.
        takes_none: Option<&'static str>,
    },
    /// It was linked with this donor.
    Linked(String),
}

impl Verified {
    fn ok(&self) -> bool {
        self.checks.iter().all(|check| check.ok)
    }

    /// Says how many checks passed or failed, and which were not run.
    fn summary(&self) -> String {
        let (all, failed) = (self.checks.len(), self.checks.iter().filter(|check| !check.ok).count());
        let mut summary = match failed {
            0 => format!("{all} checks passed"),
            _ => format!("{failed} of {all} checks failed"),
        };
        let mut names: Vec<&str> = Vec::new();
        for NotRun { name, .. } in &self.not_run {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
        if !names.is_empty() {
            summary += &format!("; not run: {}", names.join(", "));
        }
        summary
    }
}

impl Verify {
    pub(crate) fn run(self, output: &Output) -> Result<ExitCode, Failure> {
        // This folder is deleted when everything has been verified.
        let scratch = tempfile::tempdir()
            .map_err(|error| Failure::usage(format!("cannot unpack anything: {error}")).with_help(mend(&error)))?;
        let grafts = self.grafts(scratch.path())?;
        if self.stock.as_deref().is_some_and(|stock| !(stock.is_dir() && self.target.is_dir())) && grafts.len() > 1 {
            return Err(Failure::usage(format!(
                "`--stock` is for one graft; `{}` holds {}",
                self.target.display(),
                grafts.len()
            ))
            .with_help("name the graft that this stock file belongs to"));
        }
        let count = grafts.len();
        let verified: Vec<Verified> =
            grafts.into_iter().map(|graft| self.verify(graft, output)).collect::<Result<_, _>>()?;
        let ok = verified.iter().all(Verified::ok);
        let complete = verified.iter().all(|graft| graft.not_run.is_empty());
        if output.json {
            let mut document = json::Verified::new();
            for Verified { path, stock, checks, differences, not_run, .. } in &verified {
                document.add(path, stock.as_deref(), checks, differences, not_run);
            }
            output.document(document)?;
        } else {
            let mut text = listing(&verified, output);
            if count > 1 || self.target.is_dir() {
                self.total(&mut text, &verified)?;
            }
            output.text(&text)?;
        }
        for Verified { path, mistake, .. } in &verified {
            let word = shell_quoted(&path.display().to_string());
            let path = path.display();
            let (message, help) = match mistake {
                None => continue,
                Some(Mistake::Linked(donor)) => (
                    format!(
                        "`{path}` has no note of `allograft graft`: it was linked with a donor, or a tool took the note \
                         away"
                    ),
                    format!("`allograft inspect {word} --expect {donor}` checks what was linked"),
                ),
                Some(Mistake::Stock { takes_none }) => (
                    format!("`{path}` is not a graft: there is nothing to verify"),
                    match takes_none {
                        None => {
                            format!(
                                "graft it first: `allograft graft {word}`; `allograft inspect` says what it carries"
                            )
                        }
                        Some(why) => format!("{why}: `allograft inspect {word}` says what it carries"),
                    },
                ),
            };
            output.error(&Failure::unexpected(message).with_help(help));
        }
        Ok(match ok && !complete && self.strict {
            true => ExitCode::from(INCOMPLETE),
            false => verdict(ok),
        })
    }

    /// Adds a line that counts the grafts, and the rest of a folder of programs.
    fn total(&self, text: &mut Page, verified: &[Verified]) -> Result<(), Failure> {
        let passed = verified.iter().filter(|graft| graft.ok()).count();
        let incomplete = verified.iter().filter(|graft| graft.ok() && !graft.not_run.is_empty()).count();
        let mut line = format!("{}: {passed} passed", counted(verified.len(), "graft"));
        if incomplete > 0 {
            line += &format!(" ({incomplete} with checks that were not run)");
        }
        line += &format!(", {} failed", verified.len() - passed);
        let target = located(&self.target, self.root.as_deref())?;
        let grafts: Vec<PathBuf> = verified.iter().map(|graft| graft.path.clone()).collect();
        let has_archives = grafts.iter().any(|path| !hosts::is_executable(path).unwrap_or(false));
        if target.is_dir() && !has_archives {
            let (programs, scripts) = hosts::beside_grafts(&target, &grafts)?;
            if programs + scripts > 0 {
                line += &format!("; no grafts: {}, {}", counted(programs, "program"), counted(scripts, "script"));
            }
        }
        let _ = writeln!(text, "{line}");
        Ok(())
    }

    /// The grafts to verify. That of a packed bundle is unpacked below `scratch`.
    fn grafts(&self, scratch: &Path) -> Result<Vec<UnpackedGraft>, Failure> {
        let target = located(&self.target, self.root.as_deref())?;
        if let Some(grafts) = hosts::unpack_grafts(&target, scratch)? {
            return match grafts.is_empty() {
                true => Err(hosts::Error::NoGraft { folder: target }.into()),
                false => Ok(grafts),
            };
        }
        let mut grafts = Vec::new();
        for libc in hosts::grafts_in(&target)? {
            let stock = match &self.stock {
                None => hosts::stock_of(&libc)?,
                Some(folder) if folder.is_dir() && target.is_dir() => stock_in(folder, &libc, &target)?,
                Some(_) => None,
            };
            grafts.push(UnpackedGraft { name: libc.clone(), libc, stock });
        }
        Ok(grafts)
    }

    fn verify(&self, graft: UnpackedGraft, output: &Output) -> Result<Verified, Failure> {
        let UnpackedGraft { name: path, libc, mut stock } = graft;
        let executable = hosts::is_executable(&libc)?;
        if let (Some(backup), false) = (&stock, executable)
            && let Some(allocator) = hosts::foreign_allocator_in(backup)?
        {
            output.note(format_args!(
                "the backup of `{}` carries somebody else's {allocator}: there is nothing to compare with; name a stock \
                 libc.a with --stock",
                path.display()
            ));
            stock = None;
        }
        let stock = stock.or_else(|| self.stock.clone());
        let graft_bytes = fs::read(&libc).map_err(Failure::io("read", &libc))?;
        let stock_bytes =
            stock.as_deref().map(|stock| fs::read(stock).map_err(Failure::io("read", stock))).transpose()?;
        if let (Some(named), Some(bytes)) = (&self.stock, &stock_bytes) {
            inspector::inspect(bytes).map_err(|error| {
                Failure::usage(format!("`{}` is not a stock file: {error}", named.display()))
                    .with_help("name the libc.a or the executable that was grafted: `--stock FILE`")
            })?;
        }
        let malformed = |error: InspectError| {
            Failure::usage(format!("cannot verify `{}`: {error}", path.display())).with_help(error.help())
        };
        if executable {
            let (root, stock_bytes) = (self.root.as_deref(), stock_bytes.as_deref());
            let mut examined = match self.static_only {
                true => hosts::examine(&libc, root, &graft_bytes, stock_bytes),
                false => hosts::examine_and_run(&libc, root, &graft_bytes, stock_bytes),
            }
            .map_err(malformed)?;
            if self.static_only {
                examined.not_run.push(not_run("self-test", "left out with --static-only"));
            }
            let Examined { checks, not_run, .. } = examined;
            let mistake = Mistake::find(&graft_bytes, executable, &checks);
            return Ok(Verified { path, stock, checks, differences: Vec::new(), not_run, mistake });
        }
        let arch = inspector::inspect(&graft_bytes).map_err(malformed)?.arch;
        let ExaminedArchive { mut checks, not_run: mut left_out, differences } =
            hosts::examine_archive(&graft_bytes, stock_bytes.as_deref()).map_err(malformed)?;
        if stock_bytes.is_none() {
            left_out.push(not_run("differences", "there is no stock file to compare with: `--stock FILE`"));
        }
        if self.static_only {
            left_out.push(not_run("programs", "left out with --static-only"));
        } else if checks.iter().any(|check| !check.ok) {
            // The programs would run for minutes and only repeat a known result.
            left_out.push(not_run("programs", "a check before them failed"));
        } else {
            output.note(format_args!(
                "linking and running programs with `{}` takes about a minute of processor time; `--static-only` leaves \
                 them out",
                path.display()
            ));
            let progress = output.progress();
            let report = |name: &str| progress.step(name);
            let options = TrialOptions {
                // The path is absolute because linkers run in another folder.
                stock: stock.as_ref().map(|stock| std::path::absolute(stock).unwrap_or_else(|_| stock.clone())),
                thorough: self.thorough,
                progress: Some(&report),
                ..TrialOptions::default()
            };
            let outcome = trial::trial(&libc, arch, &options);
            progress.finish();
            checks.extend(outcome.checks);
            left_out.extend(outcome.not_run);
        }
        let mistake = Mistake::find(&graft_bytes, executable, &checks);
        Ok(Verified { path, stock, checks, differences, not_run: left_out, mistake })
    }
}

/// The stock file of a folder for the graft of the same name in the folder `target`: the backup, if that file was
/// grafted in its place.
fn stock_in(folder: &Path, graft: &Path, target: &Path) -> Result<Option<PathBuf>, Failure> {
    let path = folder.join(graft.strip_prefix(target).unwrap_or(graft));
    Ok(Some(hosts::stock_of(&path)?.unwrap_or(path)))
}

impl Mistake {
    /// Returns the reason why a check of a file failed, if the file is not a graft.
    fn find(file: &[u8], executable: bool, checks: &[Check]) -> Option<Mistake> {
        if checks.iter().all(|check| check.ok) {
            return None;
        }
        let report = inspector::inspect(file).ok()?;
        if is_stock(&report) {
            let is_library = transplant::Executable::read(file).is_ok_and(|it| it.kind() == Linked::Library);
            let takes_none = match report.libc {
                _ if is_library => Some("a library has the malloc of the program that loads it, and takes no donor"),
                Libc::Glibc if report.link != Some(Link::Dynamic) => Some("a static program of glibc takes no donor"),
                _ => None,
            };
            return Some(Mistake::Stock { takes_none });
        }
        let donor = donors::find(&report.malloc.name).filter(|_| executable)?;
        let is_linked = inspector::verify::is_without_note(file).unwrap_or(false);
        is_linked.then(|| Mistake::Linked(donor.name.to_owned()))
    }
}

/// Whether the file carries no donor at all: it was not grafted, or another tool took the graft's notes away.
fn is_stock(report: &Report) -> bool {
    let names = [Some(&report.malloc), report.libc_allocator.as_ref()];
    report.strings != Strings::Grafted
        && matches!(report.libc, Libc::Musl | Libc::Glibc)
        && names
            .into_iter()
            .flatten()
            .all(|allocator| donors::find(&allocator.name).is_none() && allocator.name != inspector::name::UNKNOWN)
}

fn not_run(name: &str, reason: &str) -> NotRun {
    NotRun { name: name.to_owned(), reason: reason.to_owned() }
}

fn listing(verified: &[Verified], output: &Output) -> Page {
    let mut text = output.page();
    let (good, bad) = output.marks();
    // The checks of what is not a graft would only frighten: the message says what it is.
    for host in verified.iter().filter(|host| output.verbose || host.mistake.is_none()) {
        let against = match &host.stock {
            Some(stock) => format!("against {}", stock.display()),
            None => "without a stock file to compare with".to_owned(),
        };
        let _ = writeln!(text, "{}  {against}", output.paint(Style::Strong, host.path.display()));
        for check in &host.checks {
            let mark = match check.ok {
                true => output.paint(Style::Good, good),
                false => output.paint(Style::Bad, bad),
            };
            let _ = writeln!(text, "  {mark} {}{}{}", check.name, separator(&check.detail), check.detail);
        }
        // Without `-v`, differences that have a reason are not listed: there are some thirty of them.
        for difference in host.differences.iter().filter(|difference| output.verbose || difference.why.is_none()) {
            let _ = writeln!(text, "    {}", explained(difference));
        }
        for not_run in &host.not_run {
            let label = output.paint(Style::Notice, "not run:");
            let _ = writeln!(text, "  {label} {}: {}", not_run.name, not_run.reason);
        }
        let _ = writeln!(text, "  {}", host.summary());
    }
    text
}

/// Describes a difference in one line: the symbol before, after, and the reason.
fn explained(difference: &Difference) -> String {
    let what = |definition: &Option<Definition>| match definition {
        Some(Definition { member, weak, hidden, size }) => {
            let binding = if *weak { "weak" } else { "strong" };
            let hidden = if *hidden { ", hidden" } else { "" };
            format!("{binding}{hidden}, {size} bytes, member {member}")
        }
        None => "nothing".to_owned(),
    };
    let why = difference.why.unwrap_or("for no reason that a graft has");
    format!("{}: {}, was {}: {why}", difference.symbol, what(&difference.after), what(&difference.before))
}

fn separator(detail: &str) -> &'static str {
    if detail.is_empty() { "" } else { ": " }
}

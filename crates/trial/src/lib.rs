//! Links conformance programs against a graft and runs them, with the linkers, emulators and start files of this
//! machine.
//!
//! | module | what lives there |
//! | --- | --- |
//! | [`command_path`] | programs on the command path |
//! | `linker` | linkers, which of them this machine has, and their command lines |
//! | `references` | an object that only refers to symbols |
//! | `run` | runs of a program, under an emulator if need be, with a time limit |
//! | `failure` | kinds of failures, to compare a failure with stock's |

pub mod command_path;
mod failure;
mod linker;
mod references;
mod run;

use std::path::{Path, PathBuf};

use inspector::verify::{Check, NotRun};
use inspector::{Arch, Source, Strings, name};
use object::{Object, ObjectSymbol};
use tempfile::TempDir;

use failure::{Failure, FailureKind};
use linker::{Linker, Mode, StartFiles};
use run::Runner;

/// The programs that are tried with every linker and in every mode.
const SLICE: [&str; 3] = ["family", "libc_callers", "threads"];

/// The program that uses most of the malloc family, and has no `malloc` of its own.
const PLAIN: &str = "family";

/// The functions of libc that manual grafts have lost or that have collided with the donor's.
const DUPLICATORS: [&str; 3] = ["wcsdup", "strdup", "strndup"];

/// The way in which programs for a foreign architecture are run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Emulator {
    /// With `qemu-ARCH-static` or `qemu-ARCH` on the command path.
    #[default]
    Auto,
    /// With this program.
    Program(PathBuf),
    /// They are not run.
    Never,
}

/// The options of a trial.
#[derive(Default)]
pub struct TrialOptions<'a> {
    /// The stock archive. A failure that stock has, too, does not count against the graft.
    pub stock: Option<PathBuf>,
    /// The way in which programs for a foreign architecture are run.
    pub emulator: Emulator,
    /// Tries every program with every linker in every mode, not only a selection.
    pub thorough: bool,
    /// The names of the programs to try. All if it is empty.
    pub only: Vec<String>,
    /// The length of the programs' loops, in percent of the full length.
    pub scale_percent: Option<u32>,
    /// The linkers to use. `None`: those that `$ALLOGRAFT_LINKERS` names (paths, separated as in `$PATH`), else those
    /// on the command path.
    pub linkers: Option<Vec<PathBuf>>,
    /// Receives a description of each step before it begins.
    pub progress: Option<&'a dyn Fn(&str)>,
}

/// The result of a trial.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrialOutcome {
    /// A check for each program that was linked and run.
    pub checks: Vec<Check>,
    /// The checks for which the machine lacks the means.
    pub not_run: Vec<NotRun>,
}

impl TrialOutcome {
    fn leave_out(&mut self, name: impl Into<String>, reason: impl Into<String>) {
        self.not_run.push(NotRun { name: name.into(), reason: reason.into() });
    }
}

/// Links the conformance programs against the archive at `libc` and runs them.
///
/// Never fails as a whole: checks that cannot be made are in [`TrialOutcome::not_run`].
pub fn trial(libc: &Path, arch: Arch, options: &TrialOptions<'_>) -> TrialOutcome {
    let mut outcome = TrialOutcome::default();
    if let Err(reason) = Trial::prepare(libc, arch, options, &mut outcome).map(|trial| trial.run(&mut outcome)) {
        outcome.leave_out("programs", reason);
    }
    outcome
}

/// An object to link and run.
struct Case<'p> {
    name: &'p str,
    object: &'p [u8],
    /// Names to refer to before the program does, or after the archive has been searched once.
    named_first: &'p [&'p str],
    named_last: &'p [&'p str],
    seconds: u32,
}

struct Trial<'o> {
    libc: PathBuf,
    arch: Arch,
    options: &'o TrialOptions<'o>,
    linkers: Vec<Linker>,
    start: StartFiles,
    runner: Option<Runner>,
    suite: format::Arch,
    folder: TempDir,
    /// The donor's name, if the archive is a graft.
    donor: Option<String>,
    /// Whether the archive's string functions are allograft's.
    strings: bool,
}

impl<'o> Trial<'o> {
    fn prepare(
        libc: &Path,
        arch: Arch,
        options: &'o TrialOptions<'o>,
        outcome: &mut TrialOutcome,
    ) -> Result<Self, String> {
        let suite = format::Arch::from_name(&arch.name())
            .filter(|arch| conformance::is_built_for(*arch))
            .ok_or_else(|| format!("this build has no conformance programs for {arch}"))?;
        // A linker runs in its own folder.
        let libc =
            std::path::absolute(libc).map_err(|error| format!("cannot tell where `{}` is: {error}", libc.display()))?;
        let folder = tempfile::Builder::new()
            .prefix("allograft-verify-")
            .tempdir()
            .map_err(|error| format!("cannot make a temporary folder: {error}"))?;
        let linkers = linker::find(options.linkers.as_deref(), arch);
        if linkers.is_empty() {
            return Err(format!("no linker for {arch} was found: looked for {}", linker::looked_for(arch).join(", ")));
        }
        let start = StartFiles::beside(&libc, suite, folder.path())
            .map_err(|error| format!("cannot write start files: {error}"))?;
        let runner = match Runner::find(arch, &options.emulator, options.scale_percent) {
            Ok(runner) => Some(runner),
            Err(reason) => {
                outcome.leave_out("run programs", reason);
                None
            }
        };
        let bytes = std::fs::read(&libc).map_err(|error| format!("cannot read `{}`: {error}", libc.display()))?;
        let report = inspector::inspect(&bytes).map_err(|error| error.to_string())?;
        let (malloc, strings) = (report.malloc, report.strings == Strings::Grafted);
        let donor = malloc.evidence.iter().any(|evidence| evidence.source == Source::Note).then_some(malloc.name);
        Ok(Trial { libc, arch, options, linkers, start, runner, suite, folder, donor, strings })
    }

    fn run(self, outcome: &mut TrialOutcome) {
        let programs = conformance::programs();
        for (place, linker) in self.linkers.iter().enumerate() {
            for mode in [Mode::Static, Mode::StaticPie] {
                let way = format!("{}, {mode}", linker.name);
                if !self.start.has(mode) {
                    let reason = format!("there is no {} beside the archive", mode.start_file());
                    outcome.leave_out(way, reason);
                    continue;
                }
                let all = self.options.thorough || (place == 0 && mode == Mode::Static);
                let chosen = |program: &&conformance::Program| {
                    (all || SLICE.contains(&program.name)) && self.wanted(program.name)
                };
                for program in programs.iter().filter(chosen) {
                    let case = Case {
                        name: program.name,
                        object: program.object(self.suite),
                        named_first: &[],
                        named_last: &[],
                        seconds: program.seconds,
                    };
                    self.judge(&case, linker, mode, outcome);
                }
                if mode == Mode::Static {
                    self.duplicators(linker, outcome);
                }
            }
        }
    }

    fn wanted(&self, name: &str) -> bool {
        self.options.only.is_empty() || self.options.only.iter().any(|only| only == name)
    }

    /// Refers to wcsdup, strdup and strndup before anything else, and after the archive has been searched once.
    fn duplicators(&self, linker: &Linker, outcome: &mut TrialOutcome) {
        let Some(program) = conformance::find("libc_callers").filter(|program| self.wanted(program.name)) else {
            return;
        };
        let object = program.object(self.suite);
        let case =
            |name, first, last| Case { name, object, named_first: first, named_last: last, seconds: program.seconds };
        for (name, first) in [("wcsdup named first", &DUPLICATORS[..1]), ("strdup named first", &DUPLICATORS[1..])] {
            self.judge(&case(name, first, &[]), linker, Mode::Static, outcome);
        }
        self.judge(&case("wcsdup, strdup, strndup named last", &[], &DUPLICATORS), linker, Mode::Static, outcome);
    }

    /// Links and runs a case, and records the result.
    fn judge(&self, case: &Case<'_>, linker: &Linker, mode: Mode, outcome: &mut TrialOutcome) {
        let name = format!("{} ({}, {mode})", case.name, linker.name);
        if let Some(progress) = self.options.progress {
            progress(&name);
        }
        let failure = match self.attempt(case, linker, mode, &self.libc, true) {
            Ok(detail) => return outcome.checks.push(Check::new(name, true, detail)),
            Err(failure) if failure.kind == FailureKind::Machine => return outcome.leave_out(name, failure.detail),
            Err(failure) => failure,
        };
        let Some(stock) = self.options.stock.as_deref() else {
            return outcome.checks.push(Check::new(name, false, failure.detail));
        };
        match self.attempt(case, linker, mode, stock, false) {
            Ok(_) => outcome.checks.push(Check::new(name, false, format!("{} (on stock it works)", failure.detail))),
            // Only the same failure of stock excuses the graft: a crash does not excuse a hang.
            Err(on_stock) if on_stock.kind == failure.kind => {
                outcome.leave_out(name, format!("stock fails too, so it is not the graft's fault: {}", failure.detail));
            }
            Err(on_stock) => {
                let detail = format!("{} (stock fails too, differently: {})", failure.detail, on_stock.detail);
                outcome.checks.push(Check::new(name, false, detail));
            }
        }
    }

    fn attempt(
        &self,
        case: &Case<'_>,
        linker: &Linker,
        mode: Mode,
        libc: &Path,
        graft: bool,
    ) -> Result<String, Failure> {
        let machine =
            |what: &str, error: std::io::Error| Failure::new(FailureKind::Machine, format!("{what}: {error}"));
        let folder =
            tempfile::tempdir_in(self.folder.path()).map_err(|error| machine("cannot make a folder", error))?;
        let put = |name: &str, bytes: &[u8]| -> Result<PathBuf, Failure> {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).map(|()| path).map_err(|error| machine("cannot write an object", error))
        };
        let program = put("program.o", case.object)?;
        let mut first = Vec::new();
        let references = |names: &[&str]| {
            references::object(self.suite, names)
                .map_err(|error| Failure::new(FailureKind::Machine, format!("cannot make an object: {error}")))
        };
        if !case.named_first.is_empty() {
            first.push(put("first.o", &references(case.named_first)?)?);
        }
        first.push(program);
        let mut last = Vec::new();
        if !case.named_last.is_empty() {
            last.push(put("last.o", &references(case.named_last)?)?);
        }
        let executable = folder.path().join("program");
        let inputs = linker::Inputs { start: &self.start, first: &first, libc, last: &last, output: &executable };
        linker.link(&inputs, mode, self.arch, folder.path()).map_err(|said| Failure::new(FailureKind::Link, said))?;
        if graft {
            let bytes = std::fs::read(&executable).map_err(|error| machine("cannot read the linked program", error))?;
            self.carries(case, &bytes).map_err(|problem| Failure::new(FailureKind::Contents, problem))?;
        }
        let Some(runner) = &self.runner else { return Ok("linked; not run".to_owned()) };
        let seconds = runner.run(&executable, folder.path(), case.seconds)?;
        Ok(format!("linked, ran in {seconds:.1} s"))
    }

    /// Checks that the linked program has the named symbols, and that its note names the donor.
    fn carries(&self, case: &Case<'_>, bytes: &[u8]) -> Result<(), String> {
        let program =
            object::File::parse(bytes).map_err(|problem| format!("the linked program is malformed: {problem}"))?;
        let asked = case.named_first.iter().chain(case.named_last);
        let missing: Vec<String> = asked
            .filter(|name| !program.symbols().any(|symbol| symbol.is_definition() && symbol.name() == Ok(name)))
            .map(|name| format!("the linked program does not define `{name}`"))
            .collect();
        if !missing.is_empty() {
            return Err(missing.join("; "));
        }
        if case.name != PLAIN {
            return Ok(());
        }
        let report =
            inspector::inspect(bytes).map_err(|error| format!("the linked program cannot be inspected: {error}"))?;
        if self.strings && report.strings != Strings::Grafted {
            return Err("the linked program carries no note of the grafted string functions".to_owned());
        }
        let (Some(donor), malloc) = (&self.donor, report.malloc) else { return Ok(()) };
        let by_note = malloc.evidence.iter().any(|evidence| evidence.source == Source::Note);
        if malloc.name == *donor && by_note {
            return Ok(());
        }
        let found = if by_note { malloc.name.as_str() } else { "no note" };
        let found = if malloc.name == name::UNKNOWN && by_note { "a `malloc` that is not the donor's" } else { found };
        Err(format!("the linked program carries {found}, expected the note of {donor}"))
    }
}

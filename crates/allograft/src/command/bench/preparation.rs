//! Prepares a measurement: makes or finds the programs of all arms, and decides how they are run.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use format::Arch;
use measure::case::{self, Case, Invocation};
use measure::rates::{self, Rate};
use measure::results::{Input, Origin};

use super::arms::{self, Arm, HostKind, Libc, Selection};
use super::dynamic::Dynamic;
use super::executable::Executable;
use super::host::StockMusl;
use super::program::{Line, Recipe};
use super::{
    Bench, Linked, OF_A_PROGRAM, Scratch, WITH_RATES, Wanted, Work, interruption, render, suite, template, typed,
};
use crate::failure::Failure;
use crate::output::Output;
use crate::program::{check_name, lacks_execution};
use crate::shell::quoted;

impl Bench {
    /// Prepares the cases to measure.
    pub(super) fn prepare(&self, output: &Output, interrupted: &AtomicBool) -> Result<Work, Failure> {
        self.check_server()?;
        if let Some(build) = &self.build {
            return self.prepare_program(build, output, interrupted);
        }
        if !self.command.is_empty() {
            check_name(&self.command[0], "bench")?;
            launched(&self.command[0], output);
            check_execution(&self.command[0])?;
            return match Dynamic::find(&self.command)? {
                Some(program) => self.prepare_dynamic(program, output, interrupted),
                None => self.prepare_executable(output, interrupted),
            };
        }
        if self.server.is_some() {
            return Err(Failure::usage("there is no server to start").with_help(
                "name a linked one behind `--`, or say how it is built: `--build 'CMD with {libdir} and {out}'`",
            ));
        }
        let host = StockMusl::find(self.host.as_deref())?;
        let choice = suite::Choice {
            names: &self.suite,
            arms: self.selection(),
            threads: &self.threads,
            cc: self.cc.as_deref(),
            include: self.include.as_deref(),
            quick: self.quick,
        };
        suite::prepare(&choice, &host, output, self.budget, interrupted)
    }

    /// Prepares the user's executable: stock and grafts.
    fn prepare_executable(&self, output: &Output, interrupted: &AtomicBool) -> Result<Work, Failure> {
        let line = self.line(&self.command[1..]);
        self.reaches(&line)?;
        let executable = Executable::find(&self.command[0])?;
        let (arms, without_strings) = executable.arms(self.selection())?;
        if self.donors.is_none() {
            output.note(format_args!(
                "not measured, as they go into a libc.a only: {}; `--build CMD` links the program with each",
                executable.for_archives_only().join(", ")
            ));
        }
        let folder = Scratch::new()?;
        let made = make_all(&arms, output, interrupted, |arm, number| {
            executable.make(arm, &folder.path().join(format!("arm{number}")))
        })?;
        let cases = self.cases(&arms, &made, |_, program, threads| line.invocation(program, threads));
        let origins = arms.iter().map(|arm| arm.origin(&executable.typed, true)).collect();
        let input = input("executable", self.commands("command"), executable.typed, executable.sha256);
        let warning = without_strings.map(|reason| format!("no arm has string functions: {reason}"));
        Ok(Work { warnings: warning.into_iter().collect(), ..self.work(cases, origins, input, folder) })
    }

    /// Prepares the user's dynamic program: alone, and with donors merged into copies of it or preloaded.
    fn prepare_dynamic(&self, program: Dynamic, output: &Output, interrupted: &AtomicBool) -> Result<Work, Failure> {
        let line = self.line(&self.command[1..]);
        self.reaches(&line)?;
        let arms = program.arms(self.selection())?;
        let folder = Scratch::new()?;
        let made = make_all(&arms, output, interrupted, |arm, number| {
            program.make(arm, &folder.path().join(format!("arm{number}")))
        })?;
        let cases = self.cases(&arms, &made, |arm, made, threads| program.invocation(&line, arm, made, threads));
        let origins = arms.iter().map(|arm| program.origin(arm, line.server.map(|(server, _)| server))).collect();
        let preloaded = program.any_preloaded(&arms);
        let warning = program.unmerged().filter(|_| preloaded).map(|why| format!("donors are preloaded: one {why}"));
        let (kind, host) = match program.unmerged() {
            None => ("executable", program.typed),
            Some(_) => ("preloaded", format!("{} ({})", program.typed, program.libc())),
        };
        let input = input(kind, self.commands("command"), host, program.sha256);
        Ok(Work { warnings: warning.into_iter().collect(), ..self.work(cases, origins, input, folder) })
    }

    /// Returns the arms of programs that are linked elsewhere with musl. Called before anything is built.
    ///
    /// # Errors
    /// Arms that do not exist, and options that contradict each other.
    pub(crate) fn arms_to_link(&self, arch: format::Arch) -> Result<Vec<Arm>, Failure> {
        for path in [&self.html, &self.markdown, &self.csv, &self.save].into_iter().flatten() {
            render::check(path)?;
        }
        self.check_server()?;
        self.reaches(&self.line(&self.command))?;
        let arms = arms::read(self.selection(), arch, HostKind::Archive)?;
        match arms.iter().find(|arm| matches!(arm.libc, Libc::Glibc | Libc::Bump)) {
            None => Ok(arms),
            Some(arm) => Err(Failure::usage(format!("arm `{}` is not one that is linked with musl alone", arm.name))
                .with_help("name donors: `allograft donors` lists them")),
        }
    }

    /// Measures programs that were linked elsewhere. Each arm has its program, or the reason why it has none.
    ///
    /// # Errors
    /// Those of measuring.
    pub(crate) fn run_linked(&self, linked: Linked<'_>, output: &Output) -> Result<ExitCode, Failure> {
        let line = self.line(&self.command);
        let Linked { arms, programs, command, host, folder } = linked;
        let origin = |arm: &Arm| Origin {
            command: match &arm.libc {
                Libc::Graft(graft) => Some(graft.command_of_cargo(&command)),
                _ => None,
            },
            ..arm.origin(&host.typed, host.has_strings())
        };
        let commands = [("build".to_owned(), command.clone())].into_iter().chain(self.commands("arguments")).collect();
        let cases = self.cases(arms, &programs, |_, program, threads| line.invocation(program, threads));
        let input = input("cargo", commands, host.typed.clone(), host.sha256.clone());
        let work = self.work(cases, arms.iter().map(origin).collect(), input, folder);
        self.measure(work, output, &interruption()?)
    }

    /// Returns the arms that the options ask for.
    fn selection(&self) -> Selection<'_> {
        let profile = (self.wanted == Wanted::Memory).then_some(arms::SMALL);
        Selection { names: self.donors.as_deref(), profile }
    }

    /// Returns how a program is run with these words.
    fn line<'l>(&'l self, words: &'l [OsString]) -> Line<'l> {
        let server = self.server.as_deref().zip(self.load.as_deref());
        Line { words, threads_var: self.threads_var.as_deref(), server }
    }

    /// The commands that run a program, for the results. Those after `--` get the name `words`.
    fn commands(&self, words: &str) -> Vec<(String, String)> {
        let own = (!self.command.is_empty()).then(|| (words.to_owned(), typed(&self.command)));
        let named = [("server", &self.server), ("load", &self.load)];
        let served = named.into_iter().filter_map(|(name, command)| Some((name.to_owned(), command.clone()?)));
        served.chain(own).collect()
    }

    /// Checks that the `--server` command has a place for the program and for the port.
    fn check_server(&self) -> Result<(), Failure> {
        let Some(server) = self.server.as_deref() else { return Ok(()) };
        if !self.rates.is_empty() && !self.takes_rates() {
            return Err(Failure::usage("the `--load` command does not say `{rate}`").with_help(
                "write `{rate}` where the load generator gets its requests per second: `--load 'wrk2 -R{rate} ...'`",
            ));
        }
        if let Some(place) = ["out", "port"].into_iter().find(|place| !template::has(server, place)) {
            return Err(Failure::usage(format!("the `--server` command does not say `{{{place}}}`")).with_help(
                "`{out}` is the program of each arm, `{port}` where it has to listen: `--server '{out} --port {port}'`",
            ));
        }
        Ok(())
    }

    /// Whether the load takes a rate.
    fn takes_rates(&self) -> bool {
        self.load.as_deref().is_some_and(|load| template::has(load, "rate"))
    }

    /// The equal rates at which the server is measured, too. Empty if its load takes none.
    fn equal_rates(&self) -> Vec<Rate> {
        match (self.takes_rates(), self.rates.is_empty()) {
            (false, _) => Vec::new(),
            (true, true) => rates::DEFAULT.to_vec(),
            (true, false) => self.rates.clone(),
        }
    }

    /// Checks that the number of threads and the arguments can reach the program.
    fn reaches(&self, line: &Line<'_>) -> Result<(), Failure> {
        if line.server.is_some() && !line.words.is_empty() {
            return Err(Failure::usage(format!("`{}` would not reach the server", typed(line.words)))
                .with_help("what it takes belongs into its command: `--server '{out} --port {port} ...'`"));
        }
        if self.threads.is_empty() || line.takes_threads() {
            return Ok(());
        }
        Err(Failure::usage("nothing tells the program its number of threads").with_help(
            "say `{threads}` in its arguments, as in `allograft bench --threads 1,2 ./program --jobs {threads}` (of \
                 cargo: `... -- --jobs {threads}`), or `--threads-var NAME` if it reads an environment variable",
        ))
    }

    /// Returns one case for each number of threads.
    fn cases(
        &self,
        arms: &[Arm],
        programs: &[Result<PathBuf, String>],
        invoke: impl Fn(&Arm, &Path, Option<u32>) -> Invocation,
    ) -> Vec<Case> {
        let case = |threads| {
            let arms = case_arms(arms, programs, |arm, program| invoke(arm, program, threads));
            Case { name: PROGRAM.to_owned(), threads, size: None, arms }
        };
        each_or_none(&self.threads).map(case).collect()
    }

    fn prepare_program(&self, build: &str, output: &Output, interrupted: &AtomicBool) -> Result<Work, Failure> {
        let recipe = Recipe { build, build_glibc: self.build_glibc.as_deref() };
        recipe.check()?;
        let line = self.line(&self.command);
        self.reaches(&line)?;
        let host = StockMusl::find(self.host.as_deref())?;
        native(&host.typed, host.arch)?;
        let mut arms = arms::read(self.selection(), host.arch, HostKind::Archive)?;
        if self.build_glibc.is_some() {
            arms::add_glibc(&mut arms);
        }
        let folder = Scratch::new()?;
        let built = make_all(&arms, output, interrupted, |arm, number| {
            recipe.make(arm, &host, &folder.path().join(format!("arm{number}")))
        })?;
        let mut commands = vec![("build".to_owned(), build.to_owned())];
        commands.extend(self.build_glibc.iter().map(|build| ("build with glibc".to_owned(), build.clone())));
        commands.extend(self.commands("arguments"));
        let kind = if self.server.is_some() { "server" } else { "program" };
        let cases = self.cases(&arms, &built, |_, program, threads| line.invocation(program, threads));
        let origins = arms.iter().map(|arm| arm.origin(&host.typed, host.has_strings())).collect();
        Ok(self.work(cases, origins, input(kind, commands, host.typed, host.sha256), folder))
    }

    fn work(&self, cases: Vec<Case>, origins: Vec<Origin>, input: Input, folder: Scratch) -> Work {
        let rates = self.equal_rates();
        let budget = self.budget.unwrap_or(if rates.is_empty() { OF_A_PROGRAM } else { WITH_RATES });
        Work { cases, origins, input, budget, rates, warnings: Vec::new(), _folder: folder }
    }
}

/// The name of the case of a user's own program.
pub(super) const PROGRAM: &str = "program";

/// Returns each value as `Some`; without values, `None` once.
pub(super) fn each_or_none<T: Copy>(given: &[T]) -> impl Iterator<Item = Option<T>> + Clone + '_ {
    given.is_empty().then_some(None).into_iter().chain(given.iter().copied().map(Some))
}

/// Programs that are there to start others.
const LAUNCHERS: [&str; 13] =
    ["ash", "bash", "busybox", "dash", "env", "ksh", "make", "nice", "sh", "taskset", "time", "timeout", "xargs"];

/// Notes that only the named program is exchanged, if that is one that starts others.
fn launched(program: &OsStr, output: &Output) {
    if let Some(name) = Path::new(program).file_name().and_then(OsStr::to_str).filter(|name| LAUNCHERS.contains(name)) {
        output.note(format_args!(
            "a donor in `{name}` does not reach the programs that it starts, only a preloaded one does: name the program \
             to measure itself"
        ));
    }
}

/// Refuses a program that may be read and not started.
fn check_execution(program: &OsStr) -> Result<(), Failure> {
    let path = Path::new(program);
    match lacks_execution(path) && hosts::is_executable(path).unwrap_or(false) {
        true => {
            let typed = program.to_string_lossy();
            Err(Failure::usage(format!("`{typed}` is not executable"))
                .with_help(format!("make it executable: `chmod +x {}`", quoted(&typed))))
        }
        false => Ok(()),
    }
}

/// Refuses a program for another architecture: it would run under an emulator, whose times mean nothing.
pub(super) fn native(typed: &str, arch: Arch) -> Result<(), Failure> {
    if arch.name() == std::env::consts::ARCH {
        return Ok(());
    }
    let message = format!("`{typed}` is for {arch}, and this machine is {}", std::env::consts::ARCH);
    Err(Failure::usage(message).with_help("measure on a machine of that architecture: rankings do not carry over"))
}

pub(super) fn input(kind: &str, commands: Vec<(String, String)>, host: String, host_sha256: String) -> Input {
    Input { kind: kind.to_owned(), commands, host, host_sha256 }
}

/// Makes the program of each arm. Returns its path, or the reason why the arm has none. Failures of arms are printed
/// once it is certain that there is something to compare.
///
/// # Errors
/// The first arm, stock, has no program, or no other arm has one.
pub(super) fn make_all(
    arms: &[Arm],
    output: &Output,
    interrupted: &AtomicBool,
    mut make: impl FnMut(&Arm, usize) -> Result<PathBuf, Failure>,
) -> Result<Vec<Result<PathBuf, String>>, Failure> {
    let progress = output.progress();
    let mut built = Vec::new();
    let mut held: Vec<Failure> = Vec::new();
    let mut is_comparable = false;
    for (number, arm) in arms.iter().enumerate() {
        if interrupted.load(Ordering::Relaxed) {
            progress.finish();
            return Err(Failure::usage("interrupted: nothing was measured")
                .with_help("start it again: nothing is kept of a run that measured nothing"));
        }
        progress.step(&format!("{} of {}: building {}", number + 1, arms.len(), arm.name));
        match make(arm, number) {
            Err(failure) if number == 0 => {
                progress.finish();
                return Err(failure);
            }
            Err(failure) => {
                let reason = failure.message.as_str();
                built.push(Err(reason.strip_prefix(&format!("{}: ", arm.name)).unwrap_or(reason).to_owned()));
                held.push(failure);
            }
            Ok(program) => {
                is_comparable |= number > 0;
                built.push(Ok(program));
            }
        }
        if is_comparable && !held.is_empty() {
            progress.finish();
            held.drain(..).for_each(|failure| output.error(&failure));
        }
    }
    progress.finish();
    match held.is_empty() {
        true => Ok(built),
        false => Err(incomparable(held, output)),
    }
}

/// The failure of a comparison in which only stock has a program. If one reason holds for all arms, it is that reason;
/// otherwise each is printed.
fn incomparable(mut failures: Vec<Failure>, output: &Output) -> Failure {
    let first = failures.remove(0);
    if failures.iter().all(|failure| failure.message == first.message) {
        return first;
    }
    let exit_code = first.exit_code;
    std::iter::once(&first).chain(&failures).for_each(|failure| output.error(failure));
    let failure = Failure::usage("there is nothing left to compare stock with")
        .with_help("the errors above say why each arm was left out; name others: `--donors A,B`");
    Failure { exit_code, ..failure }
}

pub(super) fn case_arms(
    arms: &[Arm],
    built: &[Result<PathBuf, String>],
    invoke: impl Fn(&Arm, &Path) -> Invocation,
) -> Vec<case::Arm> {
    let arm = |(arm, built): (&Arm, &Result<PathBuf, String>)| case::Arm {
        name: arm.name.clone(),
        invocation: built.as_ref().map_or_else(|_| Invocation::default(), |program| invoke(arm, program)),
        broken: built.as_ref().err().cloned(),
    };
    arms.iter().zip(built).map(arm).collect()
}

//! The suite: our own programs, built here for every arm.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::builder::{PossibleValue, TypedValueParser};
use clap::error::ErrorKind;
use measure::case::{Case, Invocation};

use super::arms::{self, Arm, Libc, Selection};
use super::host::StockMusl;
use super::preparation::{case_arms, each_or_none, input, make_all, native};
use super::{Scratch, Work, words};
use crate::failure::{Failure, mend};
use crate::output::{Output, printable};

/// The kind of the suite's results.
pub(super) const KIND: &str = "suite";

/// The parser of the names of cases.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cases;

impl TypedValueParser for Cases {
    type Value = String;

    fn parse_ref(&self, parser: &clap::Command, _: Option<&clap::Arg>, word: &OsStr) -> Result<String, clap::Error> {
        words::case(word).map(str::to_owned).ok_or_else(|| {
            let names: Vec<&str> = suite::names().collect();
            let message = format!(
                "`{}` is not a case of the suite, which has {}\n\n  tip: a program and its arguments are measured alone: \
                 `allograft bench PROGRAM ARGS`\n",
                printable(word.to_string_lossy()),
                names.join(", ")
            );
            clap::Error::raw(ErrorKind::InvalidValue, message).with_cmd(parser)
        })
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(suite::names().map(PossibleValue::new)))
    }
}

/// The part of the suite that is run.
pub(super) struct Choice<'c> {
    /// The names of the programs. Empty: all.
    pub(super) names: &'c [String],
    pub(super) arms: Selection<'c>,
    /// The numbers of threads. Empty: those of each program.
    pub(super) threads: &'c [u32],
    pub(super) cc: Option<&'c Path>,
    pub(super) include: Option<&'c Path>,
    /// Whether to do only little work, to check that everything runs.
    pub(super) quick: bool,
}

/// Builds the programs.
pub(super) fn prepare(
    choice: &Choice<'_>,
    host: &StockMusl,
    output: &Output,
    budget: Option<Duration>,
    interrupted: &AtomicBool,
) -> Result<Work, Failure> {
    native(&host.typed, host.arch)?;
    let mut arms = arms::read(choice.arms, host.arch, arms::HostKind::Archive)?;
    if choice.arms.names.is_none() {
        arms::add_glibc(&mut arms);
    }
    let folder = Scratch::new()?;
    let compiler = Compiler::find(choice, host, folder.path())?;
    let is_chosen = |case: &&suite::Case| choice.names.is_empty() || choice.names.iter().any(|name| name == case.name);
    let chosen: Vec<&suite::Case> = suite::CASES.iter().filter(is_chosen).collect();
    // Each arm has one folder, which contains the programs under their names.
    let built = make_all(&arms, output, interrupted, |arm, number| {
        let home = folder.path().join(format!("arm{number}"));
        compiler.make(arm, host, &chosen, &home)?;
        Ok(home)
    })?;
    let mut cases = Vec::new();
    for case in &chosen {
        let threads = if choice.threads.is_empty() { case.threads } else { choice.threads };
        let sizes = each_or_none(case.sizes);
        for (threads, size) in threads.iter().flat_map(|threads| sizes.clone().map(move |size| (*threads, size))) {
            let invoke = |_: &Arm, home: &Path| invocation(case, home, threads, size, choice.quick);
            let arms = case_arms(&arms, &built, invoke);
            cases.push(Case { name: case.name.to_owned(), threads: Some(threads), size, arms });
        }
    }
    Ok(Work {
        cases,
        origins: arms.iter().map(|arm| arm.origin(&host.typed, host.has_strings())).collect(),
        input: input(KIND, vec![("compiler".to_owned(), compiler.version())], host.typed.clone(), host.sha256.clone()),
        budget: budget.unwrap_or(Duration::from_secs(3600)),
        rates: Vec::new(),
        warnings: match choice.quick {
            true => vec!["--quick shows whether everything runs, not how fast".to_owned()],
            false => Vec::new(),
        },
        _folder: folder,
    })
}

fn invocation(case: &suite::Case, home: &Path, threads: u32, size: Option<u64>, quick: bool) -> Invocation {
    let arguments = case.arguments(threads, size, quick).into_iter().map(Into::into).collect();
    Invocation { program: home.join(case.name), arguments, ..Invocation::default() }
}

/// A C compiler, and the headers that it needs for musl.
struct Compiler {
    cc: PathBuf,
    include: PathBuf,
    sources: PathBuf,
}

/// The flags for every libc. Some distributions turn on protections by default that exist under one libc only.
const FLAGS: [&str; 6] = ["-std=c11", "-O2", "-pthread", "-fno-stack-protector", "-U_FORTIFY_SOURCE", "-fno-pie"];

impl Compiler {
    fn find(choice: &Choice<'_>, host: &StockMusl, folder: &Path) -> Result<Compiler, Failure> {
        let named = std::env::var_os("CC").filter(|cc| !cc.is_empty()).map(PathBuf::from);
        let cc = choice.cc.map(Path::to_owned).or(named).unwrap_or_else(|| PathBuf::from("cc"));
        let include = choice.include.map(Path::to_owned).or_else(|| host.include()).ok_or_else(|| {
            Failure::usage(format!("musl's headers are not beside `{}`", host.typed))
                .with_help("name them: `--include FOLDER`")
        })?;
        let sources = folder.join("sources");
        let failed = |error: std::io::Error| {
            Failure::usage(format!("cannot write the suite's sources: {error}")).with_help(mend(&error))
        };
        for case in &suite::CASES {
            let home = sources.join(case.name);
            fs::create_dir_all(&home).map_err(failed)?;
            fs::write(home.join("program.c"), case.source).map_err(failed)?;
        }
        fs::write(sources.join("workload.h"), suite::HEADER).map_err(failed)?;
        fs::write(sources.join("bump.c"), suite::BUMP).map_err(failed)?;
        let compiler = Compiler { cc, include, sources };
        run(Command::new(&compiler.cc).arg("--version"))
            .map_err(|failure| failure.with_help("the suite is in C: install a compiler, or name one with `--cc`"))?;
        Ok(compiler)
    }

    /// The first line of its `--version`.
    fn version(&self) -> String {
        let output = Command::new(&self.cc).arg("--version").stdin(Stdio::null()).output();
        let said = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
        said.lines().next().unwrap_or_default().to_owned()
    }

    /// Builds every program of the suite for an arm, in `home`.
    fn make(&self, arm: &Arm, host: &StockMusl, cases: &[&suite::Case], home: &Path) -> Result<(), Failure> {
        let libdir = home.join("lib");
        host.copy(arm, &libdir)?;
        let bump = home.join("bump.o");
        if matches!(arm.libc, Libc::Bump) {
            self.compile(&self.sources.join("bump.c"), &bump)?;
        }
        for case in cases {
            let source = self.sources.join(case.name).join("program.c");
            let (object, program) = (home.join(format!("{}.o", case.name)), home.join(case.name));
            if matches!(arm.libc, Libc::Glibc) {
                run(self.command().arg("-no-pie").arg(&source).arg("-o").arg(&program))?;
                is_glibc(&program)?;
                continue;
            }
            self.compile(&source, &object)?;
            let objects = if bump.is_file() { vec![object, bump.clone()] } else { vec![object] };
            self.link(&objects, &libdir, &program)?;
        }
        Ok(())
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.cc);
        command.args(FLAGS);
        command
    }

    /// Compiles as `musl-gcc` does: with musl's headers only.
    fn compile(&self, source: &Path, object: &Path) -> Result<(), Failure> {
        let mut command = self.command();
        command.arg("-nostdinc").arg("-isystem").arg(&self.include).arg("-c").arg(source).arg("-o").arg(object);
        run(&mut command)
    }

    /// Links the files that musl-gcc's specs name. zig's musl has some functions in archives of their own.
    fn link(&self, objects: &[PathBuf], libdir: &Path, program: &Path) -> Result<(), Failure> {
        let present = |names: &[&str]| {
            let paths = names.iter().map(|name| libdir.join(name));
            paths.filter(|path| path.is_file()).collect::<Vec<_>>()
        };
        let mut command = Command::new(&self.cc);
        command.args(["-static", "-no-pie", "-nostdlib", "-nostartfiles"]);
        command.args(present(&["crt1.o", "crti.o"])).args(objects).arg("-Wl,--start-group");
        command.args(present(&["libc.a", "libzigc.a", "libcompiler_rt.a"])).args(["-lgcc", "-Wl,--end-group"]);
        command.args(present(&["crtn.o"])).arg("-o").arg(program);
        run(&mut command)
    }
}

/// Checks that the program has glibc. On a system whose own libc is musl, the usual compiler links musl.
fn is_glibc(program: &Path) -> Result<(), Failure> {
    let report = fs::read(program).ok().and_then(|bytes| inspector::inspect(&bytes).ok());
    match report.map(|report| report.libc) {
        Some(inspector::Libc::Glibc) => Ok(()),
        _ => Err(Failure::usage("glibc: this machine's compiler does not build for it")
            .with_help("name another compiler with `--cc`, or leave `glibc` out of `--donors`")),
    }
}

fn run(command: &mut Command) -> Result<(), Failure> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output();
    let output = output
        .map_err(|error| Failure::usage(format!("`{program}` does not start: {error}")).with_help(mend(&error)))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Failure::usage(format!("`{program}` failed ({})", output.status))
        .with_help("name another compiler with `--cc`, and musl's headers with `--include`")
        .saying(&said))
}

//! `allograft cc`: a C compiler whose static programs carry a donor, while its toolchain stays unchanged.
//!
//! The compiler does the work. This program only asks it how it would link (`-###`), grafts a private copy of the
//! `libc.a` that it would take, and puts the copy's folder in front of the command line. A command line that links no
//! program is passed to the compiler unchanged.

pub(super) mod copy;
mod link;
pub(super) mod words;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus, Stdio};

use clap::Args;
use hosts::Candidate;

use crate::choice::Choice;
use crate::failure::Failure;
use crate::output::Output;
use crate::program::{self, Expected};
use crate::stand_in::{exit_code, is_zig};
pub(super) use copy::cache;
pub(super) use link::Link;

/// The compiler if none is named: the wrapper around gcc that musl brings.
const COMPILER: &str = "musl-gcc";
/// The environment variable that names a different compiler.
const VARIABLE: &str = "ALLOGRAFT_CC";

/// Run a C compiler whose static programs get a donor
///
/// Runs the compiler with ARGS. A program is linked statically, with a grafted copy of the libc.a that the compiler
/// would link. The copy is made once and kept in a cache folder; the toolchain is not changed. A command line that
/// links no program (-c, -E, -shared, --version ...) is passed to the compiler unchanged.
///
/// The options below come first: the first other word begins ARGS, which are all the compiler's.
#[derive(Debug, Args)]
#[command(
    disable_help_flag = true,
    after_help = "Exit codes: those of the compiler, or
  1  the program has another malloc than the donor's, and is removed
  2  wrong usage, before the compiler runs
  3  refused, before the compiler runs

Examples:
  allograft cc -O2 -o server server.c
  ./configure --disable-shared CC='allograft cc'
  make CC='allograft cc --donor mimalloc3'
  allograft cc --cc 'ccache x86_64-linux-musl-gcc' -O2 -o server server.c
  make CC='allograft cc' CXX='allograft cc --cc x86_64-linux-musl-g++'"
)]
pub(crate) struct Cc {
    /// C compiler for musl, and its words
    ///
    /// The compiler, for musl; may have words of its own, quoted as in a shell [default: $ALLOGRAFT_CC, or musl-gcc]
    #[arg(long, value_name = "COMPILER")]
    cc: Option<OsString>,
    #[command(flatten)]
    choice: Choice,
    /// Arguments of the compiler
    #[arg(value_name = "ARGS", trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

impl Cc {
    pub(crate) fn run(self, output: &Output) -> Result<ExitCode, Failure> {
        let compiler = Compiler::named(self.cc.or_else(|| std::env::var_os(VARIABLE)))?;
        let words = words::expanded(&self.arguments)?;
        if !words::may_link(&words) {
            return Err(compiler.exec(&self.arguments));
        }
        if is_zig(&compiler.words[0]) {
            return Err(Failure::refused(format!(
                "`{}` is zig, which links a libc of its own: the graft would be ignored",
                compiler.shown()
            ))
            .with_help("put the donor on zig's link line: `allograft emit --target x86_64-linux-musl`"));
        }
        if let Some(flag) = words::sanitizer(&[&compiler.words[1..], &words].concat()) {
            return Err(Failure::refused(format!(
                "the flags have {flag}, and that sanitizer finds errors by a malloc of its own, which a donor would \
                 replace"
            ))
            .with_help("make builds with sanitizers with the compiler itself, without `allograft cc`"));
        }
        let candidates = self.choice.candidates()?;
        let mut first: Vec<OsString> = words::static_link(&words).map(OsString::from).into_iter().collect();
        let link = match compiler.link(&[first.as_slice(), &words].concat())? {
            Planned::Program(link) => link,
            Planned::Other => return Err(compiler.exec(&self.arguments)),
            Planned::Fault => return compiler.fault(&[first, self.arguments].concat()),
        };
        let strings = self.choice.strings();
        let folder = copy::folder(&link.libc(&compiler.shown())?, &candidates, strings, output)?;
        first.push(prefixed("-L", &folder));
        let status = compiler.run(&[first, self.arguments].concat())?;
        if status.success() {
            check(&link.out, |arch| expected_in(&candidates, strings, arch), output)?;
        }
        Ok(exit_code(status))
    }
}

/// Returns what is expected of a program for an architecture.
pub(super) fn expected_in(candidates: &[Candidate], strings: Option<bool>, arch: &str) -> Expected {
    let chosen = Candidate::choose(candidates, |donor| donor.arches().any(|of| of.name() == arch));
    Expected {
        malloc: chosen.map(|one| one.donor.name.to_owned()).into_iter().collect(),
        strings: strings != Some(false),
    }
}

/// Looks at the program that was linked. One that is not as expected, or cannot be looked at, is removed, so that
/// `make` does not take it for done. `expected` gives what is expected for an architecture. Returns what it carries;
/// `None` if it is not a file.
pub(super) fn check(
    out: &Path,
    expected: impl Fn(&str) -> Expected,
    output: &Output,
) -> Result<Option<String>, Failure> {
    let look = || {
        // Scripts that only try whether something links may write to /dev/null.
        match fs::metadata(out) {
            Ok(metadata) if !metadata.is_file() => return Ok(None),
            // The compiler may only say that it links.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            metadata => metadata.map_err(Failure::io("read", out))?,
        };
        let report = program::report(out)?;
        let expected = expected(&report.arch.to_string());
        program::check(out, &report, &expected, "leave `-Wl,-Bdynamic`, `-static-pie` and the like out").map(Some)
    };
    let found = look().inspect_err(|_| {
        // The message says what was wrong with it, whether it can be removed or not.
        let _ = fs::remove_file(out);
    })?;
    if let (true, Some(found)) = (output.verbose, &found) {
        output.note(format_args!("`{}` carries {found}", out.display()));
    }
    Ok(found)
}

/// Returns `prefix` and a path as one word.
pub(super) fn prefixed(prefix: &str, path: &Path) -> OsString {
    let mut word = OsString::from(prefix);
    word.push(path);
    word
}

/// The compiler: a program, and words that come before all others.
pub(super) struct Compiler {
    words: Vec<OsString>,
}

impl Compiler {
    /// Splits the compiler's name into words.
    fn named(name: Option<OsString>) -> Result<Compiler, Failure> {
        let name = name.filter(|name| !name.is_empty()).unwrap_or_else(|| COMPILER.into());
        let words: Vec<OsString> = words::split(name.as_bytes()).into_iter().map(OsString::from_vec).collect();
        match words.first() {
            Some(_) => Ok(Compiler { words }),
            None => Err(Failure::usage("the compiler has no name").with_help(HELP)),
        }
    }

    /// The compiler with this path.
    pub(super) fn at(program: PathBuf) -> Compiler {
        Compiler { words: vec![program.into()] }
    }

    /// The program, without the words that come with it.
    pub(super) fn program(&self) -> &OsStr {
        &self.words[0]
    }

    pub(super) fn shown(&self) -> String {
        self.words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]);
        command
    }

    /// Replaces this process with the compiler. Returns only if that fails.
    fn exec(&self, arguments: &[OsString]) -> Failure {
        self.cannot_run(&self.command().args(arguments).exec())
    }

    fn run(&self, arguments: &[OsString]) -> Result<ExitStatus, Failure> {
        self.command().args(arguments).status().map_err(|error| self.cannot_run(&error))
    }

    /// Has the compiler print what is wrong with its arguments. Returns its exit code.
    ///
    /// # Errors
    /// Exit code 1 if it finds nothing wrong: it does not understand `-###`, and what it links is unknown.
    fn fault(&self, arguments: &[OsString]) -> Result<ExitCode, Failure> {
        let status = self.run(arguments)?;
        if status.success() {
            return Err(Failure::unexpected(format!(
                "`{}` does not say how it links (`-###`): the program has the malloc of the libc that it took",
                self.shown()
            ))
            .with_help("name gcc or clang by `allograft cc --cc`, or put a donor on the link line: `allograft emit`"));
        }
        Ok(exit_code(status))
    }

    pub(super) fn cannot_run(&self, error: &io::Error) -> Failure {
        Failure::usage(format!("cannot run `{}`: {error}", self.words[0].to_string_lossy())).with_help(HELP)
    }

    /// Asks what the compiler would do with these arguments.
    pub(super) fn link(&self, arguments: &[OsString]) -> Result<Planned, Failure> {
        let mut command = self.command();
        command.arg("-###").args(arguments).stdin(Stdio::null());
        let output = command.output().map_err(|error| self.cannot_run(&error))?;
        Ok(match Link::read(&output.stderr) {
            _ if !output.status.success() => Planned::Fault,
            Some(link) => Planned::Program(link),
            None => Planned::Other,
        })
    }
}

/// The action that a compiler would take.
pub(super) enum Planned {
    /// Link a program with a C library.
    Program(Link),
    /// Something else.
    Other,
    /// Print what is wrong with its arguments.
    Fault,
}

/// Help for machines without a compiler for musl.
const HELP: &str =
    "name a compiler for musl, such as `allograft cc --cc x86_64-linux-musl-gcc`, or set ALLOGRAFT_CC to it";

/// Returns the command line of this program with `--` before the first of the compiler's own words, if the command is
/// `cc`: the parser would take `-v` and others for options of ours.
pub(crate) fn separated(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = arguments.into_iter().collect();
    if let Some(at) = words::first_foreign(&arguments) {
        arguments.insert(at, "--".into());
    }
    arguments
}

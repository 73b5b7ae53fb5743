//! The Rust toolchain of a target or a project, as rustc reports it.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::failure::Failure;
use crate::printable::printable;
use crate::triple::{Libc, Triple};

/// A rustc, perhaps of a named toolchain.
#[derive(Debug, Clone)]
pub(crate) struct Rustc {
    program: OsString,
    toolchain: Option<String>,
}

impl Rustc {
    /// Returns the active rustc: `$RUSTC`, else the one on the command path.
    pub(crate) fn active() -> Rustc {
        Rustc::at(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
    }

    /// Returns the rustc that `program` names, by path or on the command path.
    pub(crate) fn at(program: OsString) -> Rustc {
        Rustc { program, toolchain: None }
    }

    /// Returns the rustc of the toolchain with this name. This needs rustup.
    pub(crate) fn of_toolchain(name: &str) -> Rustc {
        Rustc { toolchain: Some(name.to_owned()), ..Rustc::active() }
    }

    /// Returns rustc's output without the line end.
    fn ask(&self, arguments: &[&str]) -> Result<String, Failure> {
        let mut command = Command::new(&self.program);
        command.args(self.toolchain.iter().map(|name| format!("+{name}"))).args(arguments);
        let shown = self.program.to_string_lossy();
        let output = command.stdin(Stdio::null()).output().map_err(|error| {
            Failure::usage(format!("cannot run `{shown}`: {error}"))
                .with_help("install Rust, or set RUSTC to its compiler")
        })?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let failure = Failure::usage(format!("`{shown} {}` failed", arguments.join(" ")))
            .with_help("name a rustc that works: `RUSTC=/path/to/rustc`");
        Err(failure.saying(said.trim_start_matches("error: ")))
    }

    /// Returns the triple of the machine that rustc runs on.
    pub(crate) fn host(&self) -> Result<String, Failure> {
        let said = self.ask(&["-vV"])?;
        let host = said.lines().find_map(|line| line.strip_prefix("host: "));
        host.map(str::to_owned).ok_or_else(|| {
            Failure::usage("rustc did not say its host")
                .with_help("name a rustc that works: `RUSTC=/path/to/rustc`")
                .saying(&said)
        })
    }

    /// Returns the folder of the toolchain.
    pub(crate) fn sysroot(&self) -> Result<PathBuf, Failure> {
        self.ask(&["--print", "sysroot"]).map(PathBuf::from)
    }

    /// Returns the `libc.a` that programs for `target` are linked with.
    ///
    /// # Errors
    /// A target that rustc does not know, that is not installed, or that has no musl of its own.
    pub(crate) fn libc(&self, target: &str) -> Result<PathBuf, Failure> {
        let said = self.ask(&["--print", "target-libdir", "--target", target]);
        let folder = PathBuf::from(said.map_err(|failure| {
            match Triple::parse(target) {
                // rustc runs, and knows no such target.
                Ok(triple) if triple.libc == Libc::Musl && triple.rust_name() != target && self.host().is_ok() => {
                    Failure::usage(format!("rustc has no target `{}`", printable(target)))
                        .with_help(format!("Rust's name of it is `{}`", triple.rust_name()))
                }
                Err(problem) if self.host().is_ok() => {
                    Failure::usage(format!("rustc has no target `{}`: {problem}", printable(target)))
                        .with_help("`rustc --print target-list` lists the targets; name one of musl's")
                }
                _ => failure,
            }
        })?);
        let libc = folder.join("self-contained").join("libc.a");
        if libc.is_file() {
            return Ok(libc);
        }
        let toolchain = self.toolchain.as_ref().map(|name| format!(" --toolchain {name}")).unwrap_or_default();
        if !target.contains("-musl") {
            return Err(Failure::usage(format!("the Rust target `{target}` is not musl's"))
                .with_help("name a musl target, such as x86_64-unknown-linux-musl"));
        }
        if !folder.is_dir() {
            return Err(Failure::usage(format!(
                "the Rust target `{target}` is not installed: there is no `{}`",
                folder.display()
            ))
            .with_help(format!("`rustup target add {target}{toolchain}`")));
        }
        Err(Failure::usage(format!("the Rust target `{target}` brings no musl: there is no `{}`", libc.display()))
            .with_help("graft the libc.a that your linker finds: `cc -print-file-name=libc.a`"))
    }
}

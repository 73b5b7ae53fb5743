//! Where a released program comes from.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use fixtures::Arch;
use fixtures::corpus::{self, Released};
use xtask::{command, rust, setup, workspace};

use super::work::Work;

/// A released program.
#[derive(Debug)]
pub(super) enum Source {
    /// An executable in a package of Python's or npm's registry.
    Corpus(Box<Released>),
    /// Source on crates.io, by name and version. It is built for musl with its own lock file.
    Crate(&'static str, &'static str),
}

/// Programs that are released as source only.
const CRATES: [(&str, &str); 1] = [("leptosfmt", "0.1.33")];

impl Source {
    /// Returns the source of the program that does a work, if it is released for an architecture.
    pub(super) fn of(work: &Work, arch: Arch) -> Option<Source> {
        let name = match arch {
            Arch::X86_64 => work.program.to_owned(),
            other => format!("{}-{}", work.program, other.name()),
        };
        let released = corpus::listed().into_iter().find(|released| released.name == name);
        let released = released.map(|released| Source::Corpus(Box::new(released)));
        released.or_else(|| {
            let found = CRATES.into_iter().find(|(package, _)| *package == name);
            found.map(|(package, version)| Source::Crate(package, version))
        })
    }

    /// Returns the package with its version, as its registry writes it.
    pub(super) fn package(&self) -> String {
        match self {
            Source::Corpus(released) => released.pypi.clone().or_else(|| released.npm.clone()).unwrap_or_default(),
            Source::Crate(name, version) => format!("{name}@{version}"),
        }
    }

    /// Returns the command that downloads the package.
    pub(super) fn download(&self) -> String {
        match self {
            Source::Corpus(released) => match (&released.pypi, &released.platform) {
                (Some(package), Some(platform)) => {
                    format!("pip download --no-deps --only-binary=:all: --platform {platform} {package}")
                }
                _ => format!("npm pack {}", self.package()),
            },
            Source::Crate(name, version) => {
                format!("cargo install --locked --target {} {name}@{version}", fixtures::rust_target(Arch::X86_64))
            }
        }
    }

    /// Returns the path of the program in the package, and the SHA-256 of the package. Source has neither.
    pub(super) fn file(&self) -> Option<(&str, &str)> {
        match self {
            Source::Corpus(released) => Some((&released.path, &released.sha256)),
            Source::Crate(..) => None,
        }
    }

    /// Returns the path of the program. The first call builds it if it comes as source.
    ///
    /// # Errors
    /// When it does not build.
    pub(super) fn program(&self) -> Result<PathBuf> {
        let (name, version) = match self {
            Source::Corpus(released) => return Ok(corpus::place(released)),
            Source::Crate(name, version) => (*name, *version),
        };
        let folder = workspace::build().join("released").join("crates").join(format!("{name}-{version}"));
        let program = folder.join("bin").join(name);
        if !program.is_file() {
            rust::prepare()?;
            let what = format!("{name} {version}, built for musl");
            setup::announce(&what, || {
                setup::place(&folder, |folder| command::output(&mut install(name, version, folder)).map(drop))
            })
            .with_context(|| format!("`{name}` does not build"))?;
        }
        Ok(program)
    }
}

/// Returns the command that builds and installs a program into a folder.
fn install(name: &str, version: &str, folder: &Path) -> Command {
    let bin = fixtures::rust_musl().join("bin");
    let mut cargo = Command::new(bin.join("cargo"));
    command::apart(&mut cargo);
    cargo.env("RUSTC", bin.join("rustc")).current_dir(folder);
    cargo.args(["install", "--quiet", "--locked", "--version", version, name]);
    cargo.args(["--target", fixtures::rust_target(Arch::X86_64), "--root"]).arg(folder);
    cargo
}

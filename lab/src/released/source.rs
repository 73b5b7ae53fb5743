//! The source of a released program: a package of a registry, so that readers can fetch the same file.

use std::path::PathBuf;

use anyhow::{Context, Result};
use fixtures::Arch;
use fixtures::corpus::{self, Released};
use tools::{folder, table, workspace};

use super::compiled::{CRATES, Crate};
use super::work::Work;

/// A released program.
#[derive(Debug)]
pub(super) enum Source {
    /// An executable in a package of PyPI or npm.
    Corpus(Box<Released>),
    /// Source on crates.io. It is built for musl with its own lock file.
    Crate(&'static Crate),
}

impl Source {
    /// Returns the source of a work's program, if it is released for an architecture.
    pub(super) fn find(work: &Work, arch: Arch) -> Option<Source> {
        let name = match arch {
            Arch::X86_64 => work.program.to_owned(),
            other => format!("{}-{}", work.program, other.name()),
        };
        let released = corpus::listed().into_iter().find(|released| released.name == name);
        let released = released.map(|released| Source::Corpus(Box::new(released)));
        released.or_else(|| CRATES.iter().find(|package| package.name == name).map(Source::Crate))
    }

    /// Returns the package with its version, in its registry's spelling.
    pub(super) fn package(&self) -> String {
        match self {
            Source::Corpus(released) => released.pypi.clone().or_else(|| released.npm.clone()).unwrap_or_default(),
            Source::Crate(Crate { name, version, .. }) => format!("{name}@{version}"),
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
            Source::Crate(_) => {
                let target = fixtures::rust_target(Arch::X86_64);
                format!("cargo install --locked --target {target} {}", self.package())
            }
        }
    }

    /// Returns the path of the program in the package, and the SHA-256 of the package; `None` for programs released as
    /// source.
    pub(super) fn file(&self) -> Option<(&str, &str)> {
        match self {
            Source::Corpus(released) => Some((&released.path, &released.sha256)),
            Source::Crate(..) => None,
        }
    }

    /// Returns the path of the program. The first call builds a program that is released as source.
    ///
    /// # Errors
    /// The program does not build.
    pub(super) fn program(&self) -> Result<PathBuf> {
        let package = match self {
            Source::Corpus(released) => return Ok(corpus::place(released)),
            Source::Crate(package) => *package,
        };
        let folder = workspace::build().join("released").join("crates").join(self.package().replace('@', "-"));
        let program = folder.join("bin").join(package.name);
        if !program.is_file() {
            table::prepare_named(&["rust"])?;
            table::prepare_named(package.tools())?;
            let what = format!("{} {}, built for musl", package.name, package.version);
            folder::announce(&what, || folder::place(&folder, |folder| package.install(folder)))
                .with_context(|| format!("`{}` does not build", package.name))?;
        }
        Ok(program)
    }
}

//! Builds the executables of a release: static, with musl, and with a donor that this source tree itself grafts into
//! them.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use format::Arch;

use crate::payload::{PROGRAMS, printed};

/// The architectures that a release is for.
pub const ARCHES: [Arch; 2] = [Arch::X86_64, Arch::Aarch64];

/// The largest executable of a release, in bytes. Each package format holds two of them.
const LARGEST: u64 = 15_000_000;

/// The inputs of a build of the executables.
#[derive(Debug, Clone, Copy)]
pub struct Builder<'a> {
    /// The sources.
    pub checkout: &'a Path,
    /// A folder with `allograft` and `cargo-allograft` for this machine, built from the same sources.
    pub native: &'a Path,
    /// A Rust toolchain with musl targets: its folder with `rustc` and `cargo`.
    pub toolchain: &'a Path,
    /// ld.lld, which links for other machines.
    pub lld: &'a Path,
    /// Cargo's target folder.
    pub target: &'a Path,
}

impl Builder<'_> {
    /// Builds the executables of all architectures. Returns the folder of each.
    ///
    /// # Errors
    /// When the build fails, or an executable is too large or carries an allocator other than the default donor.
    pub fn build(self) -> Result<Vec<(Arch, PathBuf)>> {
        let mut build = Command::new(self.native.join("cargo-allograft"));
        build.args([
            "allograft",
            "build",
            "--locked",
            "--quiet",
            "--profile",
            "dist",
            "--package",
            "allograft",
            "--bins",
        ]);
        build.arg("--target-dir").arg(self.target).current_dir(self.checkout);
        for arch in ARCHES {
            build.args(["--target", fixtures::rust_target(arch)]);
            let variable = fixtures::rust_target(arch).to_uppercase().replace('-', "_");
            build.env(format!("CARGO_TARGET_{variable}_LINKER"), self.lld);
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        // Found on the command path, `cargo-allograft` leaves no trace of its folder.
        let folders = [self.toolchain, self.native].map(Path::to_owned).into_iter().chain(std::env::split_paths(&path));
        build.env("PATH", std::env::join_paths(folders)?);
        // The caller may be cargo with a different toolchain.
        for variable in ["RUSTC", "CARGO", "RUSTUP_TOOLCHAIN", "RUSTFLAGS", "CARGO_BUILD_RUSTFLAGS"] {
            build.env_remove(variable);
        }
        build.env("CARGO_ENCODED_RUSTFLAGS", self.flags()?);
        let status = build.status().with_context(|| format!("cannot start {build:?}"))?;
        ensure!(status.success(), "{build:?} ended with {status}");
        let folder = |arch| (arch, self.target.join(fixtures::rust_target(arch)).join("dist"));
        let folders: Vec<(Arch, PathBuf)> = ARCHES.into_iter().map(folder).collect();
        folders.iter().try_for_each(|(_, folder)| self.check(folder))?;
        Ok(folders)
    }

    /// Returns rustc's flags, separated for cargo's variable. Messages of panics name files, with paths that do not
    /// depend on the checkout's folder.
    fn flags(self) -> Result<OsString> {
        let home = match std::env::var_os("CARGO_HOME") {
            Some(home) => PathBuf::from(home),
            None => {
                PathBuf::from(std::env::var_os("HOME").context("neither CARGO_HOME nor HOME is set")?).join(".cargo")
            }
        };
        let mut flags = OsString::new();
        for (from, to) in [(home.as_path(), "cargo"), (self.checkout, "allograft"), (self.target, "target")] {
            if !flags.is_empty() {
                flags.push("\x1f");
            }
            flags.push("--remap-path-prefix=");
            flags.push(from);
            flags.push(format!("=/{to}"));
        }
        Ok(flags)
    }

    fn check(self, folder: &Path) -> Result<()> {
        for name in PROGRAMS {
            let path = folder.join(name);
            let size = fs::metadata(&path).with_context(|| format!("cannot read `{}`", path.display()))?.len();
            ensure!(size <= LARGEST, "`{}` has {size} bytes, more than {LARGEST}", path.display());
            let mut inspect = Command::new(self.native.join("allograft"));
            printed(inspect.args(["inspect", "--expect", "snmalloc"]).arg(&path))?;
        }
        Ok(())
    }
}

//! musl's libc.so as others build it, compiled from its sources for the slow tier.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use fixtures::musls::{Build, RELEASES, builds};

use crate::{command, folder, projects};

/// Fetches the sources that do not exist, 4 MB, and compiles what does not exist: some minutes the first time.
///
/// # Errors
/// When a source cannot be fetched, or does not compile.
pub fn prepare() -> Result<()> {
    if builds().all(|build| build.path().is_file()) {
        return Ok(());
    }
    projects::fetch(RELEASES)?;
    let folder = fixtures::root().join("built-musl");
    fs::create_dir_all(&folder).context("cannot make the folder of musls")?;
    let _lock = folder::lock(&folder.join(".lock"))?;
    for build in builds().filter(|build| !build.path().is_file()) {
        let destination = folder.join(build.name());
        folder::announce(&format!("musl {}", build.name()), || folder::place(&destination, |to| compile(build, to)))?;
    }
    Ok(())
}

fn compile(build: Build, to: &Path) -> Result<()> {
    let objects = folder::Scratch::beside(to, "objects")?;
    let source = fs::canonicalize(build.release.folder()).context("the sources are there")?;
    let mut configure = Command::new("sh");
    configure.arg(source.join("configure")).args(["--prefix=/usr", "--syslibdir=/lib", "--disable-static"]);
    configure.env("CFLAGS", build.flags.compiler).env("LDFLAGS", build.flags.linker);
    command::output(configure.current_dir(&objects.0))?;
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let mut make = Command::new("make");
    command::output(make.arg(format!("-j{jobs}")).arg("lib/libc.so").current_dir(&objects.0))?;
    let (made, out) = (objects.0.join("lib/libc.so"), to.join("libc.so"));
    fs::copy(made, &out).context("musl's Makefile makes lib/libc.so")?;
    if build.flags.stripped {
        command::output(Command::new("strip").arg(&out))?;
    }
    Ok(())
}

//! Releases of musl for the slow tier, compiled from their sources: libc.a, and libc.so built like other
//! distributions'.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use fixtures::musls::{Build, RELEASES, STATIC, archive, builds};
use fixtures::projects::Project;

use crate::{command, folder, projects};

/// Fetches missing sources, 4 MB, and compiles missing files: some minutes the first time.
///
/// # Errors
/// When a source cannot be fetched, or does not compile.
pub fn prepare() -> Result<()> {
    if builds().all(|build| build.path().is_file()) && archive().is_file() {
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
    if !archive().is_file() {
        let what = format!("musl {}, static", STATIC.version);
        folder::announce(&what, || folder::place(&archive().with_file_name(""), compile_archive))?;
    }
    Ok(())
}

/// Compiles `libc.a` and the start files of static programs.
fn compile_archive(to: &Path) -> Result<()> {
    let objects = folder::Scratch::beside(to, "objects")?;
    let names = ["libc.a", "crt1.o", "rcrt1.o", "crti.o", "crtn.o"];
    make(STATIC, ["-O2", ""], "--disable-shared", &names.map(|name| format!("lib/{name}")), &objects.0)?;
    for name in names {
        fs::copy(objects.0.join("lib").join(name), to.join(name)).with_context(|| format!("musl makes lib/{name}"))?;
    }
    Ok(())
}

/// Configures musl with these flags for the compiler and the linker, and makes `files` in the folder `objects`.
fn make(release: Project, flags: [&str; 2], option: &str, files: &[String], objects: &Path) -> Result<()> {
    let source = fs::canonicalize(release.folder()).context("the sources are there")?;
    let mut configure = Command::new("sh");
    configure.arg(source.join("configure")).args(["--prefix=/usr", "--syslibdir=/lib", option]);
    configure.env("CFLAGS", flags[0]).env("LDFLAGS", flags[1]);
    command::output(configure.current_dir(objects))?;
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let mut make = Command::new("make");
    command::output(make.arg(format!("-j{jobs}")).args(files).current_dir(objects)).map(drop)
}

fn compile(build: Build, to: &Path) -> Result<()> {
    let objects = folder::Scratch::beside(to, "objects")?;
    let flags = [build.flags.compiler, build.flags.linker];
    make(build.release, flags, "--disable-static", &["lib/libc.so".to_owned()], &objects.0)?;
    let (made, out) = (objects.0.join("lib/libc.so"), to.join("libc.so"));
    fs::copy(made, &out).context("musl's Makefile makes lib/libc.so")?;
    if build.flags.stripped {
        command::output(Command::new("strip").arg(&out))?;
    }
    Ok(())
}

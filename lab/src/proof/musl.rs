//! musl compiled by different compilers and flags, from zig's copy of the sources, as zig's `src/musl.zig` and musl's
//! own Makefile do.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use anyhow::{Context, Result, ensure};

use super::compilers::{self, Driver};
use tools::{command, folder};

/// Flags of musl's Makefile and configure; and `-w`, since warnings about musl's sources are not ours to fix.
const FLAGS: &str = "-std=c99 -nostdinc -ffreestanding -frounding-math -fno-strict-aliasing -D_XOPEN_SOURCE=700 \
                     -fomit-frame-pointer -fno-unwind-tables -fno-asynchronous-unwind-tables -ffunction-sections \
                     -fdata-sections -fPIE -fno-stack-protector -w -c";

/// The folders whose code a graft reads or changes. They are compiled with the flags under test; all others are
/// compiled once, by this machine's gcc at -O2.
const READ: [&str; 8] = [
    "src/malloc",
    "src/malloc/mallocng",
    "src/thread",
    "src/process",
    "src/exit",
    "src/env",
    "src/errno",
    "src/signal",
];

const INCLUDES: [&str; 7] = [
    "musl/arch/x86_64",
    "musl/arch/generic",
    "musl/src/include",
    "musl/src/internal",
    "musl/include",
    "include/x86_64-linux-musl",
    "include/generic-musl",
];

/// Returns a folder with `libc.a`, `crt1.o` and `rcrt1.o` compiled with these flags. Makes it if it does not exist.
///
/// # Errors
/// A file does not compile.
pub(crate) fn built(driver: &Driver, flags: &[&str]) -> Result<PathBuf> {
    let name = format!("{} {}", driver.name, flags.join(" "));
    let place = compilers::folder().join("musl").join(&name);
    // The lock makes sure that each folder is made once.
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock();
    if place.join("libc.a").is_file() {
        return Ok(place);
    }
    let rest = rest()?;
    fs::create_dir_all(compilers::folder().join("musl"))?;
    folder::announce(&format!("musl by {name}"), || folder::place(&place, |out| build(driver, flags, &rest, out)))?;
    Ok(place)
}

/// Returns the include folders for programs that are linked with it.
pub(crate) fn includes() -> Vec<PathBuf> {
    let libc = compilers::zig_libc(compilers::SOURCES);
    ["musl/include", "musl/arch/x86_64", "musl/arch/generic", "include/x86_64-linux-musl", "include/generic-musl"]
        .map(|include| libc.join(include))
        .into()
}

/// Returns the objects of all other folders.
fn rest() -> Result<PathBuf> {
    let place = compilers::folder().join("musl").join("rest");
    if !place.join("complete").is_file() {
        let driver = Driver::all().into_iter().next().context("there is no gcc on this machine")?;
        fs::create_dir_all(compilers::folder().join("musl"))?;
        folder::announce("the rest of musl (a minute)", || {
            folder::place(&place, |out| {
                let others = |folder: &str| !READ.contains(&folder);
                compile(&driver, &["-O2"], &sources(others)?, out)?;
                Ok(fs::write(out.join("complete"), "")?)
            })
        })?;
    }
    Ok(place)
}

fn build(driver: &Driver, flags: &[&str], rest: &Path, out: &Path) -> Result<()> {
    let objects = out.join("objects");
    compile(driver, flags, &sources(|folder| READ.contains(&folder))?, &objects)?;
    let mut files = objects_below(&objects)?;
    files.extend(objects_below(rest)?);
    let list = out.join("list");
    let lines: Vec<String> = files.iter().map(|file| format!("\"{}\"\n", file.display())).collect();
    fs::write(&list, lines.concat())?;
    // zig's archiver reads LLVM's bitcode, too. gcc's objects for link-time optimisation also contain machine code.
    let mut archiver = fixtures::zig().command();
    archiver.args(["ar", "rcs"]).arg(out.join("libc.a")).arg(format!("@{}", list.display()));
    command::output(&mut archiver)?;
    let crt = compilers::zig_libc(compilers::SOURCES).join("musl/crt");
    for name in ["crt1", "rcrt1"] {
        let mut compile = driver.command();
        compile.args(FLAGS.split_whitespace()).args(flags).args(["-fno-lto", "-DCRT"]).args(include_flags());
        command::output(compile.arg(crt.join(format!("{name}.c"))).arg("-o").arg(out.join(format!("{name}.o"))))?;
    }
    Ok(fs::remove_file(list)?)
}

fn include_flags() -> Vec<String> {
    let libc = compilers::zig_libc(compilers::SOURCES);
    INCLUDES.map(|include| format!("-I{}", libc.join(include).display())).into()
}

/// Returns the folders of sources and the files to compile in each. A file for x86_64 replaces the general one.
fn sources(wanted: impl Fn(&str) -> bool) -> Result<BTreeMap<String, Vec<PathBuf>>> {
    let musl = compilers::zig_libc(compilers::SOURCES).join("musl");
    let mut folders = Vec::new();
    for entry in fs::read_dir(musl.join("src")).context("zig brings no sources of musl")? {
        folders.push(format!("src/{}", entry?.file_name().to_string_lossy()));
    }
    folders.push("src/malloc/mallocng".to_owned());
    let mut sources = BTreeMap::new();
    for folder in folders.into_iter().filter(|folder| wanted(folder)) {
        let mut files = BTreeMap::new();
        for place in [musl.join(&folder), musl.join(&folder).join("x86_64")] {
            for entry in fs::read_dir(&place).into_iter().flatten() {
                let path = entry?.path();
                let source =
                    path.extension().is_some_and(|ending| ["c", "s", "S"].iter().any(|known| ending == *known));
                if let (Some(stem), true) = (path.file_stem(), source) {
                    files.insert(stem.to_owned(), path);
                }
            }
        }
        sources.insert(folder, files.into_values().collect::<Vec<_>>());
    }
    ensure!(sources.values().any(|files| !files.is_empty()), "zig's copy of musl has no sources");
    Ok(sources)
}

fn compile(driver: &Driver, flags: &[&str], sources: &BTreeMap<String, Vec<PathBuf>>, out: &Path) -> Result<()> {
    for (folder, files) in sources.iter().filter(|(_, files)| !files.is_empty()) {
        let place = out.join(folder.replace('/', "_"));
        fs::create_dir_all(&place)?;
        let mut compile = driver.command();
        compile.current_dir(&place).args(FLAGS.split_whitespace()).args(flags);
        if flags.contains(&"-flto") && !driver.is_clang() {
            compile.arg("-ffat-lto-objects");
        }
        // The compiler names object files after their sources.
        run(compile.args(include_flags()).args(files))?;
    }
    Ok(())
}

fn run(compile: &mut Command) -> Result<()> {
    command::output(compile).map(drop)
}

fn objects_below(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            for object in fs::read_dir(path)? {
                found.push(object?.path());
            }
        }
    }
    found.sort();
    Ok(found)
}

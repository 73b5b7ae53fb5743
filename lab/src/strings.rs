//! `cargo xtask bench strings`: allograft's string functions against glibc's and stock musl's, in one program.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use fixtures::strings;
use tools::{command, table, workspace};
use zigcc::{Arch, Zig, ZigTarget};

use crate::experiment::Bench;

/// Builds the benchmark and runs it with these arguments, which `suite/strings/bench.c` lists.
///
/// # Errors
/// A tool or a source is missing, or a target of the benchmark is not met.
pub(crate) fn bench(arguments: &[String]) -> Result<()> {
    tools::prepare_for_one()?;
    table::prepare_named(&["lld", "musl", "musl-aarch64"])?;
    let bench = Bench::at(workspace::build().join("bench").join("strings"))?;
    let program = build(&bench.home)?;
    let status = Command::new(&program).args(arguments).status().context("the benchmark does not start")?;
    match status.code() {
        Some(0) => Ok(()),
        Some(1) => bail!("a target of the benchmark was missed: see the end of the table"),
        _ => bail!("the benchmark ended with {status}"),
    }
}

/// Builds one program with three arms: allograft's functions with `proof_` before the name, musl's with `musl_`, and
/// glibc's under their own names.
fn build(folder: &Path) -> Result<PathBuf> {
    let arch = Arch::ALL.into_iter().find(|arch| fixtures::native(*arch));
    let arch = arch.with_context(|| format!("there are no string functions for {}", std::env::consts::ARCH))?;
    let ours = ours(arch, folder)?;
    let musl = musl(arch, folder)?;
    let sources = workspace::root().join("suite").join("strings");
    let program = folder.join("bench");
    let mut cc = fixtures::cc();
    cc.args(["-std=gnu17", "-O2", "-fno-builtin", "-o"]).arg(&program);
    cc.args(["bench.c", "bench_calls.c", "bench_subjects.c"].map(|name| sources.join(name)));
    command::output(cc.args([ours, musl]).arg("-lm"))?;
    Ok(program)
}

fn ours(arch: Arch, folder: &Path) -> Result<PathBuf> {
    let object = folder.join("ours.o");
    let source = workspace::root().join("crates").join("donors").join("strings").join("donor.c");
    let zig = Zig::find(&fixtures::tools(), &workspace::zig_cache())?;
    let mut line: Vec<OsString> = ["cc", "-target", arch.triple(), "-c"].map(OsString::from).into();
    line.extend(strings::COMPILE.map(OsString::from));
    line.extend([source.into(), "-o".into(), object.clone().into()]);
    zig.run(&line)?;
    Ok(object)
}

/// Puts the members of Debian's `libc.a` that define the functions into one object, with `musl_` before every symbol.
fn musl(arch: Arch, folder: &Path) -> Result<PathBuf> {
    let (merged, object) = (folder.join("musl-members.o"), folder.join("musl.o"));
    let mut ld = Command::new(fixtures::lld_folder().join("ld.lld"));
    ld.arg("-r");
    for name in strings::FUNCTIONS {
        ld.args(["-u", name]);
    }
    command::output(ld.arg(fixtures::debian_musl(arch).libc).arg("-o").arg(&merged))?;
    let Some(objcopy) = ["objcopy", "llvm-objcopy"].into_iter().find_map(command::on_path) else {
        bail!("neither objcopy nor llvm-objcopy is on the command path: install binutils");
    };
    command::output(Command::new(objcopy).arg("--prefix-symbols=musl_").args([&merged, &object]))?;
    Ok(object)
}

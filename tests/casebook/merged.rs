//! Conformance programs that are linked dynamically with musl, and a donor merged into them. Each passes wherever it
//! passes as it was. The default tier runs a part.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;

use conformance::Program;
use fixtures::{Arch, link};
use hosts::Request;
use libtest_mimic::{Arguments, Failed, Trial};

/// The part of a program's work that is done, in percent.
const SHORT: &str = "3";
const PART: &str = "15";

/// The programs of the default tier. Donors other than the default one run the first of them only.
const FAST: [&str; 5] = ["family", "threads", "thread_exit", "fork_owners", "libc_callers"];

const ARCH: Arch = Arch::X86_64;

/// Links the program dynamically, to be started by Debian's musl.
fn linked(folder: &Path, program: &Program, label: &str) -> Result<PathBuf, String> {
    let (object, out) = (folder.join(format!("{label}.o")), folder.join(label));
    let runtime = folder.join(format!("{label}.a"));
    fs::write(&object, program.object(ARCH)).map_err(|error| error.to_string())?;
    fs::write(&runtime, conformance::runtime_library(ARCH)).map_err(|error| error.to_string())?;
    let (musl, loader) = (fixtures::debian_musl(ARCH), fixtures::musl_loader(ARCH));
    let beside = |name: &str| musl.libdir.join(name);
    let mut linker = link::gnu();
    linker.args(["-pie", "-dynamic-linker"]).arg(folder.join("loader")).arg("-o").arg(&out);
    linker.args([beside("Scrt1.o"), beside("crti.o"), object]);
    linker.arg("-L").arg(loader.with_file_name("")).arg("-l:libc.so").args([runtime, beside("crtn.o")]);
    let linked = linker.output().map_err(|error| error.to_string())?;
    match linked.status.success() {
        true => Ok(out),
        false => Err(String::from_utf8_lossy(&linked.stderr).into_owned()),
    }
}

/// Runs the program. An error is what it says.
fn run(path: &Path, donor: Option<&str>, program: &Program, scale: &str) -> Result<(), String> {
    let mut command = Command::new("timeout");
    command.args(["-s", "KILL", &program.seconds.to_string()]).arg(path);
    let output = command.env("ALLOGRAFT_SCALE", scale).env("ALLOGRAFT_VERBOSE", "1").output();
    let output = output.map_err(|error| error.to_string())?;
    if let Some(donor) = donor
        && !String::from_utf8_lossy(&output.stderr).contains(&format!("allograft: {donor} "))
    {
        return Err(format!("{donor} does not serve it"));
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    match output.status.success() && text.lines().any(|line| line == format!("ok {}", program.name)) {
        true => Ok(()),
        false => Err(format!("{}: {text}{}", output.status, String::from_utf8_lossy(&output.stderr))),
    }
}

/// Merges the donor into the program, and runs it. A program that brings a malloc of its own is refused.
fn test(folder: &Path, program: &Program, donor: &'static donors::Donor, scale: &str) -> Result<(), String> {
    let label = format!("{}-{}", program.name, donor.name);
    let stock = linked(folder, program, &label)?;
    let out = folder.join(format!("{label}.merged"));
    let request = Request { out: Some(out.clone()), ..Request::of(donor) };
    let merged = match hosts::graft(&stock, &request) {
        Err(error) if error.exit_code() == 3 && error.to_string().contains("another allocator's") => return Ok(()),
        merged => merged.map_err(|error| error.to_string()).map(|_| out)?,
    };
    match run(&merged, Some(donor.name), program, scale) {
        Ok(()) => Ok(()),
        // What fails as it was says nothing about a merge.
        Err(_) if run(&stock, None, program, scale).is_err() => Ok(()),
        Err(said) => Err(format!("it passes with stock, and with the donor: {said}")),
    }
}

fn main() -> ExitCode {
    let folder = tempfile::tempdir().expect("a folder for programs");
    let loader = folder.path().join("loader");
    fs::copy(fixtures::musl_loader(ARCH), &loader).expect("a loader");
    fs::set_permissions(&loader, fs::Permissions::from_mode(0o755)).expect("a loader that is a program");
    let folder = Arc::new(folder);
    let mut trials = Vec::new();
    for program in conformance::programs() {
        for donor in donors::all().iter().filter(|donor| donor.has_library(ARCH)) {
            let fast = FAST.contains(&program.name) && donor.name == donors::DEFAULTS[0] || program.name == FAST[0];
            let scale = if fast { SHORT } else { PART };
            let folder = Arc::clone(&folder);
            let name = format!("merged/{}/{}", program.name, donor.name);
            let test = move || test(folder.path(), program, donor, scale).map_err(Failed::from);
            trials.push(Trial::test(name, test).with_ignored_flag(!fast));
        }
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

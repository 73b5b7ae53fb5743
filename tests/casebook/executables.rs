//! Conformance programs that are linked with stock musl first and grafted afterwards: each passes, or was refused. With the
//! symbol table and without it, as both linkers make them. A part in the default tier, the matrix in the slow one.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use casebook::bench::{Bench, Donors, Host};
use casebook::link::{Linker, Mode, Way};
use conformance::Program;
use fixtures::Arch;
use fixtures::corpus::{self, Released};
use libtest_mimic::{Arguments, Failed, Trial};

/// How much of a program's work is done, in percent.
const SHORT: &str = "3";
const PART: &str = "15";

/// What the default tier runs: the family, threads that end, forks, and what libc itself allocates.
const FAST: [&str; 6] = ["family", "threads", "thread_exit", "fork_owners", "libc_callers", "sandbox"];

/// The program that brings its own malloc: musl's serves only musl in it, and it is refused with symbols and without.
const OWN_MALLOC: &str = "interposer";

/// What is put into a program, and whether its symbols are there.
#[derive(Debug, Clone, Copy)]
struct Graft {
    donor: &'static donors::Donor,
    strings: bool,
    stripped: bool,
}

fn main() {
    let bench = Arc::new(Bench::new());
    let debian = Host::Debian(Arch::X86_64);
    let mut ways = Vec::new();
    for linker in [Linker::Gnu, Linker::Lld] {
        ways.extend([Mode::Static, Mode::StaticPie].map(|mode| Way { host: debian, linker, mode }));
    }
    ways.push(Way { host: Host::Zig(Arch::X86_64), linker: Linker::Lld, mode: Mode::Static });
    let mut trials = Vec::new();
    for program in conformance::programs() {
        for donor in donors::all().iter().filter(|donor| !donor.blobs.is_empty()) {
            for (index, way) in ways.iter().enumerate() {
                for stripped in [false, true] {
                    let fast = FAST.contains(&program.name)
                        && donor.name == donors::DEFAULT
                        && (index == 0 && stripped || index == 3 && !stripped);
                    let (way, kind) = (*way, if stripped { "stripped" } else { "symbols" });
                    // With string functions in the slow tier only: crates/allograft/tests/cli has them in the default one.
                    for (strings, suffix) in [(false, ""), (true, "+strings")] {
                        let fast = fast && !strings;
                        let name = format!("executable/{}/{}{suffix}/{}/{kind}", program.name, donor.name, way.name());
                        let (label, bench) = (name.replace('/', " "), Arc::clone(&bench));
                        let graft = Graft { donor, strings, stripped };
                        let scale = if fast { SHORT } else { PART };
                        let run = move || check(&bench, program, graft, way, scale, &label).map_err(Failed::from);
                        trials.push(Trial::test(name, run).with_ignored_flag(!fast));
                    }
                }
            }
        }
    }
    for released in corpus::listed() {
        let link = released.link.as_deref();
        if released.arch != "x86_64" || released.malloc != "mallocng" || !matches!(link, Some("static" | "static-pie"))
        {
            continue;
        }
        for (strings, suffix) in [(false, ""), (true, "+strings")] {
            let (bench, released) = (Arc::clone(&bench), released.clone());
            let name = format!("executable/released{suffix}/{}", released.name);
            let run = move || check_released(&bench, &released, strings).map_err(Failed::from);
            trials.push(Trial::test(name, run).with_ignored_flag(true));
        }
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// A released program as it comes: its graft says the same of its version, at the same place. One that is
/// refused fails here, so that it is looked into.
fn check_released(bench: &Bench, released: &Released, strings: bool) -> Result<(), String> {
    let stock = corpus::place(released);
    let folder = bench.path(&format!("released {} {strings}", released.name));
    std::fs::create_dir(&folder).map_err(|error| error.to_string())?;
    let program = folder.join(stock.file_name().ok_or("a name")?);
    std::fs::copy(&stock, &program).map_err(|error| format!("{error}: run `cargo xtask corpus`"))?;
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&program, mode).map_err(|error| error.to_string())?;
    let version = || Command::new(&program).arg("--version").output().map_err(|error| error.to_string());
    let before = version()?;
    let donor = donors::find(donors::DEFAULT).ok_or("the default donor")?;
    hosts::graft_executable_to(&program, &program, donor, &[], strings).map_err(|error| error.to_string())?;
    let after = version()?;
    if (before.status, &before.stdout) == (after.status, &after.stdout) {
        return Ok(());
    }
    Err(format!("{before:?} became {after:?}"))
}

fn check(
    bench: &Bench,
    program: &Program,
    Graft { donor, strings, stripped }: Graft,
    way: Way,
    scale: &str,
    label: &str,
) -> Result<(), String> {
    let object = bench.file(&format!("{} x86_64.o", program.name), program.object(conformance::Arch::X86_64));
    let folder = bench.path(label);
    std::fs::create_dir(&folder).map_err(|error| error.to_string())?;
    let (stock, graft) = (folder.join("stock"), folder.join(program.name));
    way.link(bench, &bench.libc(way.host, Donors::STOCK, &[]), &[object], &[], &stock)?;
    if stripped {
        strip(&stock)?;
    }
    match hosts::graft_executable_to(&stock, &graft, donor, &[], strings) {
        Ok(_) if program.name == OWN_MALLOC => {
            return Err("it brings its own malloc, and was grafted".into());
        }
        Ok(_) => {}
        Err(hosts::Error::Executable { .. }) if program.name == OWN_MALLOC => return Ok(()),
        Err(error) => return Err(error.to_string()),
    }
    // What a later strip leaves has to work as well.
    strip(&graft)?;
    let output = way.run(&graft, &[("ALLOGRAFT_SCALE".to_owned(), scale.to_owned())])?;
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.status.success() && stdout == format!("ok {}\n", program.name) {
        return Ok(());
    }
    Err(format!("{}, stdout {stdout:?}, stderr {stderr:?}", output.status))
}

fn strip(path: &Path) -> Result<(), String> {
    let output = Command::new("strip").arg("-s").arg(path).output().map_err(|error| format!("strip: {error}"))?;
    // A file that strip has to bend is one that it may break.
    if output.status.success() && output.stderr.is_empty() {
        return Ok(());
    }
    Err(format!("strip: {}", String::from_utf8_lossy(&output.stderr)))
}

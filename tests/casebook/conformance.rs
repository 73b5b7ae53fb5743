//! Every conformance program with every donor: shortened in the default tier; whole, and on foreign architectures, in the
//! slow one.

use std::path::PathBuf;
use std::sync::Arc;

use casebook::bench::{Bench, Donors, Host};
use casebook::link::{Linker, Mode, Way};
use conformance::Program;
use fixtures::Arch;
use libtest_mimic::{Arguments, Failed, Trial};

/// How much of a program's work is done, in percent.
const SHORT: u32 = 4;
const WHOLE: u32 = 100;
const EMULATED: u32 = 2;

fn main() {
    let bench = Arc::new(Bench::new());
    let mut trials = Vec::new();
    let native = Host::Debian(Arch::X86_64);
    for program in conformance::programs() {
        for donor in donors::all() {
            let mut add = |host, linker, mode, scale, slow| {
                let way = Way { host, linker, mode };
                trials.push(trial(&bench, program, donor.name, way, scale).with_ignored_flag(slow));
            };
            add(native, Linker::Gnu, Mode::Static, SHORT, false);
            for linker in [Linker::Gnu, Linker::Lld] {
                for mode in [Mode::Static, Mode::StaticPie] {
                    add(native, linker, mode, WHOLE, true);
                }
            }
            add(Host::Zig(Arch::X86_64), Linker::Lld, Mode::Static, WHOLE, true);
            for mode in [Mode::Static, Mode::StaticPie] {
                add(Host::Debian(Arch::Aarch64), Linker::Lld, mode, EMULATED, true);
            }
        }
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

fn trial(bench: &Arc<Bench>, program: &'static Program, donor: &'static str, way: Way, scale: u32) -> Trial {
    let bench = Arc::clone(bench);
    let name = format!("{}/{donor}/{}/{scale}%", program.name, way.name());
    Trial::test(name.clone(), move || check(&bench, program, donor, way, scale, &name).map_err(Failed::from))
}

fn check(
    bench: &Bench,
    program: &Program,
    donor: &'static str,
    way: Way,
    scale: u32,
    name: &str,
) -> Result<(), String> {
    let arch = conformance::Arch::from_name(way.host.arch().name()).ok_or("an architecture without programs")?;
    let object = bench.file(&format!("{} {}.o", program.name, arch.name()), program.object(arch));
    let libc = bench.libc(way.host, Donors::both(donor), &[]);
    // Each in a folder of its own: they make files. Without the percent sign, which lld takes for a place to fill in.
    let folder: PathBuf = bench.path(&name.replace('/', " ").replace('%', ""));
    std::fs::create_dir(&folder).map_err(|error| error.to_string())?;
    let linked = folder.join(program.name);
    way.link(bench, &libc, &[object], &[], &linked)?;

    let mut environment = vec![("ALLOGRAFT_SCALE".to_owned(), scale.to_string())];
    if !fixtures::native(way.host.arch()) {
        environment.push(("ALLOGRAFT_HANG_SECONDS".into(), "120".into()));
    }
    let output = way.run(&linked, &environment)?;
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    // A program may note what a machine keeps it from doing, such as spawning itself under an emulator.
    let quiet = stderr.lines().all(|line| line.starts_with("note: "));
    if output.status.success() && stdout == format!("ok {}\n", program.name) && quiet {
        return Ok(());
    }
    Err(format!("{}, stdout {stdout:?}, stderr {stderr:?}", output.status))
}

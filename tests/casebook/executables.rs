//! Conformance programs that are first linked with stock musl and then grafted. Each passes or is refused, with and
//! without the symbol table, with both linkers. The default tier runs a part, the slow tier the matrix.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use casebook::bench::{Bench, Host};
use casebook::finished::{self, Graft};
use casebook::link::{LinkSetup, Linker, Mode};
use fixtures::Arch;
use fixtures::trials::{in_group, slow};
use libtest_mimic::{Failed, Trial};

/// The part of a program's work that is done, in percent.
const SHORT: &str = "2";
const PART: &str = "15";

/// The programs of the default tier: the family, threads that end, forks, and allocations by libc itself. Donors other
/// than the default one run the first of them only.
const FAST: [&str; 6] = ["family", "threads", "thread_exit", "fork_owners", "libc_callers", "sandbox"];

pub(crate) fn trials(bench: &Arc<Bench>) -> Vec<Trial> {
    let debian = Host::Debian(Arch::X86_64);
    let mut ways = Vec::new();
    for linker in [Linker::Gnu, Linker::Lld] {
        ways.extend([Mode::Static, Mode::StaticPie].map(|mode| LinkSetup { host: debian, linker, mode }));
    }
    ways.push(LinkSetup { host: Host::Zig(Arch::X86_64), linker: Linker::Lld, mode: Mode::Static });
    let mut trials = Vec::new();
    for program in conformance::programs() {
        for donor in donors::all().iter().filter(|donor| donor.has_blobs()) {
            for (index, way) in ways.iter().enumerate() {
                for stripped in [false, true] {
                    let fast = match donor.name {
                        name if name == donors::default_for(Arch::X86_64).name => {
                            FAST.contains(&program.name) && (index == 0 && stripped || index == 3 && !stripped)
                        }
                        _ => program.name == FAST[0] && index == 3 && stripped,
                    };
                    let (way, kind) = (*way, if stripped { "stripped" } else { "symbols" });
                    // String functions are in the slow tier only: crates/allograft/tests/cli has them in the default
                    // tier.
                    for (strings, suffix) in [(false, ""), (true, "+strings")] {
                        let fast = fast && !strings;
                        let name = format!("executables/{}/{}{suffix}/{}/{kind}", program.name, donor.name, way.name());
                        let (label, bench) = (name.replace('/', " "), Arc::clone(bench));
                        let graft = Graft { donor, strings };
                        let scale = if fast { SHORT } else { PART };
                        let run = move || {
                            let stock = finished::stock(&bench, program, way, &[], &label)?;
                            stripped.then(|| strip(&stock)).transpose()?;
                            // A program that is stripped after the graft has to work as well.
                            finished::check(program, graft, way, &stock, strip, scale).map_err(Failed::from)
                        };
                        let group = way.host.group().or((!fast).then_some("minutes"));
                        trials.push(in_group(Trial::test(name, run), group));
                    }
                }
            }
        }
    }
    for released in finished::released(Arch::X86_64) {
        for (strings, suffix) in [(false, ""), (true, "+strings")] {
            let (bench, released) = (Arc::clone(bench), released.clone());
            let name = format!("executables/released{suffix}/{}", released.name);
            let run = move || finished::check_released(&bench, Arch::X86_64, &released, strings).map_err(Failed::from);
            trials.push(slow(Trial::test(name, run), "corpus"));
        }
    }
    trials
}

fn strip(path: &Path) -> Result<(), String> {
    let output = Command::new("strip").arg("-s").arg(path).output().map_err(|error| format!("strip: {error}"))?;
    // If strip warns that it changes the layout, it may break the file.
    if output.status.success() && output.stderr.is_empty() {
        return Ok(());
    }
    Err(format!("strip: {}", String::from_utf8_lossy(&output.stderr)))
}

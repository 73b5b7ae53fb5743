//! Conformance programs for aarch64 that are first linked with stock musl and then grafted. Each passes under an
//! emulator or is refused, with and without the symbol table. The default tier runs a part, the slow tier the matrix.

use std::ffi::OsString;
use std::sync::Arc;

use casebook::bench::{Bench, Host};
use casebook::finished::{self, Graft};
use casebook::link::{LinkSetup, Linker, Mode};
use conformance::Program;
use fixtures::Arch;
use fixtures::trials::slow;
use libtest_mimic::{Failed, Trial};

/// The part of a program's work that is done, in percent. An emulator takes ten times as long.
const SHORT: &str = "1";
const PART: &str = "5";

/// The programs of the default tier: the family, threads that end, forks, and allocations by libc itself. Donors other
/// than the default one run the first of them only.
const FAST: [&str; 5] = ["family", "threads", "thread_exit", "fork_owners", "libc_callers"];

/// The levels of zig's compiler. zig compiles its musl at the same level as the program.
const LEVELS: [&str; 5] = ["-O0", "-O1", "-O2", "-O3", "-Os"];

pub(crate) fn trials(bench: &Arc<Bench>) -> Vec<Trial> {
    let way = |host, mode| LinkSetup { host, linker: Linker::Lld, mode };
    let debian = Host::Debian(Arch::Aarch64);
    let ways = [
        way(debian, Mode::Static),
        way(debian, Mode::StaticPie),
        // zig's libc.a for aarch64 has no position-independent code.
        way(Host::Zig(Arch::Aarch64), Mode::Static),
    ];
    // The second layout is GNU ld's: constants are in the segment of the code.
    let layouts: [(&str, &[&str]); 2] = [("", &[]), ("/one-segment", &["--no-rosegment"])];
    let mut trials = Vec::new();
    for program in conformance::programs() {
        for donor in donors::all().iter().filter(|donor| donor.has_blob(Arch::Aarch64)) {
            for (index, way) in ways.into_iter().enumerate() {
                for (layout, flags) in layouts {
                    for stripped in [false, true] {
                        let fast = FAST.contains(&program.name)
                            && match (index, layout) {
                                (1, "") => {
                                    stripped
                                        && (donor.name == donors::default_for(Arch::Aarch64).name
                                            || program.name == FAST[0])
                                }
                                (2, "") | (0, "/one-segment") => {
                                    !stripped
                                        && donor.name == donors::default_for(Arch::Aarch64).name
                                        && program.name == FAST[0]
                                }
                                _ => false,
                            };
                        let kind = if stripped { "stripped" } else { "symbols" };
                        // The linker strips, since this machine's strip may not know the architecture.
                        let flags: Vec<OsString> =
                            flags.iter().copied().chain(stripped.then_some("-s")).map(OsString::from).collect();
                        let bench = Arc::clone(bench);
                        let (linked, donors) = (way.name(), donor.name);
                        let name = format!("foreign_executables/{}/{donors}/{linked}{layout}/{kind}", program.name);
                        let scale = if fast { SHORT } else { PART };
                        let label = name.replace('/', " ");
                        let run = move || {
                            let stock = finished::stock(&bench, program, way, &flags, &label)?;
                            let graft = Graft { donor, strings: false };
                            finished::check(program, graft, way, &stock, |_| Ok(()), scale).map_err(Failed::from)
                        };
                        trials.push(slow(Trial::test(name, run), "aarch64"));
                    }
                }
            }
        }
        for level in LEVELS {
            let bench = Arc::clone(bench);
            let name = format!(
                "foreign_executables/{}/{}/zig-cc-aarch64/{level}/stripped",
                program.name,
                donors::default_for(Arch::Aarch64).name
            );
            let label = name.replace('/', " ");
            let run = move || check_compiled(&bench, program, level, &label).map_err(Failed::from);
            trials.push(slow(Trial::test(name, run), "aarch64"));
        }
    }
    for released in finished::released(Arch::Aarch64) {
        let bench = Arc::clone(bench);
        let name = format!("foreign_executables/released/{}", released.name);
        let run = move || finished::check_released(&bench, Arch::Aarch64, &released, false).map_err(Failed::from);
        trials.push(slow(Trial::test(name, run), "corpus"));
    }
    trials
}

/// Compiles and links the program with zig alone, grafts it, and runs it.
fn check_compiled(bench: &Bench, program: &Program, level: &str, label: &str) -> Result<(), String> {
    let folder = bench.path(label);
    std::fs::create_dir(&folder).map_err(|error| error.to_string())?;
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).map_err(|error| error.to_string());
    write("program.c", conformance::source(program))?;
    write("check.h", conformance::header())?;
    let stock = folder.join("stock");
    let mut line: Vec<OsString> =
        ["cc", "-target", "aarch64-linux-musl", "-static", "-s", "-std=gnu17", "-fno-builtin"]
            .map(OsString::from)
            .into();
    line.push(format!("-DPROGRAM_NAME=\"{}\"", program.name).into());
    line.extend([level.into(), folder.join("program.c").into(), "-o".into(), stock.clone().into()]);
    fixtures::zig().run(line).map_err(|error| error.to_string())?;
    let donor = donors::default_for(Arch::Aarch64);
    let way = LinkSetup { host: Host::Zig(Arch::Aarch64), linker: Linker::Lld, mode: Mode::Static };
    finished::check(program, Graft { donor, strings: false }, way, &stock, |_| Ok(()), PART)
}

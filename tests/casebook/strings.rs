//! The proof of the string functions (`suite/strings`), for two subjects: the functions that a program gets from a
//! grafted libc.a, and every code path that the processor can run. The default tier shortens it; the slow tier runs it
//! in full, and emulated.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use casebook::bench::{Bench, Donors, Host};
use casebook::link::{LinkSetup, Linker, Mode};
use fixtures::trials::in_group;
use fixtures::{Arch, strings};
use libtest_mimic::{Failed, Trial};

/// The proof's sources.
const SOURCES: [&str; 7] =
    ["proof.c", "proof_blocks.c", "proof_texts.c", "proof_seek.c", "proof_sets.c", "proof_letters.c", "proof_wchars.c"];

/// The proof's arguments: the length up to which all pairs of alignments are tried, and the greatest length.
const SHORT: [&str; 2] = ["12", "96"];
const WHOLE: [&str; 2] = ["160", "1024"];

/// The subject of the proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Subject {
    /// The functions that a program linked from a graft calls.
    Grafted,
    /// The donor's source, compiled for the proof, which then goes through its paths.
    Paths,
}

pub(crate) fn trials(bench: &Arc<Bench>) -> Vec<Trial> {
    let mut trials = Vec::new();
    let exist = |arch: &Arch| Donors { malloc: None, strings: true }.exist_for(*arch);
    let hosts = Arch::ALL.into_iter().filter(exist).flat_map(|arch| [Host::Debian(arch), Host::Zig(arch)]);
    for host in hosts {
        for (subject, name) in [(Subject::Grafted, "grafted"), (Subject::Paths, "paths")] {
            // For the code paths, the libc does not matter.
            if subject == Subject::Paths && matches!(host, Host::Zig(_)) {
                continue;
            }
            let way = LinkSetup { host, linker: Linker::Lld, mode: Mode::Static };
            for (length, arguments) in [("short", SHORT), ("whole", WHOLE)] {
                let slow = length == "whole";
                // Emulated, it runs in full for one libc only.
                if length == "whole" && !fixtures::native(host.arch()) && matches!(host, Host::Zig(_)) {
                    continue;
                }
                let bench = Arc::clone(bench);
                let trial = Trial::test(format!("strings/proof/{name}/{}/{length}", way.name()), move || {
                    prove(&bench, subject, way, arguments).map_err(Failed::from)
                });
                trials.push(in_group(trial, host.group().or(slow.then_some("minutes"))));
            }
        }
    }
    trials
}

fn prove(bench: &Bench, subject: Subject, way: LinkSetup, arguments: [&str; 2]) -> Result<(), String> {
    let home = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = home.parent().ok_or("a manifest without a folder")?;
    let words = |words: &str| words.split_whitespace().map(OsString::from).collect::<Vec<_>>();
    let mut flags = words("-O2 -fno-builtin -fno-sanitize=all -w");
    let (last, donors) = match subject {
        Subject::Grafted => {
            flags.extend(strings::FUNCTIONS.map(|name| format!("-Dproof_{name}={name}").into()));
            let own = bench.object(way.host.arch(), &home.join("strings").join("grafted.c"), &words("-O2"));
            (own, Donors { malloc: None, strings: true })
        }
        Subject::Paths => {
            let flags = strings::COMPILE.map(OsString::from);
            let source = root.join("crates").join("donors").join("strings").join("donor.c");
            (bench.object(way.host.arch(), &source, &flags), Donors::STOCK)
        }
    };
    let suite = root.join("suite").join("strings");
    let mut objects: Vec<PathBuf> =
        SOURCES.iter().map(|source| bench.object(way.host.arch(), &suite.join(source), &flags)).collect();
    objects.push(last);
    let libc = bench.libc(way.host, donors, &[]);
    let program = bench.path(&format!("proof {subject:?} {} {}", way.name().replace('/', " "), arguments.join(" ")));
    way.link(bench, &libc, &objects, &[], &program)?;
    if subject == Subject::Grafted {
        let bytes = std::fs::read(&program).map_err(|error| error.to_string())?;
        let report = inspector::inspect(&bytes).map_err(|error| error.to_string())?;
        if report.strings != inspector::Strings::Grafted {
            return Err(format!("the program does not carry the grafted functions: {report:?}"));
        }
    }
    let mut command = fixtures::run(way.host.arch(), &program);
    let output = command.args(arguments).output().map_err(|error| format!("{command:?}: {error}"))?;
    let stdout = String::from_utf8_lossy(&output.stdout);
    let said = stdout.contains("right in") && !stdout.contains("wrong") && !stdout.contains("fault");
    if output.status.success() && said && output.stderr.is_empty() {
        return Ok(());
    }
    Err(format!("{}, stdout {stdout:?}, stderr {:?}", output.status, String::from_utf8_lossy(&output.stderr)))
}

//! Released programs that were built on Alpine, started by a grafted loader.

use std::fs;
use std::path::Path;
use std::process::Command;

use fixtures::loaded::{self, Work};

use crate::lab::Lab;

/// The donors that a loader can have.
const DONORS: [&str; 3] = ["snmalloc", "mimalloc", "rpmalloc"];

/// Runs a program by a loader. Returns what it prints, with the files that it made, and what it says on standard error.
fn run(lab: &Lab, loader: &Path, work: &Work, label: &str) -> (Vec<u8>, String) {
    let folder = lab.path(label);
    fs::create_dir(&folder).unwrap();
    loaded::fill(&folder).unwrap();
    let mut command = Command::new(loader);
    command.arg(work.program.program()).args(work.arguments).current_dir(&folder).env("ALLOGRAFT_VERBOSE", "1");
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{} by `{}`: {}\n{said}", work.program.name, loader.display(), output.status);
    let mut result = output.stdout;
    for number in 1..=loaded::OUTPUTS {
        result.extend(fs::read(folder.join(format!("out{number}"))).unwrap_or_default());
    }
    (result, said)
}

/// Tests that need a Debian, by that part of their names.
mod system {
    use super::*;

    /// The program's result is the same by each grafted loader as by stock.
    fn agrees(name: &str) {
        if fixtures::system::is_left_out() {
            return;
        }
        let work = loaded::ALL.iter().find(|work| work.program.name == name).unwrap();
        let lab = Lab::new();
        let (expected, said) = run(&lab, &loaded::loader(), work, "stock");
        // cmake prints on standard error.
        let words = |text: &str| -> Vec<String> {
            text.lines().filter(|line| !line.starts_with("allograft: ")).map(str::to_owned).collect()
        };
        assert!(expected.len() + words(&said).len() > 0, "{name} has a result");
        for donor in DONORS {
            let out = lab.path(format!("{donor}.so"));
            lab.run([
                "graft".as_ref(),
                loaded::loader().as_os_str(),
                "--donor".as_ref(),
                donor.as_ref(),
                "-o".as_ref(),
                out.as_os_str(),
            ])
            .exits(0);
            let (result, said_by_graft) = run(&lab, &out, work, donor);
            assert!(said_by_graft.contains(&format!("allograft: {donor} ")), "{donor} serves {name}: {said_by_graft}");
            assert!(result == expected, "{name} on {donor}");
            assert_eq!(words(&said_by_graft), words(&said), "{name} on {donor}");
        }
    }

    #[test]
    #[ignore = "takes a Debian and a node of 460 MB, which `cargo xtask test-slow cli` unpacks"]
    fn node_compresses_in_threads() {
        agrees("node");
    }

    #[test]
    #[ignore = "takes a Debian of 400 MB, which `cargo xtask test-slow cli` unpacks"]
    fn clang_format_formats() {
        agrees("clang-format");
    }

    #[test]
    #[ignore = "takes a Debian of 400 MB, which `cargo xtask test-slow cli` unpacks"]
    fn cmake_runs_a_script() {
        agrees("cmake");
    }

    #[test]
    #[ignore = "takes a Debian of 400 MB, which `cargo xtask test-slow cli` unpacks"]
    fn ninja_starts_programs() {
        agrees("ninja");
    }
}

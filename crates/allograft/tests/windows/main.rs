//! Donors for Windows: linked by zig and by gcc of mingw-w64, and run by Wine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use fixtures::lab::{Lab, succeeds};
use fixtures::windows;
use serde_json::Value;

/// The donors that there are for Windows.
const DONORS: [&str; 2] = ["mimalloc", "mimalloc3"];

/// Makes a folder with an object of each donor.
fn lab() -> Lab {
    let lab = Lab::new(env!("CARGO_BIN_EXE_allograft"));
    for donor in DONORS {
        let emit = ["emit", "--target", "x86_64-pc-windows-gnu", "--donor", donor, "--set", "purge_delay=5", "-o"];
        lab.run(emit.into_iter().chain([format!("{donor}.o").as_str()])).exits(0);
    }
    lab
}

/// Links a program of `tests/windows` by zig; with the object of a donor if one is named.
fn zig(lab: &Lab, source: &str, donor: Option<&str>, more: &[&str]) -> PathBuf {
    let program = lab.path(source).with_extension(if more.contains(&"-shared") { "dll" } else { "exe" });
    let language: &[&str] = if source.ends_with(".cc") { &["c++", "-std=c++20"] } else { &["cc"] };
    let mut link = fixtures::zig().command();
    link.current_dir(lab.folder()).args(language).args(["-target", "x86_64-windows-gnu", "-O2", "-o"]);
    link.arg(&program).arg(sources().join(source));
    link.args(donor.map(|donor| lab.path(format!("{donor}.o")))).args(more);
    succeeds(&mut link);
    program
}

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/windows").canonicalize().expect("the sources")
}

fn allograft() -> Command {
    Command::new(env!("CARGO_BIN_EXE_allograft"))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns what `inspect` says of a file, and asserts that its malloc is `expected`.
#[track_caller]
fn inspected(file: &Path, expected: &str) -> Value {
    let said = succeeds(allograft().args(["inspect", "--json", "--expect", expected]).arg(file));
    let document: Value = serde_json::from_str(&said.out).expect("a document");
    document["files"][0].clone()
}

#[test]
#[ignore = "windows: zig compiles mingw-w64's runtime, which takes minutes"]
fn a_program_has_the_donor_and_says_so() {
    let lab = lab();
    for donor in DONORS {
        let object = inspected(&lab.path(format!("{donor}.o")), donor);
        assert_eq!((&object["kind"], &object["arch"]), (&"object".into(), &"x86_64".into()), "{object:#}");
        let program = inspected(&zig(&lab, "family.c", Some(donor), &[]), donor);
        assert_eq!((&program["kind"], &program["libc"]), (&"executable".into(), &"ucrt".into()), "{program:#}");
        let note = program["malloc"]["evidence"][0]["detail"].as_str().expect("a text");
        assert!(note.contains(donor) && note.contains("with purge_delay=5"), "{note}");
    }
    let library = inspected(&zig(&lab, "library.c", None, &["-shared"]), "ucrt");
    assert_eq!((&library["kind"], &library["graft"]["way"]), (&"shared".into(), &"relink".into()), "{library:#}");
}

/// Where a file of the program still calls the C library's functions, blocks would cross heaps.
#[test]
#[ignore = "windows: zig compiles mingw-w64's runtime, which takes minutes"]
fn a_program_with_two_mallocs_is_unknown() {
    let lab = lab();
    zig(&lab, "library.c", None, &["-shared"]);
    let program = fs::read(zig(&lab, "boundary.c", Some("mimalloc"), &["library.lib"])).expect("a program");
    // The name of another function that it imports becomes `free`.
    let at = find(&program, b"library_free\0").expect("an import");
    let mut changed = program.clone();
    changed[at..at + 5].copy_from_slice(b"free\0");
    let path = lab.path("two.exe");
    fs::write(&path, changed).expect("a file");
    let said = inspected(&path, "unknown");
    assert_eq!(said["malloc"]["evidence"].as_array().expect("evidence").len(), 2, "{said:#}");
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

#[test]
#[ignore = "windows: zig compiles mingw-w64's runtime, which takes minutes"]
fn damaged_files_are_errors_or_unknown() {
    let lab = lab();
    let program = fs::read(zig(&lab, "threads.c", Some("mimalloc"), &[])).expect("a program");
    let object = fs::read(lab.path("mimalloc3.o")).expect("an object");
    for whole in [program, object] {
        let starts = (0..1200).chain((1200..whole.len()).step_by(whole.len() / 300));
        for cut in starts.clone() {
            let _ = inspector::inspect(&whole[..cut]);
        }
        for at in starts {
            for value in [0, 0x7f, 0xff] {
                let mut changed = whole.clone();
                changed[at] = value;
                if at + 4 < changed.len() && value == 0xff {
                    changed[at..at + 4].fill(value);
                }
                if let Ok(report) = inspector::inspect(&changed) {
                    let name = report.malloc.name;
                    assert!(
                        ["mimalloc", "mimalloc3", "unknown", "ucrt", "none"].contains(&name.as_str()) || at > 64,
                        "{name}"
                    );
                }
            }
        }
    }
}

#[test]
fn what_there_is_not_for_windows_is_refused() {
    let refused = |arguments: &[&str], code: i32, says: &[&str]| {
        let output = allograft().arg("emit").args(arguments).output().expect("allograft starts");
        let err = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {err}");
        assert!(says.iter().all(|part| err.contains(part)) && err.contains("help: "), "{arguments:?}: {err}");
    };
    let gnu = ["--target", "x86_64-pc-windows-gnu"];
    refused(&["--target", "x86_64-pc-windows-msvc"], 3, &["Microsoft's linker", "x86_64-pc-windows-gnu"]);
    refused(&[gnu[0], gnu[1], "--as", "archive"], 3, &["objects only"]);
    refused(&[gnu[0], gnu[1], "--as", "shared"], 3, &["objects only"]);
    refused(&[gnu[0], gnu[1], "--strings", "on"], 3, &["string functions"]);
    refused(&[gnu[0], gnu[1], "--donor", "jemalloc"], 3, &["`jemalloc`", "mimalloc, mimalloc3"]);
    refused(&[gnu[0], gnu[1], "--set", "purge_delay=-7"], 2, &["purge_delay"]);
}

/// Runs a program, asserts that it says that all is right, and which allocator it has.
#[track_caller]
fn runs(home: &Path, program: &Path, donor: &str) {
    let mut wine = windows::wine(home, program);
    let ran = succeeds(wine.current_dir(home.parent().expect("a folder")).env("ALLOGRAFT_VERBOSE", "1"));
    assert!(ran.out.contains(": all right"), "{}", ran.out);
    let said = ran.err;
    assert!(said.contains(&format!("allograft: {donor} ")), "{said}");
}

/// Whether the tests with Wine can run here; else prints why not.
fn is_there() -> bool {
    if let Some(reason) = windows::unavailable() {
        eprintln!("skipped: {reason}");
        return false;
    }
    assert!(
        windows::folder().is_dir(),
        "`{}` is missing: `cargo xtask test-slow windows`",
        windows::folder().display()
    );
    true
}

#[test]
#[ignore = "windows: needs Wine (170 MB)"]
fn programs_that_zig_linked_run() {
    if !is_there() {
        return;
    }
    let lab = lab();
    zig(&lab, "library.c", None, &["-shared"]);
    for donor in DONORS {
        for (source, more) in
            [("family.c", &[][..]), ("threads.c", &[]), ("operators.cc", &[]), ("boundary.c", &["library.lib"])]
        {
            runs(&lab.path("drive"), &zig(&lab, source, Some(donor), more), donor);
        }
    }
}

#[test]
#[ignore = "windows: needs Wine and mingw-w64 (170 MB)"]
fn programs_that_gcc_linked_run() {
    if !is_there() {
        return;
    }
    let lab = lab();
    for donor in DONORS {
        for source in ["family.c", "threads.c"] {
            let program = lab.path(source).with_extension("exe");
            let mut link = Command::new(windows::gcc());
            // The order of the line that `emit` prints.
            link.arg(lab.path(format!("{donor}.o"))).arg(sources().join(source)).arg("-o").arg(&program);
            succeeds(link.args(["-O2", "-w"]));
            assert_eq!(inspected(&program, donor)["libc"], "msvcrt");
            runs(&lab.path("drive"), &program, donor);
        }
    }
}

//! Dynamic programs that load their donor (`--needed`): they run, are inspected, verified, and given back; and what
//! becomes of them without the file.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use fixtures::program::Build;

use crate::dynamic::{SOURCE, glibc, musl, serves};
use crate::lab::{Lab, debian, tool};

const SMALL: &str = "#include <stdlib.h>\nint main(void) { free(malloc(10)); return 0; }\n";

/// Writes the donor's shared object.
#[track_caller]
fn emit(lab: &Lab, path: &str, more: &[&str]) {
    let words = ["emit", "--target", "x86_64-linux-gnu", "--as", "shared", "-o", path];
    lab.run(words.iter().chain(more)).exits(0);
}

/// The failure of a program that should not start: its exit code, and its loader's message.
#[track_caller]
fn does_not_start(program: &Path) -> String {
    let output = Command::new(program).output().unwrap();
    assert_eq!(output.status.code(), Some(127), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
#[ignore = "minutes: ten seconds of processor time"]
fn loaded_in_place_and_given_back() {
    let lab = Lab::new();
    let programs = [
        (glibc(&lab, "pie", SOURCE, &["-lpthread"]), "pie", "glibc"),
        (glibc(&lab, "fixed", SOURCE, &["-no-pie", "-fno-pie", "-lpthread"]), "fixed", "glibc"),
        (glibc(&lab, "sysv", SOURCE, &["-Wl,--hash-style=sysv", "-Wl,-z,now", "-s", "-lpthread"]), "sysv", "glibc"),
        (musl(&lab, "ofmusl", true), "ofmusl", "musl"),
        (musl(&lab, "fixedmusl", false), "fixedmusl", "musl"),
    ];
    emit(&lab, "liballograft.so", &["--set", "purge_delay=0"]);
    let set = ["--set", "purge_delay=0"];
    for (stock, name, libc) in programs {
        let path = lab.path(name);
        let ran = lab.changes_nothing(0, ["graft", name, "--needed", "--dry-run", set[0], set[1]]);
        assert!(ran.out.contains("would graft"), "{ran:?}");
        let words = ["graft", name, "--needed", "--json", set[0], set[1], "--try", "--", "one", "two"];
        let document = lab.run(words).exits(0).json();
        let host = &document["hosts"][0];
        assert_eq!(host["needed"].as_str(), lab.path("liballograft.so").to_str());
        assert_eq!((host["link"].as_str(), host["tried"][0].as_str()), (Some("dynamic"), Some("self-test: passed")));
        assert!(host["tried"][1].as_str().unwrap().contains("exit status: 0 and the same 8 bytes"), "{host}");
        serves(&path, "snmalloc");
        let grown = fs::metadata(&path).unwrap().len() - stock.len() as u64;
        assert!(grown < 40_000, "{name} has grown by {grown} bytes");
        let inspected = lab.run(["inspect", name, "--expect", "snmalloc", "-v"]).exits(0).out;
        assert!(inspected.contains("and this is that file"), "{inspected}");
        let verified = lab.run(["verify", name]).exits(0).out;
        for check in ["needed", "program", "headers", "dynamic", "library", "donor", "bytes", "self-test: passed"] {
            assert!(verified.contains(&format!("✓ {check}")), "{check}: {verified}");
        }
        assert!(lab.changes_nothing(0, ["graft", name, "--needed", set[0], set[1]]).out.contains("unchanged"));
        // Its donor goes into it instead, and comes out again.
        let merged = lab.run(["graft", name]).exits(0).out;
        assert!(merged.contains(&format!("merged: its 17 malloc functions come before {libc}'s")), "{merged}");
        let ran = lab.run(["graft", name, "--needed", set[0], set[1]]).exits(0).out;
        assert!(ran.contains(&format!("liballograft.so, which it loads before {libc}")), "{ran}");
        let undone = lab.run(["undo", name]).exits(0);
        assert!(undone.err.contains("liballograft.so`, which stays"), "{undone:?}");
        assert!(fs::read(&path).unwrap() == stock, "{name} is stock again");
    }
    assert!(lab.names().contains(&"liballograft.so".to_owned()));
}

#[test]
fn every_donor_is_loaded() {
    let lab = Lab::new();
    let stock = glibc(&lab, "stock", SOURCE, &["-lpthread"]);
    assert!(!stock.is_empty());
    for donor in donors::all().iter().filter(|donor| donor.has_library(format::Arch::X86_64)) {
        emit(&lab, "donor.so", &["--donor", donor.name]);
        let needed = format!("--needed={}", lab.path("donor.so").display());
        lab.run(["graft", "stock", "--donor", donor.name, &needed, "-o", "graft"]).exits(0);
        serves(&lab.path("graft"), donor.name);
        lab.run(["inspect", "graft", "--expect", donor.name]).exits(0);
    }
}

/// The message says how to make the file, and that command makes it.
#[test]
fn a_file_that_is_not_there_or_another_one() {
    let lab = Lab::new();
    glibc(&lab, "user", SMALL, &[]);
    for words in [vec!["graft", "user", "--needed"], vec!["graft", "user", "--needed", "--donor", "mimalloc"]] {
        let ran = lab.changes_nothing(3, words.clone());
        let ran = ran.says(&[
            "would not start: there is no file",
            "liballograft.so`",
            "help: write the file: `allograft emit",
        ]);
        let command = ran.err.split('`').find(|text| text.starts_with("allograft emit")).unwrap();
        lab.run(command.split(' ').skip(1)).exits(0);
        lab.run(words.into_iter().chain(["-o", "graft"])).exits(0);
        if command.contains("snmalloc") {
            // For a test of another donor's file.
            let ran = lab.changes_nothing(3, ["graft", "user", "--needed", "--donor", "mimalloc"]);
            ran.says(&["would load `", "which is snmalloc ", "; expected mimalloc "]);
            let ran = lab.changes_nothing(3, ["graft", "user", "--needed", "--set", "purge_delay=0"]);
            ran.says(&["which is snmalloc ", "expected snmalloc ", "(purge_delay=0)", "--set purge_delay=0"]);
            fs::remove_file(lab.path("liballograft.so")).unwrap();
        }
    }
    lab.put("liballograft.so", b"no library at all");
    lab.changes_nothing(3, ["graft", "user", "--needed"]).says(&["which is not a shared object that allograft made"]);
    let mut damaged = fs::read(lab.path("graft")).unwrap();
    damaged.truncate(1000);
    lab.put("liballograft.so", &damaged);
    lab.changes_nothing(3, ["graft", "user", "--needed"]).says(&["which is not a shared object that allograft made"]);
}

#[test]
fn a_file_that_goes_or_changes_later() {
    let lab = Lab::new();
    glibc(&lab, "user", SMALL, &[]);
    musl(&lab, "ofmusl", true);
    emit(&lab, "liballograft.so", &[]);
    let donor = fs::read(lab.path("liballograft.so")).unwrap();
    for (name, said) in [("user", "error while loading shared libraries"), ("ofmusl", "Error loading shared library")] {
        lab.run(["graft", name, "--needed"]).exits(0);
        fs::remove_file(lab.path("liballograft.so")).unwrap();
        let output = does_not_start(&lab.path(name));
        assert!(output.contains(said) && output.contains("/liballograft.so"), "{output}");
        let ran = lab.run(["inspect", name, "--expect", "snmalloc", "-v"]).exits(1);
        assert!(ran.out.contains("unknown") && ran.out.contains("liballograft.so"), "{ran:?}");
        let ran = lab.run(["verify", name]).exits(1);
        assert!(ran.out.contains("✗ library: there is no file") && !ran.out.contains("self-test: passed"), "{ran:?}");

        emit(&lab, "liballograft.so", &["--donor", "mimalloc"]);
        tool(&mut Command::new(lab.path(name)));
        let ran = lab.run(["inspect", name, "-v"]).exits(0);
        assert!(ran.out.contains("mimalloc") && ran.out.contains("and this is a different file"), "{ran:?}");
        let ran = lab.run(["verify", name]).exits(1);
        assert!(ran.out.contains("is a different file: it has sha256"), "{ran:?}");
        fs::write(lab.path("liballograft.so"), &donor).unwrap();
        lab.run(["verify", name]).exits(0);
        lab.run(["undo", name]).exits(0);
    }
}

#[test]
fn names_that_a_loader_searches_for_and_names_that_it_cannot_take() {
    let lab = Lab::new();
    glibc(&lab, "user", SOURCE, &["-lpthread"]);
    glibc(&lab, "searches", SOURCE, &["-lpthread", "-Wl,-rpath,$ORIGIN/lib"]);
    musl(&lab, "ofmusl", true);
    fs::create_dir(lab.path("lib")).unwrap();
    fs::create_dir(lab.path("bin")).unwrap();
    emit(&lab, "lib/libdonor.so.1", &[]);
    // By the program's own place; and written to where that is right, from where it is wrong.
    lab.run(["graft", "user", "--needed=$ORIGIN/lib/libdonor.so.1", "-o", "graft"]).exits(0);
    lab.run(["graft", "user", "--needed=$ORIGIN/../lib/libdonor.so.1", "-o", "bin/graft", "--try", "--", "x"]).exits(0);
    lab.changes_nothing(3, ["graft", "user", "--needed=$ORIGIN/../lib/libdonor.so.1"]).says(&["there is no file"]);
    lab.run(["graft", "searches", "--needed=libdonor.so.1"]).exits(0);
    for name in ["graft", "bin/graft", "searches"] {
        serves(&lab.path(name), "snmalloc");
        lab.run(["inspect", name, "--expect", "snmalloc"]).exits(0);
        assert!(lab.run(["verify", name, "--stock", "user"]).out.contains("✓ library"), "{name}");
    }
    lab.changes_nothing(3, ["graft", "user", "--needed=libdonor.so.1"]).says(&[
        "it is not certain which file its loader takes for `libdonor.so.1`",
        "in a folder that its loader searches",
    ]);
    for (program, name, said) in [
        ("user", "$LIB/libdonor.so.1", "only `$ORIGIN/` at the beginning"),
        ("user", "lib/libdonor.so.1", "in the folder that it is started in"),
        ("user", "", "is empty"),
        ("user", "libc.so.6", "it needs `libc.so.6` already"),
        ("ofmusl", "$ORIGIN/lib/libdonor.so.1", "takes the dollar sign"),
        ("ofmusl", "libm.donor.so", "for a part of libc"),
    ] {
        lab.changes_nothing(3, ["graft", program, &format!("--needed={name}")]).says(&[said, "help: "]);
    }
}

#[test]
fn a_target_that_is_not_a_dynamic_program_is_wrong_usage() {
    let lab = Lab::new();
    Build::PLAIN.program(&lab.path(""), "static", SMALL);
    lab.put("sysroot/lib/libc.a", &debian());
    for target in ["static", "sysroot", "sysroot/lib/libc.a"] {
        lab.changes_nothing(2, ["graft", target, "--needed"])
            .says(&["is not a dynamic program", "leave `--needed` out"]);
    }
}

#[test]
fn refusals_are_those_of_merges() {
    let lab = Lab::new();
    emit(&lab, "liballograft.so", &[]);
    let own = "#include <stddef.h>\nvoid *malloc(size_t n) { return (void *)(n & 0); }\n\
               int main(void) { return malloc(1) != 0; }\n";
    glibc(&lab, "own", own, &["-rdynamic"]);
    lab.changes_nothing(3, ["graft", "own", "--needed"]).says(&["defines `malloc`"]);
    glibc(&lab, "loads", "#include <dlfcn.h>\nint main(void) { return dlopen(\"x\", 1) != 0; }\n", &["-ldl"]);
    lab.changes_nothing(3, ["graft", "loads", "--needed", "--strings", "on"]).says(&["string functions"]);
    lab.run(["graft", "loads", "--needed", "-o", "out"]).exits(0);
    for words in [["graft", "out", "--needed"], ["graft", "out", "--donor=mimalloc"]] {
        lab.changes_nothing(3, words).says(&["carries a graft already: snmalloc"]);
    }
    lab.changes_nothing(3, ["undo", "out"]).says(&["no backup or record"]);
    let mut appended = fs::read(lab.path("loads")).unwrap();
    appended.extend(b"PK\x03\x04");
    lab.put("appended", &appended);
    lab.changes_nothing(3, ["graft", "appended", "--needed"]).says(&["4 bytes are appended"]);
}

/// Who can exchange the file has the rights of the program.
#[test]
fn a_setuid_program_takes_a_file_that_nobody_else_can_change() {
    let lab = Lab::new();
    glibc(&lab, "user", SMALL, &[]);
    emit(&lab, "liballograft.so", &[]);
    let mode = |name: &str, mode| fs::set_permissions(lab.path(name), Permissions::from_mode(mode)).unwrap();
    mode("user", 0o4755);
    lab.changes_nothing(3, ["graft", "user", "--needed"]).says(&["is setuid or setgid", "--yes"]);
    lab.changes_nothing(3, ["graft", "user", "--needed=$ORIGIN/liballograft.so", "--yes"]).says(&["`$ORIGIN`"]);
    for (name, writable, right) in [("liballograft.so", 0o664, 0o644), ("", 0o777, 0o755)] {
        mode(name, writable);
        lab.changes_nothing(3, ["graft", "user", "--needed", "--yes"]).says(&["others could exchange its donor"]);
        mode(name, right);
    }
    lab.run(["graft", "user", "--needed", "--yes"]).exits(0);
    assert_eq!(fs::metadata(lab.path("user")).unwrap().permissions().mode() & 0o7777, 0o4755);
    tool(&mut Command::new(lab.path("user")));
}

/// In the root folder of an image, the path starts there, and the self-test takes the file from memory.
#[test]
fn a_program_in_a_root_folder() {
    let lab = Lab::new();
    let stock = glibc(&lab, "stock", SOURCE, &["-lpthread"]);
    fs::create_dir_all(lab.path("root/usr/bin")).unwrap();
    fs::create_dir_all(lab.path("root/usr/lib")).unwrap();
    fs::rename(lab.path("stock"), lab.path("root/usr/bin/user")).unwrap();
    emit(&lab, "root/usr/lib/libdonor.so", &[]);
    let words = ["--root", "root", "/usr/bin/user"];
    let graft =
        |needed: &str| [&["graft", needed][..], &words].concat().into_iter().map(str::to_owned).collect::<Vec<_>>();
    // Without a loader and libraries in it, it is not known what serves the program there.
    let ran = lab.changes_nothing(3, graft("--needed=/usr/lib/libdonor.so"));
    ran.says(&["is not known: the loader `/lib64/ld-linux-x86-64.so.2` is not in this root", "help: "]);
    for name in ["/lib64/ld-linux-x86-64.so.2", "/lib/x86_64-linux-gnu/libc.so.6"] {
        let copy = lab.path(format!("root{name}"));
        fs::create_dir_all(copy.parent().unwrap()).unwrap();
        fs::copy(name, copy).unwrap();
    }
    let ran = lab.changes_nothing(3, graft("--needed"));
    ran.says(&["there is no file `/usr/bin/liballograft.so`", "-o root/usr/bin/liballograft.so`"]);
    assert!(lab.run(graft("--needed=/usr/lib/libdonor.so")).exits(0).out.contains("self-test: passed"));
    let verified = lab.run(["verify"].iter().chain(&words)).exits(0).out;
    assert!(verified.contains("✓ library") && verified.contains("self-test: passed"), "{verified}");
    let output = does_not_start(&lab.path("root/usr/bin/user"));
    assert!(output.contains("/usr/lib/libdonor.so: cannot open shared object file"), "{output}");
    lab.run(["undo"].iter().chain(&words)).exits(0);
    assert!(fs::read(lab.path("root/usr/bin/user")).unwrap() == stock);
}

#[test]
#[ignore = "minutes: eight seconds of processor time"]
fn a_program_that_was_stripped_later_is_whole_and_a_damaged_one_is_told() {
    let lab = Lab::new();
    glibc(&lab, "stock", SOURCE, &["-rdynamic", "-lpthread"]);
    emit(&lab, "liballograft.so", &[]);
    for strip in ["strip", "objcopy"] {
        lab.run(["graft", "stock", "--needed", "-o", "graft"]).exits(0);
        tool(Command::new(strip).arg(lab.path("graft")));
        serves(&lab.path("graft"), "snmalloc");
        assert!(lab.run(["verify", "graft", "--stock", "stock"]).exits(0).out.contains("self-test: passed"), "{strip}");
    }
    lab.run(["graft", "stock", "--needed", "-o", "graft"]).exits(0);
    let graft = fs::read(lab.path("graft")).unwrap();
    let new = graft.windows(13).position(|window| window == b"\x06\0\0\0allograft").unwrap();
    // The program's code, the checksum, the names, and the dynamic section in the page behind them.
    let dynamic = (new / 4096 + 1) * 4096;
    for at in [0x1100, new + 24, new + 700, dynamic + 8, dynamic + 40] {
        let mut bytes = graft.clone();
        bytes[at] ^= 0x10;
        lab.put("damaged", &bytes);
        fs::set_permissions(lab.path("damaged"), Permissions::from_mode(0o755)).unwrap();
        let ran = lab.run(["verify", "damaged", "--stock", "stock"]);
        assert!(ran.code != 0 && !ran.out.contains("self-test: passed"), "the byte {at:#x}: {ran:?}");
    }
    for size in (0..graft.len()).step_by(graft.len() / 50) {
        lab.put("damaged", &graft[..size]);
        assert_ne!(lab.run(["verify", "damaged", "--stock", "stock"]).code, 0, "{size} bytes");
    }
}

//! Results that cannot be printed: exit code 2, and every file unchanged.

use std::fs::{self, File};

use fixtures::{Arch, Ran};

use crate::bundle;
use crate::executables::program;
use crate::lab::{Lab, assert_same, debian};

const TAR: &str = "sdk.artifactbundle.tar.gz";
const ZIP: &str = "sdk.artifactbundle.zip";

/// Runs the program with a standard output that cannot be written to. The files, their inodes and their times must
/// stay.
#[track_caller]
fn changes_nothing(lab: &Lab, arguments: &[&str]) {
    for form in [&[][..], &["--json"]] {
        let before = lab.files();
        let full = File::options().write(true).open("/dev/full").unwrap();
        let ran: Ran = lab.command().args(arguments).args(form).stdout(full).output().unwrap().into();
        ran.exits(2).says(&["cannot write to standard output: No space left", "help: ", "nothing was changed"]);
        assert_same(&before, &lab.files());
    }
}

#[test]
fn archives_and_folders() {
    let lab = Lab::new();
    lab.libc("one/libc.a");
    lab.libc("two/libc.a");
    for target in ["one/libc.a", "."] {
        changes_nothing(&lab, &["graft", target]);
    }
    lab.run(["graft", "."]).exits(0);
    changes_nothing(&lab, &["graft", "one/libc.a", "--donor", "mimalloc3"]);
    changes_nothing(&lab, &["graft", ".", "--donor", "mimalloc3"]);
    changes_nothing(&lab, &["undo", "one/libc.a"]);
    changes_nothing(&lab, &["undo", "."]);
    // The leftovers of killed runs stay as well.
    lab.run(["undo", "."]).exits(0);
    fs::hard_link(lab.path("one/libc.a"), lab.path("one/libc.a.allograft-stock")).unwrap();
    changes_nothing(&lab, &["undo", "one/libc.a"]);
}

#[test]
fn executables() {
    let lab = Lab::new();
    program(&lab, "program");
    changes_nothing(&lab, &["graft", "program"]);
    changes_nothing(&lab, &["graft", "program", "-o", "new"]);
    lab.put("there", b"mine");
    changes_nothing(&lab, &["graft", "program", "-o", "there", "--force"]);
    lab.run(["graft", "program"]).exits(0);
    changes_nothing(&lab, &["graft", "program", "--donor", "mimalloc-secure"]);
    changes_nothing(&lab, &["undo", "program"]);
}

#[test]
fn packed_bundles() {
    let lab = Lab::new();
    bundle::pack_tar(&lab, TAR, "gnu");
    bundle::pack_zip(&lab, ZIP);
    for packed in [TAR, ZIP] {
        changes_nothing(&lab, &["graft", packed]);
        changes_nothing(&lab, &["graft", packed, "-o", "new"]);
        lab.put("there", b"mine");
        changes_nothing(&lab, &["graft", packed, "-o", "there", "--force"]);
    }
    lab.run(["graft", ZIP]).exits(0);
    changes_nothing(&lab, &["undo", ZIP]);
}

#[test]
fn copies_and_emitted_files() {
    let lab = Lab::new();
    lab.libc("sysroot/libc.a");
    lab.put("there", b"mine");
    fs::create_dir(lab.path("empty")).unwrap();
    std::os::unix::fs::symlink("nowhere", lab.path("dangling")).unwrap();
    for out in ["new", "there", "dangling"] {
        changes_nothing(&lab, &["graft", "sysroot/libc.a", "-o", out, "--force"]);
        changes_nothing(&lab, &["emit", "--target", "x86_64-linux-musl", "-o", out]);
    }
    for out in ["new", "empty"] {
        changes_nothing(&lab, &["graft", "sysroot", "-o", out]);
    }
}

/// If the result can be printed, nothing differs from a usual run.
#[test]
fn a_result_that_is_printed_stays() {
    let lab = Lab::new();
    let libc = lab.libc("libc.a");
    let out = File::create(lab.path("log")).unwrap();
    let ran: Ran = lab.command().args(["graft", "libc.a"]).stdout(out).output().unwrap().into();
    ran.exits(0);
    assert!(fs::read(&libc).unwrap() != debian());
    assert!(fs::read_to_string(lab.path("log")).unwrap().contains("grafted"));
    assert_eq!(lab.names(), ["libc.a", "libc.a.allograft-stock", "libc.a.allograft.json", "log"]);
    assert!(bundle::stock(Arch::X86_64) == debian());
}

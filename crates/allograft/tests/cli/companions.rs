//! Files with the name of a backup or record that are neither: the host is refused, and they stay untouched.

use std::fs;
use std::os::unix::fs::symlink;

use crate::executables::program;
use crate::lab::{Lab, debian};

const BACKUP: &str = "libc.a.allograft-stock";
const RECORD: &str = "libc.a.allograft.json";

fn fifo(lab: &Lab, name: &str) {
    use rustix::fs::{CWD, FileType, Mode};
    rustix::fs::mknodat(CWD, lab.path(name), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
}

/// Opening a pipe would wait forever, and reading a device would not end.
#[test]
fn pipes_and_devices_are_not_opened() {
    for name in [BACKUP, RECORD] {
        for graft in [false, true] {
            let lab = Lab::new();
            lab.libc("libc.a");
            if graft {
                lab.run(["graft", "libc.a"]).exits(0);
                fs::remove_file(lab.path(name)).unwrap();
            }
            // This does not use a snapshot, which would open them.
            let names = |lab: &Lab| -> Vec<_> {
                let mut names: Vec<_> =
                    fs::read_dir(lab.path("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
                names.sort();
                names
            };
            fifo(&lab, name);
            let (before, bytes) = (names(&lab), fs::read(lab.path("libc.a")).unwrap());
            let commands: [&[&str]; 3] =
                [&["graft", "libc.a", "--donor", "mimalloc3"], &["graft", ".", "--dry-run"], &["undo", "libc.a"]];
            for found in ["a pipe", "a symbolic link"] {
                for command in commands {
                    lab.run(command).exits(3).says(&[name, found, "help: "]);
                    assert_eq!(names(&lab), before);
                    assert!(fs::read(lab.path("libc.a")).unwrap() == bytes);
                }
                fs::remove_file(lab.path(name)).unwrap();
                symlink("/dev/zero", lab.path(name)).unwrap();
            }
        }
    }
}

#[test]
fn a_file_of_the_users_own_stays() {
    let lab = Lab::new();
    program(&lab, "program");
    for (host, name, content) in [
        ("libc.a", BACKUP, &b"mine"[..]),
        ("libc.a", BACKUP, b"!<arch>\n"),
        ("libc.a", RECORD, b"mine"),
        ("libc.a", RECORD, b"{\"schema_version\": 2}"),
        ("program", "program.allograft-stock", b"mine"),
        ("program", "program.allograft.json", b"mine"),
    ] {
        lab.libc("libc.a");
        lab.put(name, content);
        for arguments in [&["graft", host][..], &["graft", host, "--dry-run"]] {
            lab.changes_nothing(3, arguments).says(&[name, "help: ", "move it away"]);
        }
        // Nothing is undone, so nothing is deleted.
        let before = lab.snapshot();
        lab.run(["undo", host]);
        crate::lab::assert_same(&before, &lab.snapshot());
        fs::remove_file(lab.path(name)).unwrap();
        lab.run(["graft", host]).exits(0);
        lab.run(["undo", host]).exits(0);
    }
}

#[test]
fn a_backup_is_none_once_it_carries_a_graft() {
    let lab = Lab::new();
    let libc = lab.libc("libc.a");
    lab.run(["graft", "libc.a"]).exits(0);
    // Without its record, too, a backup is recognised by the graft beside it.
    fs::rename(lab.path(RECORD), lab.path("record")).unwrap();
    lab.changes_nothing(3, ["graft", BACKUP]).says(&["is the backup of `libc.a`"]);
    // This is the state that an earlier release left.
    fs::rename(&libc, lab.path("graft")).unwrap();
    lab.run(["graft", BACKUP]).exits(0);
    fs::rename(lab.path("graft"), &libc).unwrap();
    lab.changes_nothing(3, ["undo", "libc.a"]).says(&["and so is its backup", "help: "]);
    lab.run(["graft", "libc.a"]).exits(0).says(&["a backup that is not its stock file"]);
    // The command in the help text works.
    lab.run(["undo", BACKUP]).exits(0);
    lab.run(["graft", "libc.a"]).exits(0);
    lab.run(["undo", "libc.a"]).exits(0);
    assert!(fs::read(&libc).unwrap() == debian());
    assert_eq!(lab.names(), ["libc.a", "record"]);
}

#[test]
fn the_backup_of_another_name_is_no_other_link() {
    let lab = Lab::new();
    let first = lab.libc("first.a");
    fs::hard_link(&first, lab.path("second.a")).unwrap();
    lab.run(["graft", "first.a"]).exits(0).says(&["had other hard links"]);
    assert_eq!(lab.run(["graft", "second.a"]).exits(0).err, "");
}

//! Folders: every musl libc.a in them or none.

use std::fs;
use std::os::unix::fs::symlink;

use fixtures::Arch;

use crate::lab::{Lab, debian};

fn aarch64() -> Vec<u8> {
    fs::read(fixtures::debian_musl(Arch::Aarch64).libc).unwrap()
}

#[test]
fn every_host_once_and_the_others_named() {
    let lab = Lab::new();
    let (one, two) = (lab.libc("sdk/x86_64/usr/lib/libc.a"), lab.put("sdk/aarch64/libc.a", &aarch64()));
    lab.libc("outside/libc.a");
    lab.put("sdk/glibc/libc.a", &fs::read(fixtures::glibc()).unwrap());
    lab.put("sdk/script/libc.a", b"/* GNU ld script */\n");
    fs::create_dir(lab.path("sdk/links")).unwrap();
    symlink("../x86_64/usr/lib/libc.a", lab.path("sdk/links/libc.a")).unwrap();
    symlink("../../outside", lab.path("sdk/links/out")).unwrap();
    symlink("../outside/libc.a", lab.path("sdk/libc.a")).unwrap();
    symlink("..", lab.path("sdk/links/loop")).unwrap();
    let ran = lab.run(["graft", "sdk", "--json"]).exits(0).says(&["glibc"]);
    let document = ran.json();
    let paths = |list: &str| -> Vec<String> {
        document[list].as_array().unwrap().iter().map(|host| host["path"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(paths("hosts"), ["sdk/aarch64/libc.a", "sdk/x86_64/usr/lib/libc.a"]);
    assert_eq!(paths("skipped"), ["sdk/glibc/libc.a", "sdk/libc.a", "sdk/script/libc.a"]);
    assert!(fs::read(lab.path("outside/libc.a")).unwrap() == debian());
    let again = lab.changes_nothing(0, ["graft", "sdk", "--json"]).json();
    assert!(again["hosts"].as_array().unwrap().iter().all(|host| host["action"] == "unchanged"));
    let ran = lab.run(["undo", "sdk", "--json"]).exits(0);
    assert_eq!(ran.json()["hosts"].as_array().unwrap().iter().filter(|host| host["action"] == "restored").count(), 2);
    assert!(fs::read(one).unwrap() == debian() && fs::read(two).unwrap() == aarch64());
    assert!(!lab.names().iter().any(|name| name.contains("allograft")));
}

#[test]
fn a_bundle_is_a_folder() {
    let lab = Lab::new();
    lab.libc("sdk.artifactbundle/sdk/musl-1.2.5.sdk/x86_64/usr/lib/libc.a");
    lab.put("sdk.artifactbundle/info.json", b"{}");
    lab.run(["graft", "sdk.artifactbundle"]).exits(0);
    lab.run(["undo", "sdk.artifactbundle/"]).exits(0);
}

#[test]
fn one_that_is_malformed_keeps_the_others_from_being_grafted() {
    let lab = Lab::new();
    lab.libc("sdk/a/libc.a");
    lab.put("sdk/b/libc.a", &debian()[..1_000_000]);
    lab.changes_nothing(2, ["graft", "sdk"]).says(&["`sdk/b/libc.a`"]);
    lab.changes_nothing(2, ["graft", "sdk", "-o", "out"]);
}

#[test]
fn one_that_cannot_be_undone_keeps_the_others_grafted() {
    let lab = Lab::new();
    lab.libc("sdk/a/libc.a");
    lab.libc("sdk/b/libc.a");
    lab.run(["graft", "sdk"]).exits(0);
    fs::remove_file(lab.path("sdk/b/libc.a.allograft-stock")).unwrap();
    lab.changes_nothing(3, ["undo", "sdk"]).says(&["`sdk/b/libc.a.allograft-stock`"]);
}

#[test]
fn a_folder_without_hosts() {
    let lab = Lab::new();
    lab.put("empty/readme", b"");
    lab.changes_nothing(2, ["graft", "empty"]).says(&["no `libc.a` and no program under `empty`", "help: "]);
    lab.changes_nothing(2, ["undo", "empty"]).says(&["no graft with its backup under `empty`", "help: "]);
    lab.put("glibc/libc.a", &fs::read(fixtures::glibc()).unwrap());
    lab.changes_nothing(3, ["graft", "glibc"]).says(&["`glibc/libc.a`: glibc", "help: "]);
    // A folder with only stock archives has nothing to undo, and neither does a stock archive.
    lab.libc("stock/libc.a");
    lab.changes_nothing(0, ["undo", "stock"]);
}

#[test]
fn hosts_that_are_one_file_become_one_again() {
    let lab = Lab::new();
    let one = lab.libc("sdk/a/libc.a");
    fs::create_dir(lab.path("sdk/b")).unwrap();
    let two = lab.path("sdk/b/libc.a");
    fs::hard_link(&one, &two).unwrap();
    lab.run(["graft", "sdk"]).exits(0);
    assert!(fs::read(&one).unwrap() == fs::read(&two).unwrap() && fs::read(&one).unwrap() != debian());
    lab.run(["undo", "sdk"]).exits(0);
    let inode = |path| std::os::unix::fs::MetadataExt::ino(&fs::metadata(path).unwrap());
    assert_eq!(inode(&one), inode(&two));
    assert!(fs::read(&one).unwrap() == debian());
}

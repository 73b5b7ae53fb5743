//! `graft -o`: writes a file, or a copy of a folder; the target stays untouched.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;

use crate::lab::{Entry, Lab, assert_same, debian, long_ago};

fn without(mut snapshot: BTreeMap<PathBuf, Entry>, name: &str) -> BTreeMap<PathBuf, Entry> {
    snapshot.retain(|path, _| !path.starts_with(name) && !path.as_os_str().is_empty());
    snapshot
}

#[test]
fn into_a_file() {
    let lab = Lab::new();
    lab.libc("libc.a");
    let before = lab.snapshot();
    let ran = lab.run(["graft", "libc.a", "-o", "out.a", "--json"]).exits(0);
    assert_same(&without(before, "out.a"), &without(lab.snapshot(), "out.a"));
    let host = &ran.json()["hosts"][0];
    assert_eq!(
        (&host["path"], &host["source"], &host["action"]),
        (&"out.a".into(), &"libc.a".into(), &"grafted".into())
    );
    assert_eq!(host["backup"], serde_json::Value::Null);
    assert_eq!(lab.names(), ["libc.a", "out.a"]);
    lab.changes_nothing(3, ["undo", "out.a"]).says(&["`-o`", "help: "]);
    // The bytes are the same as in place, and an existing file is replaced: a graft, and with --force any file.
    lab.put("again.a", b"something else");
    let refused = "`again.a` exists and is not a graft of `libc.a`";
    lab.changes_nothing(3, ["graft", "libc.a", "-o", "again.a"]).says(&[refused, "help: ", "`--force`"]);
    lab.run(["graft", "libc.a", "-o", "again.a", "--force"]).exits(0);
    lab.run(["graft", "libc.a", "-o", "again.a"]).exits(0);
    lab.run(["graft", "libc.a"]).exits(0);
    let bytes = |name: &str| fs::read(lab.path(name)).unwrap();
    assert!(bytes("out.a") == bytes("libc.a") && bytes("out.a") == bytes("again.a"));
    // The source can be a graft as well.
    lab.run(["graft", "out.a", "-o", "other.a", "--donor", "mimalloc3"]).exits(0);
    lab.run(["graft", "again.a", "-o", "same.a"]).exits(0);
    assert!(bytes("other.a") != bytes("out.a") && bytes("same.a") == bytes("out.a"));
}

#[test]
fn not_where_it_would_destroy_something() {
    let lab = Lab::new();
    lab.libc("libc.a");
    symlink("libc.a", lab.path("link.a")).unwrap();
    fs::create_dir(lab.path("folder")).unwrap();
    for out in ["libc.a", "./libc.a", "link.a", "folder", "libc.a.allograft-stock", "missing/out.a"] {
        lab.changes_nothing(2, ["graft", "libc.a", "-o", out]).says(&[out.trim_start_matches("./")]);
    }
    lab.changes_nothing(0, ["graft", "libc.a", "-o", "out.a", "--dry-run"]);
}

#[test]
fn a_folder_into_a_copy() {
    let lab = Lab::new();
    lab.libc("sdk/lib/libc.a");
    lab.put("sdk/lib/libm.a", b"!<arch>\n");
    lab.put("sdk/lib/libc.a.allograft-tmp", b"somebody's");
    lab.put("sdk/bin/cc", b"#!/bin/sh\n");
    fs::set_permissions(lab.path("sdk/bin/cc"), fs::Permissions::from_mode(0o4751)).unwrap();
    fs::hard_link(lab.path("sdk/bin/cc"), lab.path("sdk/bin/gcc")).unwrap();
    symlink("lib", lab.path("sdk/lib64")).unwrap();
    symlink("/no/such/place", lab.path("sdk/dangling")).unwrap();
    fs::create_dir(lab.path("sdk/closed")).unwrap();
    fs::set_permissions(lab.path("sdk/closed"), fs::Permissions::from_mode(0o555)).unwrap();
    let before = lab.snapshot();
    lab.changes_nothing(0, ["graft", "sdk", "-o", "out", "--dry-run"]);
    let ran = lab.run(["graft", "sdk/", "-o", "out/", "--json"]).exits(0);
    assert_eq!(ran.json()["hosts"][0]["path"], "out/lib/libc.a");
    assert_same(&without(before, "out"), &without(lab.snapshot(), "out"));
    let names = |root: &str| -> Vec<PathBuf> {
        let snapshot = lab.snapshot();
        snapshot.keys().filter_map(|path| path.strip_prefix(root).ok().map(PathBuf::from)).collect()
    };
    assert_eq!(names("sdk"), names("out"));
    for name in ["bin/cc", "lib/libm.a", "lib/libc.a", "closed", "lib", ""] {
        let of = |root: &str| fs::symlink_metadata(lab.path(root).join(name)).unwrap();
        assert_eq!(of("sdk").mode(), of("out").mode(), "{name}");
        let same_time = of("sdk").modified().unwrap() == of("out").modified().unwrap();
        assert_eq!(same_time, name != "lib/libc.a", "{name}");
    }
    let inode = |name: &str| fs::metadata(lab.path(name)).unwrap().ino();
    assert_eq!(inode("out/bin/cc"), inode("out/bin/gcc"));
    assert_ne!(inode("out/bin/cc"), inode("sdk/bin/cc"));
    assert_eq!(fs::read_link(lab.path("out/dangling")).unwrap().to_str(), Some("/no/such/place"));
    assert_eq!(fs::read_link(lab.path("out/lib64")).unwrap().to_str(), Some("lib"));
    lab.run(["graft", "sdk"]).exits(0);
    assert!(fs::read(lab.path("sdk/lib/libc.a")).unwrap() == fs::read(lab.path("out/lib/libc.a")).unwrap());
    // Backups and records are not copied.
    lab.run(["graft", "sdk", "-o", "second"]).exits(0);
    assert_eq!(names("out"), names("second"));
    lab.changes_nothing(3, ["undo", "out"]).says(&["`-o`"]);
}

#[test]
fn a_folder_only_into_an_empty_place() {
    let lab = Lab::new();
    lab.libc("sdk/lib/libc.a");
    lab.put("full/file", b"");
    lab.put("file", b"");
    for out in ["sdk", "sdk/lib", "sdk/out", "full", "file", "missing/out"] {
        lab.changes_nothing(2, ["graft", "sdk", "-o", out]).says(&["help: "]);
    }
    fs::create_dir(lab.path("empty")).unwrap();
    lab.run(["graft", "sdk", "-o", "empty"]).exits(0);
    assert!(lab.path("empty/lib/libc.a").exists());
    assert!(fs::read(lab.path("sdk/lib/libc.a")).unwrap() == debian());
    assert_eq!(fs::metadata(lab.path("sdk/lib/libc.a")).unwrap().modified().unwrap(), long_ago());
}

//! `undo`: restores stock byte for byte, or refuses with the reason.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use crate::lab::{Lab, assert_same, debian, long_ago};

#[test]
fn byte_for_byte_with_mode_and_time_and_nothing_left() {
    let lab = Lab::new();
    let libc = lab.libc("lib/libc.a");
    fs::set_permissions(&libc, Permissions::from_mode(0o640)).unwrap();
    let before = fs::metadata(&libc).unwrap();
    lab.run(["graft", "lib/libc.a"]).exits(0);
    let ran = lab.run(["undo", "lib/libc.a", "--json"]).exits(0);
    assert_eq!(ran.json()["hosts"][0]["action"], "restored");
    let after = fs::metadata(&libc).unwrap();
    assert!(fs::read(&libc).unwrap() == debian());
    assert_eq!(after.permissions(), before.permissions());
    assert_eq!(after.modified().unwrap(), long_ago());
    assert_eq!(lab.names(), ["lib", "lib/libc.a"]);
}

#[test]
fn twice_is_nothing_to_undo() {
    let lab = Lab::new();
    lab.libc("libc.a");
    assert!(lab.changes_nothing(0, ["undo", "libc.a"]).out.contains("nothing to undo"));
    lab.run(["graft", "libc.a"]).exits(0);
    lab.run(["undo", "libc.a"]).exits(0);
    let ran = lab.changes_nothing(0, ["undo", "libc.a", "--json"]);
    assert_eq!(ran.json()["hosts"][0]["action"], "nothing-to-undo");
}

/// A dry run changes nothing, and is refused where the undo would be.
#[test]
fn a_dry_run_says_what_would_come_back() {
    let lab = Lab::new();
    let stock = lab.libc("sdk/one/libc.a");
    lab.libc("sdk/two/libc.a");
    lab.run(["graft", "sdk/one/libc.a"]).exits(0);
    let ran = lab.changes_nothing(0, ["undo", "--dry-run", "sdk"]);
    let lines: Vec<&str> = ran.out.lines().collect();
    assert!(lines[0].starts_with("would restore  ") && lines[0].contains("sdk/one/libc.a  sha256 "), "{lines:?}");
    assert!(lines[1].starts_with("nothing to undo  ") && lines[1].ends_with("sdk/two/libc.a"), "{lines:?}");
    let document = lab.changes_nothing(0, ["undo", "--dry-run", "sdk", "--json"]).json();
    crate::documents::fits("undo", &document);
    assert_eq!(document["hosts"][0]["action"], "planned");
    // The backup is lost: a stock file is named, and not copied.
    fs::rename(lab.path("sdk/one/libc.a.allograft-stock"), lab.path("kept")).unwrap();
    let one = |more: &[&'static str]| [&["undo", "--dry-run", "sdk/one/libc.a"], more].concat();
    lab.changes_nothing(3, one(&[])).says(&["--stock FILE"]);
    lab.changes_nothing(3, one(&["--stock", "sdk/one/libc.a"])).says(&["is not the stock file of"]);
    let planned = lab.changes_nothing(0, one(&["--stock", "kept", "--json"])).json();
    let real = lab.run(["undo", "sdk/one/libc.a", "--stock", "kept", "--json"]).exits(0).json();
    assert_eq!(planned["hosts"][0]["sha256"], real["hosts"][0]["sha256"]);
    assert!(fs::read(stock).unwrap() == debian());
    lab.run(["undo", "--dry-run", "x", "-o", "y"]).exits(2).says(&["--dry-run"]);
}

#[test]
fn refuses_what_has_changed_since() {
    let lab = Lab::new();
    let libc = lab.libc("libc.a");
    lab.run(["graft", "libc.a"]).exits(0);
    let mut bytes = fs::read(&libc).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&libc, &bytes).unwrap();
    lab.changes_nothing(3, ["undo", "--dry-run", "libc.a"]).says(&["has changed since it was grafted"]);
    let ran = lab.changes_nothing(3, ["undo", "libc.a", "--json"]);
    let record: serde_json::Value =
        serde_json::from_slice(&fs::read(lab.path("libc.a.allograft.json")).unwrap()).unwrap();
    let expected = format!("expected {}", record["graft_sha256"].as_str().unwrap());
    ran.says(&["has changed since it was grafted", "found sha256 ", &expected, "help: ", "cp -p"]);
    // The command in the help text works.
    fs::copy(lab.path("libc.a.allograft-stock"), &libc).unwrap();
    lab.run(["undo", "libc.a"]).exits(0);
    assert_eq!(lab.names(), ["libc.a"]);
    assert!(fs::read(&libc).unwrap() == debian());
}

/// The record says which file is stock, so that it can come from anywhere.
#[test]
fn a_stock_file_that_is_named_takes_the_place_of_a_lost_backup() {
    let lab = Lab::new();
    let libc = lab.libc("sdk/libc.a");
    fs::set_permissions(&libc, Permissions::from_mode(0o640)).unwrap();
    lab.run(["graft", "sdk/libc.a"]).exits(0);
    fs::rename(lab.path("sdk/libc.a.allograft-stock"), lab.path("kept")).unwrap();
    lab.put("other", b"!<arch>\n");
    lab.changes_nothing(3, ["undo", "sdk/libc.a"]).says(&["`allograft undo --stock FILE sdk/libc.a`"]);
    lab.changes_nothing(3, ["undo", "sdk/libc.a", "--stock", "other"]).says(&["`other` is not the stock file of"]);
    lab.changes_nothing(2, ["undo", "sdk/libc.a", "--stock", "missing"]).says(&["`missing`"]);
    lab.changes_nothing(2, ["undo", "sdk", "--stock", "kept"]).says(&["is for one graft"]);
    // A backup that is there is not replaced.
    fs::copy(lab.path("other"), lab.path("sdk/libc.a.allograft-stock")).unwrap();
    lab.changes_nothing(3, ["undo", "sdk/libc.a", "--stock", "kept"]).says(&["has changed"]);
    fs::remove_file(lab.path("sdk/libc.a.allograft-stock")).unwrap();

    lab.run(["undo", "sdk/libc.a", "--stock", "kept"]).exits(0);
    assert!(fs::read(&libc).unwrap() == debian());
    let after = fs::metadata(&libc).unwrap();
    assert_eq!((after.permissions().mode() & 0o777, after.modified().unwrap()), (0o640, long_ago()));
    assert_eq!(lab.names(), ["kept", "other", "sdk", "sdk/libc.a"]);
}

#[test]
fn refuses_without_its_backup() {
    let lab = Lab::new();
    lab.libc("libc.a");
    lab.run(["graft", "libc.a"]).exits(0);
    fs::remove_file(lab.path("libc.a.allograft-stock")).unwrap();
    lab.changes_nothing(3, ["undo", "libc.a"]).says(&["`libc.a.allograft-stock` is missing", "help: "]);
    // The donor can still be replaced, with a warning.
    let ran = lab.run(["graft", "libc.a", "--donor", "mimalloc3", "--json"]).exits(0).says(&["cannot be undone"]);
    assert_eq!(ran.json()["hosts"][0]["backup"], serde_json::Value::Null);
    lab.changes_nothing(3, ["undo", "libc.a"]).says(&["is missing"]);
}

#[test]
fn refuses_a_backup_that_is_not_stock() {
    let lab = Lab::new();
    lab.libc("libc.a");
    lab.run(["graft", "libc.a"]).exits(0);
    fs::write(lab.path("libc.a.allograft-stock"), "!<arch>\n").unwrap();
    lab.changes_nothing(3, ["undo", "libc.a"]).says(&[
        "`libc.a.allograft-stock` has changed",
        "found sha256",
        "help: ",
    ]);
    lab.run(["graft", "libc.a", "--donor", "mimalloc3"]).exits(0).says(&["cannot be undone"]);
}

#[test]
fn a_lost_record_is_found_out_again_by_grafting() {
    let lab = Lab::new();
    let libc = lab.libc("libc.a");
    lab.run(["graft", "libc.a"]).exits(0);
    let before = lab.snapshot();
    for damage in [None, Some("{"), Some("{\"schema_version\": 2}")] {
        fs::remove_file(lab.path("libc.a.allograft.json")).unwrap();
        match damage {
            None => {
                lab.changes_nothing(3, ["undo", "libc.a"]).says(&["without a record", "help: "]);
            }
            Some(text) => {
                fs::write(lab.path("libc.a.allograft.json"), text).unwrap();
                lab.changes_nothing(2, ["undo", "libc.a"]).says(&["`libc.a.allograft.json` is malformed", "help: "]);
            }
        }
        let ran = lab.run(["graft", "libc.a", "--json"]).exits(0);
        assert_eq!(ran.json()["hosts"][0]["action"], "unchanged");
        let contents = |snapshot: &std::collections::BTreeMap<_, _>| {
            snapshot.keys().map(|path: &std::path::PathBuf| fs::read(lab.path(path)).ok()).collect::<Vec<_>>()
        };
        assert!(contents(&before) == contents(&lab.snapshot()));
    }
    lab.run(["undo", "libc.a"]).exits(0);
    assert!(fs::read(libc).unwrap() == debian());
}

#[test]
fn a_host_that_was_installed_anew_gets_a_new_backup() {
    let lab = Lab::new();
    let libc = lab.libc("libc.a");
    lab.run(["graft", "libc.a"]).exits(0);
    // A package manager puts another file under the name. Here it has one more member, which does not matter.
    let newer = lab.libc("newer.a");
    let object = lab.put("extra.c", b"int allograft_extra;");
    crate::lab::tool(fixtures::cc().arg("-c").arg(&object).arg("-o").arg(lab.path("extra.o")));
    crate::lab::tool(std::process::Command::new("ar").arg("r").arg(&newer).arg(lab.path("extra.o")));
    fs::rename(&newer, &libc).unwrap();
    let stock = fs::read(&libc).unwrap();
    lab.changes_nothing(3, ["undo", "libc.a"]).says(&["has changed since"]);
    lab.run(["graft", "libc.a"]).exits(0).says(&["installed anew"]);
    assert!(fs::read(lab.path("libc.a.allograft-stock")).unwrap() == stock);
    lab.run(["undo", "libc.a"]).exits(0);
    assert!(fs::read(&libc).unwrap() == stock);
}

#[test]
fn leftovers_of_a_killed_run_are_cleaned() {
    let lab = Lab::new();
    let libc = lab.libc("libc.a");
    // Tests of `hosts` make every state of the table in `hosts::place` by killing real runs. This is one of those
    // states.
    fs::hard_link(&libc, lab.path("libc.a.allograft-stock")).unwrap();
    fs::write(lab.path(".allograft-tmp-libc.a-aBcDeF.tmp"), "half a graft").unwrap();
    lab.run(["undo", "libc.a"]).exits(0);
    assert_eq!(lab.names(), ["libc.a"]);
    fs::hard_link(&libc, lab.path("libc.a.allograft-stock")).unwrap();
    fs::write(lab.path(".allograft-tmp-libc.a-aBcDeF.tmp"), "half a graft").unwrap();
    let ran = lab.run(["graft", "libc.a"]).exits(0);
    assert_eq!(ran.err, "", "a backup left by a killed run is no other hard link");
    assert_eq!(lab.names(), ["libc.a", "libc.a.allograft-stock", "libc.a.allograft.json"]);
}

#[test]
fn what_others_put_beside_the_host_stays() {
    let lab = Lab::new();
    lab.libc("libc.a");
    lab.put("libc.a.allograft-stock.mine", b"x");
    lab.put(".allograft-tmp-libm.a-aBcDeF.tmp", b"x");
    let before = lab.snapshot();
    lab.run(["graft", "libc.a"]).exits(0);
    lab.run(["undo", "libc.a"]).exits(0);
    let mut after = lab.snapshot();
    let root = std::path::Path::new("");
    after.insert(root.to_owned(), before[root].clone());
    assert_same(&before, &after);
}

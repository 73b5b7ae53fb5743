//! `verify`: the checks, the comparison with stock, and the exit codes.

use std::fs;
use std::process::Command;

use crate::dynamic::{SOURCE, glibc};
use crate::executables::program;
use crate::lab::{Lab, tool};

#[test]
fn a_graft_is_whole() {
    let lab = Lab::new();
    lab.libc("libc.a");
    for donor in ["mimalloc", "mimalloc3"] {
        lab.run(["graft", "libc.a", "--donor", donor]).exits(0);
        let document = lab.changes_nothing(0, ["verify", "libc.a", "--static-only", "--json"]).json();
        assert_eq!(document["ok"], true);
        assert_eq!(document["hosts"][0]["stock"], "libc.a.allograft-stock");
        let checks = document["checks"].as_array().unwrap();
        assert!(!checks.is_empty());
        assert!(checks.iter().all(|check| check["ok"] == true && check["name"].is_string()));
        assert!(document["not_run"].is_array());
        let differences = document["differences"].as_array().unwrap();
        let malloc = differences.iter().find(|one| one["symbol"] == "malloc").unwrap();
        assert!(malloc["before"]["member"].is_string() && malloc["after"]["weak"] == true, "{malloc}");
        assert!(differences.iter().all(|one| one["why"].is_string()));
    }
    let text = lab.run(["verify", "libc.a", "--static-only", "-v"]).exits(0).out;
    assert!(text.contains("__malloc_context: nothing, was strong, hidden"), "{text}");
}

#[test]
fn a_graft_that_lost_a_member_is_not() {
    let lab = Lab::new();
    lab.libc("libc.a");
    fs::copy(lab.path("libc.a"), lab.path("stock.a")).unwrap();
    lab.run(["graft", "libc.a", "-o", "graft.a"]).exits(0);
    lab.run(["verify", "graft.a", "--stock", "stock.a", "--static-only"]).exits(0);
    // A well-known recipe does this: it deletes wcsdup with the allocator.
    tool(Command::new("ar").args(["d", "graft.a", "wcsdup.lo"]).current_dir(lab.path("")));
    let ran = lab.run(["verify", "graft.a", "--stock", "stock.a", "--static-only", "--json"]).exits(1);
    let document = ran.json();
    assert_eq!(document["ok"], false);
    let failed: Vec<_> = document["checks"].as_array().unwrap().iter().filter(|check| check["ok"] == false).collect();
    assert!(failed.iter().any(|check| check["detail"].as_str().unwrap().contains("wcsdup")), "{failed:?}");
    let ran = lab.run(["verify", "graft.a", "--stock", "stock.a", "--static-only"]).exits(1);
    assert!(ran.out.contains("wcsdup"));
}

#[test]
fn stock_is_no_graft() {
    let lab = Lab::new();
    lab.libc("sdk/libc.a");
    lab.run(["verify", "sdk/libc.a", "--static-only"]).exits(1);
    lab.run(["verify", "sdk"]).exits(2).says(&["no graft under `sdk`", "help: "]);
    lab.run(["verify", "missing"]).exits(2);
}

#[test]
fn a_backup_that_is_not_stock_is_not_compared_with() {
    let lab = Lab::new();
    lab.libc("libc.a");
    lab.run(["graft", "libc.a"]).exits(0);
    fs::write(lab.path("libc.a.allograft-stock"), "!<arch>\n").unwrap();
    lab.run(["verify", "libc.a", "--static-only"]).exits(3).says(&["libc.a.allograft-stock", "has changed"]);
}

#[test]
fn what_was_not_run_is_said() {
    let lab = Lab::new();
    lab.libc("libc.a");
    lab.run(["graft", "libc.a"]).exits(0);
    let ran = lab.run(["verify", "libc.a", "--static-only"]).exits(0);
    assert!(ran.out.contains("not run: programs: "), "{}", ran.out);
    // The machine has no linker.
    let output = lab.command().args(["verify", "libc.a", "--json"]).env("PATH", lab.path("")).output().unwrap();
    let document = fixtures::Ran::from(output).exits(0).json();
    assert_eq!(document["ok"], true);
    assert!(document["not_run"][0]["reason"].as_str().unwrap().contains("linker"), "{document}");
}

#[test]
fn a_folder_of_grafts() {
    let lab = Lab::new();
    lab.libc("sdk/a/libc.a");
    lab.libc("sdk/b/libc.a");
    lab.libc("sdk/c/libc.a");
    lab.run(["graft", "sdk/a"]).exits(0);
    lab.run(["graft", "sdk/b"]).exits(0);
    let document = lab.run(["verify", "sdk", "--static-only", "--json"]).exits(0).json();
    let hosts = document["hosts"].as_array().unwrap();
    let paths: Vec<_> = hosts.iter().map(|host| host["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["sdk/a/libc.a", "sdk/b/libc.a"]);
    lab.run(["verify", "sdk", "--stock", "sdk/c/libc.a"]).exits(2).says(&["--stock", "help: "]);
    lab.run(["verify", "sdk/a", "--stock", "sdk/c/libc.a", "--static-only"]).exits(0);
}

/// Makes a graft of each kind, with its stock file: static, merged, and one that loads its donor.
fn grafts(lab: &Lab) -> [&'static str; 3] {
    program(lab, "static");
    glibc(lab, "merged", SOURCE, &["-lpthread"]);
    glibc(lab, "needed", SOURCE, &["-lpthread"]);
    lab.run(["emit", "--target", "x86_64-linux-gnu", "--as", "shared", "-o", "liballograft.so"]).exits(0);
    for name in ["static", "merged"] {
        lab.run(["graft", name]).exits(0);
    }
    lab.run(["graft", "needed", "--needed"]).exits(0);
    ["static", "merged", "needed"]
}

/// Where the text of the note on the allocator begins.
fn note(bytes: &[u8]) -> usize {
    let start = b"donor=snmalloc\nversion=";
    bytes.windows(start.len()).position(|window| window == start).unwrap()
}

/// Replaces the last character of a line of that note, which begins with `key`, by a tilde.
fn with_other(bytes: &mut [u8], key: &str) {
    let note = note(bytes);
    let text = String::from_utf8_lossy(&bytes[note..note + 512]).into_owned();
    let at = text.find(key).unwrap();
    let end = text[at..].find('\n').unwrap();
    bytes[note + at + end - 1] = b'~';
}

/// A note that names this allograft and a donor that is not there is no other allograft's. Such a program was once
/// called sound, with three checks that passed, and died.
#[test]
fn a_donor_that_is_not_the_notes_is_a_failure() {
    let lab = Lab::new();
    for name in grafts(&lab) {
        let whole = fs::read(lab.path(name)).unwrap();
        let note = note(&whole);
        for stock in [true, false] {
            let backup = lab.path(format!("{name}.allograft-stock"));
            if !stock {
                fs::rename(&backup, lab.path("aside")).unwrap();
            }
            let mut broken = whole.clone();
            with_other(&mut broken, "version=");
            if name != "needed" {
                // The donor's code, which follows its notes.
                broken[note + 8000..note + 12000].fill(0xcc);
            }
            let path = lab.put("broken", &broken);
            let stock: &[&str] = if stock { &["--stock", "stock"] } else { &[] };
            fs::copy(if backup.exists() { &backup } else { &path }, lab.path("stock")).unwrap();
            let arguments = [&["verify", "broken", "--json"][..], stock].concat();
            let document = lab.run(arguments).exits(1).json();
            let checks = document["checks"].as_array().unwrap();
            let donor = checks.iter().find(|check| check["name"] == "donor");
            assert!(donor.is_some_and(|donor| donor["ok"] == false), "{name}: {document:#}");
            assert!(checks.iter().all(|check| check["name"] != "self-test"), "{name}: {document:#}");
            if lab.path("aside").exists() {
                fs::rename(lab.path("aside"), &backup).unwrap();
            }
        }
    }
}

/// A graft by a different version of allograft cannot be compared here. That is a failure only with `--strict`.
#[test]
fn strict_does_not_take_what_was_not_run() {
    let lab = Lab::new();
    for name in grafts(&lab) {
        let strict = lab.run(["verify", name, "--strict", "--json"]).exits(0).json();
        assert_eq!((&strict["ok"], &strict["complete"]), (&true.into(), &true.into()), "{strict:#}");
        let last = |ran: &fixtures::Ran| ran.out.lines().last().unwrap().to_owned();
        let ran = lab.run(["verify", name, "--static-only"]).exits(0);
        assert!(last(&ran).ends_with("checks passed; not run: self-test"), "{}", ran.out);
        lab.run(["verify", name, "--static-only", "--strict"]).exits(5);
        if name == "needed" {
            // Its library names the allograft that has made it, too.
            continue;
        }
        let mut other = fs::read(lab.path(name)).unwrap();
        with_other(&mut other, "allograft=");
        with_other(&mut other, "version=");
        let note = note(&other);
        other[note + 8000..note + 12000].fill(0xcc);
        lab.put("other", &other);
        let ran = lab.run(["verify", "other"]).exits(0);
        assert!(last(&ran).ends_with("checks passed; not run: donor, bytes, self-test"), "{}", ran.out);
        let document = lab.run(["verify", "other", "--strict", "--json"]).exits(5).json();
        assert_eq!((&document["ok"], &document["complete"]), (&true.into(), &false.into()), "{document:#}");
        // A failure comes first.
        other[note] ^= 0xff;
        lab.put("other", &other);
        lab.run(["verify", "other", "--strict"]).exits(1);
    }
    let (archive, stock) = (lab.libc("libc.a"), lab.libc("stock.a"));
    lab.run(["graft", "libc.a", "-o", "graft.a"]).exits(0);
    let ran = lab.run(["verify", "graft.a", "--static-only", "--strict"]).exits(5);
    assert!(ran.out.ends_with("not run: differences, programs\n"), "{}", ran.out);
    assert!(archive.exists() && stock.exists());
    let ran = lab.run(["verify", "graft.a", "--stock", "stock.a", "--static-only", "--strict"]).exits(5);
    assert!(ran.out.ends_with("not run: programs\n"), "{}", ran.out);
}

//! `verify`: the checks, the comparison with stock, and the exit codes.

use std::fs;
use std::process::Command;

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

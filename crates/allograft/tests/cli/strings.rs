//! `--strings` and `--donor none`: grafts, replacements and removals.

use std::fs;
use std::process::Command;

use fixtures::Arch;

use crate::lab::{Lab, debian, tool, zig};

/// The ways to graft, and the record of each.
const WAYS: [(&[&str], &str, bool); 4] = [
    (&[], "snmalloc", true),
    (&["--strings", "off"], "snmalloc", false),
    (&["--donor", "none"], "none", true),
    (&["--donor", "mimalloc3", "--strings", "on"], "mimalloc3", true),
];

fn with<'w>(start: &[&'w str], way: &[&'w str]) -> Vec<&'w str> {
    [start, way].concat()
}

/// A sequence in which each option follows every other option once.
const TOUR: [usize; 13] = [0, 1, 0, 2, 0, 3, 1, 2, 1, 3, 2, 3, 0];

#[test]
fn whatever_was_grafted_before_the_result_is_that_of_grafting_stock() {
    let lab = Lab::new();
    let libc = lab.libc("libc.a");
    let direct = WAYS.map(|(way, ..)| {
        lab.run(with(&["graft", "libc.a", "-o", "direct.a"], way)).exits(0);
        let bytes = fs::read(lab.path("direct.a")).unwrap();
        fs::remove_file(lab.path("direct.a")).unwrap();
        bytes
    });
    for (step, number) in TOUR.into_iter().enumerate() {
        let (way, donor, strings) = WAYS[number];
        let document = lab.run(with(&["graft", "libc.a", "--json"], way)).exits(0).json();
        let expected = if step == 0 { "grafted" } else { "replaced" };
        assert_eq!(document["hosts"][0]["action"], expected, "{step}");
        assert!(fs::read(&libc).unwrap() == direct[number], "{step}");
        let record = fs::read(lab.path("libc.a.allograft.json")).unwrap();
        let record: serde_json::Value = serde_json::from_slice(&record).unwrap();
        assert_eq!((&record["donor"], record["strings"].is_string()), (&donor.into(), strings), "{record}");
        if step < WAYS.len() {
            lab.changes_nothing(0, with(&["graft", "libc.a"], way));
            lab.run(["verify", "libc.a", "--static-only"]).exits(0);
        }
    }
    lab.run(["undo", "libc.a"]).exits(0);
    assert!(fs::read(&libc).unwrap() == debian());
}

#[test]
fn says_what_became_of_the_string_functions() {
    let lab = Lab::new();
    lab.libc("libc.a");
    let document = lab.changes_nothing(0, ["graft", "libc.a", "--dry-run", "--json"]).json();
    let strings = &document["hosts"][0]["strings"];
    assert_eq!((&strings["action"], &strings["donor"]["name"]), (&"grafted".into(), &"strings".into()));
    // Ordinals count the members of the archive before the graft.
    let listed = Command::new("ar").arg("t").arg(lab.path("libc.a")).output().unwrap();
    let names: Vec<String> = String::from_utf8(listed.stdout).unwrap().lines().map(str::to_owned).collect();
    for list in [&document["hosts"][0]["removed"], &strings["removed"]] {
        let members = list.as_array().unwrap();
        assert!(members.len() >= 15);
        for member in members {
            let ordinal = usize::try_from(member["ordinal"].as_u64().unwrap()).unwrap();
            assert_eq!(member["name"], names[ordinal - 1].as_str());
        }
    }
    let ran = lab.run(["graft", "libc.a"]).exits(0);
    let line = "grafted  libc.a  x86_64  snmalloc 0.7.6 and strings in place of 15 malloc and 38 string members\n";
    assert!(ran.out.starts_with(line), "{}", ran.out);
    let inspected = |lab: &Lab| lab.run(["inspect", "libc.a", "--json"]).exits(0).json()["files"][0]["strings"].clone();
    assert_eq!(inspected(&lab), "grafted");
    let ran = lab.run(["graft", "libc.a", "--donor", "none", "--json"]).exits(0).json();
    assert_eq!(
        (&ran["hosts"][0]["donor"], &ran["hosts"][0]["removed"]),
        (&serde_json::Value::Null, &serde_json::json!([]))
    );
    let ran = lab.run(["graft", "libc.a", "--strings", "off", "--json"]).exits(0).json();
    assert_eq!(ran["hosts"][0]["strings"]["action"], "off");
    assert_eq!(inspected(&lab), "stock");
}

#[test]
fn taking_one_out_again_needs_the_stock_file() {
    let lab = Lab::new();
    lab.libc("libc.a");
    lab.run(["graft", "libc.a", "-o", "moved.a"]).exits(0);
    lab.changes_nothing(3, ["graft", "moved.a", "--strings", "off"]).says(&["string functions", "stock", "help: "]);
    lab.changes_nothing(3, ["graft", "moved.a", "--donor", "none"]).says(&["malloc", "stock", "help: "]);
    // A graft that only adds or replaces does not need it.
    lab.run(["graft", "moved.a", "--donor", "mimalloc3"]).exits(0);
    lab.run(["graft", "libc.a", "-o", "direct.a", "--donor", "mimalloc3"]).exits(0);
    assert!(fs::read(lab.path("moved.a")).unwrap() == fs::read(lab.path("direct.a")).unwrap());
}

#[test]
fn nothing_to_graft_is_wrong_usage() {
    let lab = Lab::new();
    lab.libc("libc.a");
    lab.changes_nothing(2, ["graft", "libc.a", "--donor", "none", "--strings", "off"]).says(&["allograft undo"]);
    lab.changes_nothing(2, ["graft", "libc.a", "--donor", "none", "--set", "purge_delay=0"]).says(&["purge_delay"]);
    lab.changes_nothing(2, ["graft", "libc.a", "--strings", "maybe"]).says(&["maybe"]);
}

#[test]
fn an_allocator_is_grafted_where_the_string_functions_cannot_be() {
    let lab = Lab::new();
    lab.libc("libc.a");
    // This memset does more than musl's.
    let source = "void *memset(void *p, int c, unsigned long n) { return p; } void erase(void) {}";
    let path = lab.put("memset.c", source.as_bytes());
    tool(fixtures::cc().args(["-c", "-O1", "-fno-builtin", "-o"]).arg(lab.path("memset.lo")).arg(path));
    tool(Command::new("ar").args(["r", "libc.a", "memset.lo"]).current_dir(lab.path("")));
    lab.changes_nothing(3, ["graft", "libc.a", "--donor", "none"]).says(&["`erase`, which would be lost", "help: "]);
    let ran = lab.run(["graft", "libc.a", "--json"]).exits(0).says(&["keeps its own string functions", "`erase`"]);
    let host = &ran.json()["hosts"][0];
    assert_eq!((&host["action"], &host["strings"]["action"]), (&"grafted".into(), &"refused".into()));
    assert!(host["strings"]["reason"].as_str().unwrap().contains("`erase`"), "{host}");
    lab.run(["verify", "libc.a", "--static-only"]).exits(0);
    lab.changes_nothing(0, ["graft", "libc.a"]);
    lab.run(["undo", "libc.a"]).exits(0);
}

/// Returns the names of the checks that fail in `verify`.
fn failed(lab: &Lab) -> Vec<String> {
    let document = lab.run(["verify", "graft.a", "--stock", "libc.a", "--static-only", "--json"]).exits(1).json();
    let checks = document["checks"].as_array().unwrap().iter().filter(|check| check["ok"] == false);
    checks.map(|check| check["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
#[ignore = "zig-musls: takes zig's musl for riscv64"]
fn an_architecture_without_string_functions_gets_the_allocator() {
    let lab = Lab::new();
    let stock = zig(Arch::Riscv64);
    let libc = lab.put("libc.a", &stock);
    lab.changes_nothing(3, ["graft", "libc.a", "--donor", "none"]).says(&["riscv64", "x86_64, aarch64", "help: "]);
    let ran = lab.run(["graft", "libc.a", "--json"]).exits(0).says(&["keeps its own string functions", "riscv64"]);
    let document = ran.json();
    let host = &document["hosts"][0];
    assert_eq!((&host["arch"], &host["donor"]["name"]), (&"riscv64".into(), &"snmalloc".into()));
    assert_eq!((&host["strings"]["action"], &host["strings"]["donor"]), (&"refused".into(), &serde_json::Value::Null));
    assert!(host["strings"]["reason"].as_str().unwrap().contains("riscv64"), "{host}");
    lab.run(["verify", "libc.a", "--static-only"]).exits(0);
    let file = &lab.run(["inspect", "libc.a", "--json"]).exits(0).json()["files"][0];
    assert_eq!((&file["arch"], &file["malloc"]["name"]), (&"riscv64".into(), &"snmalloc".into()));
    // Without a request for them, there is no warning.
    assert_eq!(lab.run(["graft", "libc.a", "--strings", "off"]).exits(0).err, "");
    lab.changes_nothing(0, ["graft", "libc.a"]);
    lab.run(["undo", "libc.a"]).exits(0);
    assert!(fs::read(&libc).unwrap() == stock);
}

#[test]
fn verify_finds_out_what_is_wrong_with_the_string_functions() {
    let lab = Lab::new();
    lab.libc("libc.a");
    lab.run(["graft", "libc.a", "-o", "graft.a", "--donor", "none"]).exits(0);
    let good = fs::read(lab.path("graft.a")).unwrap();
    let ar = |arguments: &[&str]| tool(Command::new("ar").args(arguments).current_dir(lab.path("")));
    lab.run(["verify", "graft.a", "--stock", "libc.a", "--static-only"]).exits(0);
    // One of musl's own members is back, as after an `ar` by hand.
    ar(&["x", "libc.a", "memcpy.lo"]);
    ar(&["q", "graft.a", "memcpy.lo"]);
    assert!(failed(&lab).contains(&"strings-one-provider".to_owned()));
    // The donor is gone, and the functions that the rest of libc calls are gone with it.
    fs::write(lab.path("graft.a"), &good).unwrap();
    ar(&["d", "graft.a", "allograft_str.o"]);
    assert_eq!(failed(&lab), ["note"]);
    // One byte of it has changed: padding in its ELF header.
    let mut bytes = good.clone();
    let at = bytes.windows(16).position(|window| window == b"allograft_str.o/").unwrap() + 60;
    bytes[at + 15] ^= 1;
    fs::write(lab.path("graft.a"), bytes).unwrap();
    assert_eq!(failed(&lab), ["strings-checksum", "strings-donor"]);
    // Its note has another type.
    let mut bytes = good;
    let at = bytes.windows(10).position(|window| window == b"allograft\0").unwrap();
    bytes[at - 4] ^= 1;
    fs::write(lab.path("graft.a"), bytes).unwrap();
    assert_eq!(failed(&lab), ["strings-note"]);
}

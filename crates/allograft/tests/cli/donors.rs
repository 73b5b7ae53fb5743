//! `donors`: the catalogue.

use crate::lab::Lab;

#[test]
fn allocators_for_every_architecture() {
    let lab = Lab::new();
    let document = lab.run(["donors", "--json"]).exits(0).json();
    let listed = document["donors"].as_array().unwrap();
    for name in ["mimalloc", "mimalloc3"] {
        let donor = listed.iter().find(|donor| donor["name"] == name).unwrap();
        assert_eq!(donor["arches"], serde_json::json!(format::Arch::ALL), "{donor}");
        assert!(donor["version"].as_str().unwrap().starts_with(|c: char| c.is_ascii_digit()), "{donor}");
        assert_eq!(donor["license"], "MIT");
        assert_eq!(donor["default"], name == "mimalloc");
        for option in donor["options"].as_array().unwrap() {
            let number = |field: &str| option[field].as_i64().unwrap();
            assert!(number("min") <= number("default") && number("default") <= number("max"), "{option}");
        }
        let profiles: Vec<&str> =
            donor["profiles"].as_array().unwrap().iter().map(|profile| profile["name"].as_str().unwrap()).collect();
        assert_eq!(profiles, ["default", "small"], "{donor}");
        assert_eq!(donor["profiles"][1]["options"]["purge_delay"], 0, "{donor}");
    }
}

#[test]
fn a_table_to_read() {
    let lab = Lab::new();
    let out = lab.run(["donors"]).exits(0).out;
    for part in [
        "mimalloc (default)",
        "mimalloc3",
        "x86_64",
        "aarch64",
        "riscv64",
        "i686",
        "arm",
        "MIT",
        "secure",
        "purge_delay=0",
    ] {
        assert!(out.contains(part), "{part} in {out}");
    }
    assert!(out.lines().all(|line| line == line.trim_end()));
}

//! `donors`: the catalogue.

use std::fs;

use format::Arch;

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
        let default_for: &[&str] = if name == "mimalloc" { &["i686", "arm"] } else { &[] };
        assert_eq!(donor["default_for"], serde_json::json!(default_for));
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
fn each_architecture_has_its_default() {
    for arch in fixtures::DEBIAN {
        let stock = fs::read(fixtures::debian_musl(arch).libc).unwrap();
        let lab = Lab::new();
        lab.put("libc.a", &stock);
        let document = lab.run(["graft", "libc.a", "--dry-run", "--json"]).exits(0).json();
        let has_32_bits = matches!(arch, Arch::I686 | Arch::Arm);
        let expected = if has_32_bits { "mimalloc" } else { "snmalloc" };
        assert_eq!(document["hosts"][0]["donor"]["name"], expected, "{arch}");
        // A donor that the user names is never exchanged for a different one.
        let named = lab.run(["graft", "libc.a", "--donor", "snmalloc", "--dry-run"]);
        if has_32_bits {
            named.exits(3).says(&["snmalloc", arch.name()]);
        } else {
            named.exits(0);
        }
    }
}

/// The table fits on a screen, and says when to take what.
#[test]
fn a_table_to_read() {
    let lab = Lab::new();
    let narrow = |words: &[&str]| {
        let ran = lab.command().args(words).env("COLUMNS", "80").output().unwrap();
        fixtures::Ran::from(ran).exits(0).out
    };
    let out = narrow(&["donors"]);
    for part in [
        "snmalloc (default)",
        "mimalloc (default for",
        "i686, arm)",
        "mimalloc3",
        "hardened-light",
        "`allograft donors NAME`",
    ] {
        assert!(out.contains(part), "{part} in {out}");
    }
    assert!(out.lines().count() <= 40, "{} lines", out.lines().count());
    assert!(out.lines().all(|line| line == line.trim_end() && line.chars().count() <= 80), "{out}");
}

#[test]
fn a_donor_with_its_options() {
    let lab = Lab::new();
    let document = lab.run(["donors", "--json"]).exits(0).json();
    for donor in document["donors"].as_array().unwrap() {
        let name = donor["name"].as_str().unwrap();
        let out = lab.run(["donors", name]).exits(0).out;
        for field in ["version", "license", "character"] {
            assert!(out.contains(donor[field].as_str().unwrap()), "{name}: {field} in {out}");
        }
        for option in donor["options"].as_array().unwrap() {
            let text = |field: &str| option[field].as_str().unwrap_or_default().to_owned();
            let value = format!("  {}={} ", text("name"), option["default"]);
            let range = format!("{} to {} {}", option["min"], option["max"], text("unit"));
            let mut lines = out.lines().skip_while(|line| !line.starts_with(&value));
            let (first, second) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
            assert!(first.ends_with(range.trim_end()) && second.trim() == text("about"), "{option} in {out}");
        }
        let one = lab.run(["donors", name, "--json"]).exits(0).json();
        assert_eq!(one["donors"].as_array().unwrap().as_slice(), std::slice::from_ref(donor));
    }
    lab.run(["donors", "snmaloc"]).exits(2).says(&["snmalloc"]);
}

/// A program that carries a donor has to pass its licence on.
#[test]
fn every_donor_has_the_text_of_its_licence() {
    let lab = Lab::new();
    let document = lab.run(["donors", "--licenses", "--json"]).exits(0).json();
    let out = lab.run(["donors", "--licenses"]).exits(0).out;
    for donor in document["donors"].as_array().unwrap() {
        let text = donor["license_text"].as_str().unwrap();
        // A sentence from each licence of the SPDX expression.
        let words = [
            ("Apache-2.0", "Version 2.0, January 2004"),
            ("BSD-2-Clause", "Redistribution and use in source and binary forms"),
            ("Unlicense", "This is free and unencumbered software"),
            ("MIT", "Permission is hereby granted, free of charge"),
        ];
        let license = donor["license"].as_str().unwrap();
        let (_, words) = words.into_iter().find(|(name, _)| license.contains(name)).unwrap();
        assert!(text.contains(words) || text.contains("The MIT License"), "{}: {text}", donor["name"]);
        assert!(out.contains(&format!("{} {}", donor["name"].as_str().unwrap(), donor["version"].as_str().unwrap())));
        assert!(text.lines().all(|line| out.contains(line)), "{}", donor["name"]);
    }
    let without = lab.run(["donors", "--json"]).exits(0).json();
    assert!(without["donors"][0].get("license_text").is_none());
}

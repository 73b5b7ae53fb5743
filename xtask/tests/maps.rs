//! The pages that map the code must name existing files and crates, and the right uses of each crate.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

use toml::Table;
use tools::workspace::root;

/// The pages with paths from the root of the checkout in backticks.
const MAPS: [&str; 8] = [
    "docs/architecture.md",
    "docs/build-systems.md",
    "docs/toolchains/windows.md",
    "CONTRIBUTING.md",
    "docs/contributing/donor.md",
    "docs/contributing/evidence.md",
    "docs/contributing/host.md",
    "docs/contributing/toolchain.md",
];

fn page(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn manifest(folder: &str) -> Table {
    page(&format!("{folder}/Cargo.toml")).parse().unwrap_or_else(|error| panic!("{folder}: {error}"))
}

/// Returns the folders of the workspace's members, by the names of the crates in sources.
fn members() -> BTreeMap<String, String> {
    let folders = manifest(".")["workspace"]["members"].as_array().unwrap().clone();
    let named = folders.iter().map(|folder| {
        let folder = folder.as_str().unwrap().to_owned();
        let manifest = manifest(&folder);
        let name = manifest["package"]["name"].as_str().unwrap();
        (name.strip_prefix("allograft-").unwrap_or(name).to_owned(), folder)
    });
    named.collect()
}

/// Returns the texts in backticks outside code blocks. Blocks with fences of four contain blocks, each with two fences.
fn quoted(text: &str) -> Vec<&str> {
    let prose = text.split("\n```").step_by(2);
    prose.flat_map(|part| part.split('`').skip(1).step_by(2)).collect()
}

#[test]
fn every_file_on_a_map_is_there() {
    let rooms: BTreeSet<String> =
        fs::read_dir(root()).unwrap().map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    for map in MAPS {
        let text = page(map).replace("````", "```");
        let mut found = 0;
        for path in quoted(&text) {
            let first = path.split('/').next().unwrap_or_default();
            // Build results may exist or not.
            let is_source = rooms.contains(first) && first != "target";
            let is_path = path.contains('/') && is_source && !path.contains([' ', '*', '<']);
            // A file that the reader writes does not exist yet.
            if is_path && !text.contains(&format!("<!-- file: {path} -->")) {
                assert!(root().join(path).exists(), "{map} names `{path}`, which is not there");
                found += 1;
            }
        }
        assert!(found > 0, "{map} names no file");
    }
}

#[test]
fn the_architecture_page_says_what_each_crate_uses() {
    let text = page("docs/architecture.md");
    let crates = text.split("\n## Crates\n").nth(1).expect("a section on crates").split("\n## ").next().unwrap();
    let mut above: BTreeSet<String> = BTreeSet::new();
    let members = members();
    for row in crates.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<Vec<&str>> = row.split('|').skip(1).map(quoted).collect();
        let (name, folder) = (cells[0][0].to_owned(), cells[1][0]);
        assert_eq!(members.get(&name).map(String::as_str), Some(folder), "the folder of `{name}`");
        let manifest = manifest(folder);
        let dependencies = manifest.get("dependencies").and_then(|it| it.as_table()).cloned().unwrap_or_default();
        let ours: Vec<&str> = dependencies.keys().map(String::as_str).filter(|it| members.contains_key(*it)).collect();
        let said: BTreeSet<&str> = cells[2].iter().copied().collect();
        assert_eq!(said, ours.iter().copied().collect(), "what `{name}` uses");
        for used in ours {
            assert!(above.contains(used), "`{name}` uses `{used}`, which stands below it");
        }
        above.insert(name);
    }
    assert_eq!(above, members.into_keys().collect(), "every crate of the workspace has a row");
}

#[test]
fn the_contributors_page_knows_every_folder_of_a_crate() {
    let contributing = page("CONTRIBUTING.md");
    for (name, folder) in members() {
        // On the page, `tests/fixtures` is part of `tests`.
        let room = if folder.starts_with("tests/") { "tests" } else { folder.as_str() };
        assert!(contributing.contains(&format!("| `{room}` |")), "CONTRIBUTING.md lacks `{room}` of `{name}`");
    }
}

/// The slow tier builds the result of the patches; this test shows early that a page no longer fits the code.
#[test]
fn every_patch_on_a_page_applies() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["docs/contributing/evidence.md", "docs/contributing/host.md"] {
        let text = page(name);
        let (_, block) = text.split_once("\n```diff\n").unwrap_or_else(|| panic!("{name} has no patch"));
        let (patch, _) = block.split_once("\n```\n").expect("the end of the block");
        let file = folder.path().join("patch");
        fs::write(&file, format!("{patch}\n")).unwrap();
        let mut command = Command::new("patch");
        // Exactly: a patch that fits between different lines may be wrong there.
        command.args(["--dry-run", "--force", "--fuzz=0", "-p1", "-d"]).arg(root()).arg("-i").arg(&file);
        let Ok(output) = command.output() else {
            eprintln!("skipped: there is no `patch` here");
            return;
        };
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stdout));
    }
}

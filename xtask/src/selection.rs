//! The tests to run, from the arguments of `cargo xtask test`.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use serde::Deserialize;
use tools::command;
use tools::groups::Group;

/// Options of `cargo test` whose value is the next word.
const WITH_VALUE: [&str; 16] = [
    "-p",
    "--package",
    "--exclude",
    "--test",
    "--bin",
    "--example",
    "--bench",
    "-F",
    "--features",
    "-j",
    "--jobs",
    "--profile",
    "--target",
    "--target-dir",
    "--config",
    "-Z",
];

/// The prefix of published packages' names, which users leave out.
const PREFIX: &str = "allograft-";

/// The arguments to build the tests and to run them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Selection {
    /// The arguments of `cargo test`.
    pub(crate) build: Vec<String>,
    /// Variables of the build.
    pub(crate) environment: Vec<(String, String)>,
    /// The beginning of the tests' names, of a room of the casebook.
    pub(crate) room: Option<String>,
    /// The group of slow tests.
    pub(crate) group: Option<String>,
    /// Parts of names; a test has one of them.
    pub(crate) filters: Vec<String>,
    /// Parts of names that a test must not have.
    pub(crate) skipped: Vec<String>,
    /// The other arguments of the test programs.
    pub(crate) flags: Vec<String>,
    /// The needs of the selected programs, in the words of the table of tools.
    pub(crate) needs: BTreeSet<String>,
    /// Whether the whole tier is selected.
    pub(crate) is_whole: bool,
}

/// A package of the workspace, from `cargo metadata`.
#[derive(Debug, Deserialize)]
struct Package {
    name: String,
    targets: Vec<Target>,
    #[serde(default)]
    dependencies: Vec<Dependency>,
}

#[derive(Debug, Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Dependency {
    name: String,
}

#[derive(Debug, Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

impl Package {
    fn short_name(&self) -> &str {
        self.name.strip_prefix(PREFIX).unwrap_or(&self.name)
    }

    fn tests(&self) -> impl Iterator<Item = &str> {
        self.targets.iter().filter(|target| target.kind.iter().any(|kind| kind == "test")).map(|it| it.name.as_str())
    }
}

impl Selection {
    /// Parses `NAME [FILTER]..` or cargo's own arguments. NAME is a package of the workspace, one of its test programs,
    /// or the first part of the names of tests in `casebook`; then only that is built. Or it is a group of slow tests,
    /// of any package. Without such a NAME, the whole workspace is built.
    ///
    /// # Errors
    /// When cargo cannot list the packages.
    pub(crate) fn parse(arguments: &[String]) -> Result<Selection> {
        let metadata = ["metadata", "--no-deps", "--format-version", "1", "--locked", "--offline"];
        let said = command::output(&mut command::cargo(&metadata))?;
        let metadata: Metadata = serde_json::from_str(&said).context("`cargo metadata` printed no list of packages")?;
        Ok(Selection::among(&metadata.packages, arguments))
    }

    fn among(packages: &[Package], arguments: &[String]) -> Selection {
        let mut selection = Selection::default();
        let mut words = arguments.iter();
        let mut named = None;
        while let Some(word) = words.next() {
            if word == "--" {
                break;
            }
            if word.starts_with('-') {
                selection.build.push(word.clone());
                let value = if WITH_VALUE.contains(&word.as_str()) { words.next().cloned() } else { None };
                if matches!(word.split('=').next(), Some("-p" | "--package")) {
                    let name = value.as_deref().or(word.split_once('=').map(|(_, name)| name)).unwrap_or_default();
                    named = Some(Named { package: name.to_owned(), test: None });
                }
                selection.build.extend(value);
                continue;
            }
            let is_first = named.is_none() && selection.group.is_none() && selection.filters.is_empty();
            match Named::find(packages, word).filter(|_| is_first) {
                Some(found) => {
                    selection.build.extend(found.arguments());
                    // A room of the casebook is a part of its program.
                    let is_room = found.test.as_deref() == Some(CASEBOOK) && word != CASEBOOK;
                    selection.room = is_room.then(|| format!("{word}/"));
                    named = Some(found);
                }
                None if is_first && Group::find(word).is_some() => selection.group = Some(word.clone()),
                None => selection.filters.push(word.clone()),
            }
        }
        if named.is_none() {
            selection.build.insert(0, "--workspace".to_owned());
        }
        while let Some(word) = words.next() {
            match word.as_str() {
                "--skip" => selection.skipped.extend(words.next().cloned()),
                flag if flag.starts_with('-') => selection.flags.push(word.clone()),
                _ => selection.filters.push(word.clone()),
            }
        }
        let is_filtered = !selection.filters.is_empty() || !selection.skipped.is_empty();
        selection.is_whole = named.is_none() && selection.group.is_none() && !is_filtered && selection.build.len() == 1;
        selection.needs = needs(packages, named.as_ref());
        selection
    }
}

impl Selection {
    /// Takes the name of a group as a part of tests' names: the default tier has no groups.
    pub(crate) fn without_group(&mut self) {
        self.filters.extend(self.group.take());
    }

    /// Whether a slow test of that group is selected.
    pub(crate) fn has_group(&self, group: Option<&str>) -> bool {
        self.group.as_deref().is_none_or(|wanted| group == Some(wanted))
    }

    /// Whether a test of that name is selected.
    pub(crate) fn has(&self, test: &str) -> bool {
        let has = |part: &String| test.contains(part.as_str());
        self.room.as_ref().is_none_or(|room| test.starts_with(room.as_str()))
            && (self.filters.is_empty() || self.filters.iter().any(has))
            && !self.skipped.iter().any(has)
    }

    /// The required parts of a test's name, as the end of a message; empty if any name will do.
    pub(crate) fn wanted(&self) -> String {
        match self.filters.join("` or `") {
            filters if filters.is_empty() => String::new(),
            filters => format!(": no test of what is selected has `{filters}` in its name"),
        }
    }
}

/// The package with the program of all cases, and that program.
const CASEBOOK: &str = "casebook";

/// The rooms of the casebook: the first parts of its tests' names.
const ROOMS: [&str; 14] = [
    "cases",
    "compatibility",
    "conformance",
    "executables",
    "foreign_executables",
    "loaders",
    "merged",
    "heap",
    "statistics",
    "corpus",
    "carried",
    "strings",
    "starts",
    "system_calls",
];

/// A package, or one of its test programs.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Named {
    package: String,
    test: Option<String>,
}

impl Named {
    fn find(packages: &[Package], name: &str) -> Option<Named> {
        let package = |package: &Package| package.name.clone();
        let is_room = ROOMS.contains(&name);
        if let Some(found) = packages.iter().find(|package| package.short_name() == name && !is_room) {
            return Some(Named { package: package(found), test: None });
        }
        let test = if is_room { CASEBOOK } else { name };
        let found = packages.iter().find(|package| package.tests().any(|of| of == test))?;
        Some(Named { package: package(found), test: Some(test.to_owned()) })
    }

    /// Returns the arguments with which cargo builds it.
    fn arguments(&self) -> Vec<String> {
        let mut words = vec!["--package".to_owned(), self.package.clone()];
        words.extend(self.test.iter().flat_map(|test| ["--test".to_owned(), test.clone()]));
        words
    }
}

/// Returns the crates of the workspace that a selection depends on, and its test programs.
fn needs(packages: &[Package], named: Option<&Named>) -> BTreeSet<String> {
    let by_name: BTreeMap<&str, &Package> = packages.iter().map(|package| (package.name.as_str(), package)).collect();
    let is_chosen =
        |package: &&Package| named.is_none_or(|it| package.name == it.package || package.short_name() == it.package);
    let chosen: Vec<&Package> = packages.iter().filter(is_chosen).collect();
    let mut needs = BTreeSet::new();
    let mut due: Vec<&Package> = chosen.clone();
    while let Some(package) = due.pop() {
        if needs.insert(package.short_name().to_owned()) {
            due.extend(package.dependencies.iter().filter_map(|of| by_name.get(of.name.as_str())));
        }
    }
    for package in chosen {
        let test = named.and_then(|named| named.test.as_deref());
        let tests = package.tests().filter(|name| test.is_none_or(|test| test == *name));
        needs.extend(tests.map(|name| format!("{} {name}", package.short_name())));
    }
    needs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packages() -> [Package; 3] {
        let target = |name: &str, kind: &str| Target { name: name.to_owned(), kind: vec![kind.to_owned()] };
        let package = |name: &str, targets, dependencies: &[&str]| Package {
            name: name.into(),
            targets,
            dependencies: dependencies.iter().map(|name| Dependency { name: (*name).to_owned() }).collect(),
        };
        [
            package("allograft-hosts", vec![target("hosts", "lib"), target("api", "test")], &["serde"]),
            package("allograft", vec![target("allograft", "bin"), target("cli", "test")], &["allograft-hosts"]),
            package("casebook", vec![target("casebook", "test")], &["allograft-hosts"]),
        ]
    }

    fn selected(line: &str) -> Selection {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Selection::among(&packages(), &words)
    }

    fn words(line: &str) -> [String; 3] {
        let Selection { build, room, filters, flags, .. } = selected(line);
        [build.join(" "), room.into_iter().chain(filters).collect::<Vec<_>>().join(" "), flags.join(" ")]
    }

    #[test]
    fn a_name_is_a_package_or_one_of_its_test_programs() {
        assert_eq!(words(""), ["--workspace", "", ""]);
        assert_eq!(words("hosts"), ["--package allograft-hosts", "", ""]);
        assert_eq!(words("cli"), ["--package allograft --test cli", "", ""]);
        assert_eq!(words("cases late"), ["--package casebook --test casebook", "cases/ late", ""]);
        assert_eq!(words("hosts undo -- --nocapture"), ["--package allograft-hosts", "undo", "--nocapture"]);
        assert_eq!(words("--release hosts"), ["--release --package allograft-hosts", "", ""]);
        // Any other name is a filter for all packages.
        assert_eq!(words("undo"), ["--workspace", "undo", ""]);
        // Cargo's own arguments.
        assert_eq!(words("--test cli -- --skip a b"), ["--workspace --test cli", "b", ""]);
        assert_eq!(words("-p hosts api"), ["-p hosts", "api", ""]);
        // A group of slow tests, and parts of their names. A program's or a room's name comes first.
        assert_eq!(
            (words("system php"), selected("system php").group),
            (["--workspace", "php", ""].map(Into::into), Some("system".into()))
        );
        assert_eq!(
            (words("cli system"), selected("cli system").group),
            (["--package allograft --test cli", "system", ""].map(Into::into), None)
        );
        let system = selected("system");
        assert!(system.has_group(Some("system")) && !system.has_group(Some("minutes")) && !system.has_group(None));
        assert!(selected("undo").has_group(None) && !system.is_whole);
        let mut quick = selected("system");
        quick.without_group();
        assert_eq!((quick.group, quick.filters), (None, vec!["system".to_owned()]));
        assert_eq!(
            [selected("").is_whole, selected("hosts").is_whole, selected("undo").is_whole],
            [true, false, false]
        );
    }

    #[test]
    fn a_test_is_in_its_room_and_has_a_part() {
        let cases = selected("cases late early -- --skip jemalloc");
        let has = |name| cases.has(name);
        assert!(has("cases/late/snmalloc") && has("cases/early/snmalloc"));
        assert_eq!([has("merged/late/x"), has("cases/other"), has("cases/late/jemalloc")], [false; 3]);
        assert!(selected("").has("anything"));
    }

    #[test]
    fn a_selection_needs_what_its_programs_need() {
        let needs = |line: &str| selected(line).needs.into_iter().collect::<Vec<_>>().join(", ");
        assert_eq!(needs("hosts"), "hosts, hosts api");
        assert_eq!(needs("cli"), "allograft, allograft cli, hosts");
        assert_eq!(needs("-p hosts"), "hosts, hosts api");
        assert_eq!(needs(""), "allograft, allograft cli, casebook, casebook casebook, hosts, hosts api");
    }
}

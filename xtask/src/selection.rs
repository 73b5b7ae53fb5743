//! The tests to run, from the arguments of `cargo xtask test`.

use anyhow::{Context, Result};
use serde::Deserialize;
use xtask::command;

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

/// What the names of published packages begin with; nobody types that.
const PREFIX: &str = "allograft-";

/// The arguments to build the tests and to run them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Selection {
    /// The arguments of `cargo test`.
    pub(crate) build: Vec<String>,
    /// The arguments of the test programs: filters, then those after `--`.
    pub(crate) programs: Vec<String>,
}

/// A package of the workspace, from `cargo metadata`.
#[derive(Debug, Deserialize)]
struct Package {
    name: String,
    targets: Vec<Target>,
}

#[derive(Debug, Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

impl Selection {
    /// Parses `NAME [FILTER]..` or cargo's own arguments. NAME is a package of the workspace or one of its test
    /// programs; then only that is built. Without a NAME, the whole workspace is built.
    ///
    /// # Errors
    /// When cargo cannot list the packages.
    pub(crate) fn of(arguments: &[String]) -> Result<Selection> {
        let metadata = ["metadata", "--no-deps", "--format-version", "1", "--locked", "--offline"];
        let said = command::output(&mut command::cargo(&metadata))?;
        let metadata: Metadata = serde_json::from_str(&said).context("`cargo metadata` printed no list of packages")?;
        Ok(Selection::among(&metadata.packages, arguments))
    }

    fn among(packages: &[Package], arguments: &[String]) -> Selection {
        let mut selection = Selection::default();
        let mut words = arguments.iter();
        let (mut named, mut filters) = (false, Vec::new());
        while let Some(word) = words.next() {
            if word == "--" {
                break;
            }
            if word.starts_with('-') {
                selection.build.push(word.clone());
                if WITH_VALUE.contains(&word.as_str()) {
                    selection.build.extend(words.next().cloned());
                }
                named |= matches!(word.split('=').next(), Some("-p" | "--package"));
                continue;
            }
            match named_by(packages, word).filter(|_| !named && filters.is_empty()) {
                Some(found) => {
                    selection.build.extend(found);
                    named = true;
                }
                None => filters.push(word.clone()),
            }
        }
        if !named {
            selection.build.insert(0, "--workspace".to_owned());
        }
        selection.programs = filters.into_iter().chain(words.cloned()).collect();
        selection
    }
}

/// Returns the arguments with which cargo builds the package or test program of that name.
fn named_by(packages: &[Package], name: &str) -> Option<Vec<String>> {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let is_package = |package: &&Package| package.name.strip_prefix(PREFIX).unwrap_or(&package.name) == name;
    if let Some(package) = packages.iter().find(is_package) {
        return Some(words(&["--package", &package.name]));
    }
    let is_test = |target: &Target| target.name == name && target.kind.iter().any(|kind| kind == "test");
    let package = packages.iter().find(|package| package.targets.iter().any(is_test))?;
    Some(words(&["--package", &package.name, "--test", name]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> (String, String) {
        let target = |name: &str, kind: &str| Target { name: name.to_owned(), kind: vec![kind.to_owned()] };
        let packages = [
            Package { name: "allograft-hosts".into(), targets: vec![target("hosts", "lib"), target("api", "test")] },
            Package { name: "allograft".into(), targets: vec![target("allograft", "bin"), target("cli", "test")] },
        ];
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let Selection { build, programs } = Selection::among(&packages, &words);
        (build.join(" "), programs.join(" "))
    }

    #[test]
    fn a_name_is_a_package_or_one_of_its_test_programs() {
        let told = |build: &str, programs: &str| (build.to_owned(), programs.to_owned());
        assert_eq!(of(""), told("--workspace", ""));
        assert_eq!(of("hosts"), told("--package allograft-hosts", ""));
        assert_eq!(of("cli"), told("--package allograft --test cli", ""));
        assert_eq!(of("hosts undo -- --nocapture"), told("--package allograft-hosts", "undo --nocapture"));
        assert_eq!(of("--release hosts"), told("--release --package allograft-hosts", ""));
        // A name that is none of these is a filter for all.
        assert_eq!(of("undo"), told("--workspace", "undo"));
        // Arguments of cargo's.
        assert_eq!(of("--test cli -- --skip a"), told("--workspace --test cli", "--skip a"));
        assert_eq!(of("-p hosts api"), told("-p hosts", "api"));
    }
}

//! Builds test programs, and lists their tests.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;
use tools::{command, workspace};

use crate::selection::Selection;

/// A test program.
#[derive(Debug)]
pub(crate) struct Program {
    /// Its name in messages and in the budget: `surgery lib`, `allograft cli`.
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    /// Its package's folder, in which tests run.
    pub(crate) folder: PathBuf,
    /// The selected tests.
    pub(crate) tests: Vec<Test>,
    /// Whether it has our own harness, which reads the names of tests from a file (`fixtures::trials`). Rust's harness
    /// takes them as arguments.
    pub(crate) is_ours: bool,
}

/// A test of a program.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Test {
    pub(crate) name: String,
    /// The group that a slow test names itself: the first word of its reason to be ignored, or its kind.
    pub(crate) group: Option<String>,
}

/// Builds the test programs of `selection`, and lists their tests; with `slow`, only those marked `#[ignore]`. Programs
/// without a selected test are left out.
///
/// # Errors
/// When one does not build, or does not list its tests.
pub(crate) fn build(selection: &Selection, slow: bool) -> Result<Vec<Program>> {
    let mut cargo = command::cargo(&["test", "--locked", "--no-run", "--message-format", "json-render-diagnostics"]);
    cargo.args(&selection.build).envs(selection.environment.iter().cloned()).stderr(Stdio::inherit());
    let mut programs = Vec::new();
    for line in command::output(&mut cargo)?.lines() {
        let message: Value = serde_json::from_str(line).context("cargo's report is not JSON")?;
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let is_test = message["reason"] == "compiler-artifact" && message["profile"]["test"] == true;
        if let (true, Some(path)) = (is_test, text(&message["executable"])) {
            let manifest = text(&message["manifest_path"]).context("cargo names no manifest")?;
            let folder = Path::new(&manifest).parent().context("a manifest has a folder")?.to_owned();
            let package = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let target = text(&message["target"]["name"]).context("cargo names no target")?;
            let name = match text(&message["target"]["kind"][0]).as_deref() {
                Some("test") if target != package => format!("{package} {target}"),
                Some("test") => format!("{package} tests"),
                Some("bin") if target != package => format!("{package} {target}, unit tests"),
                _ => format!("{package} unit tests"),
            };
            let mut program = Program { name, path: path.into(), folder, tests: Vec::new(), is_ours: false };
            program.list(slow)?;
            program.tests.retain(|test| selection.has(&test.name));
            if slow {
                program.ask_groups()?;
                program.tests.retain(|test| selection.has_group(test.group.as_deref()));
            }
            if !program.tests.is_empty() {
                programs.push(program);
            }
        }
    }
    Ok(programs)
}

impl Program {
    /// Returns a command that runs it as cargo would.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder).stdin(Stdio::null());
        command
    }

    /// Writes the names of tests to `file`, and returns the arguments and the environment with which exactly these run.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(crate) fn selecting(&self, command: &mut Command, tests: &[Test], file: &Path) -> Result<()> {
        let names: Vec<&str> = tests.iter().map(|test| test.name.as_str()).collect();
        if self.is_ours {
            fs::write(file, names.join("\n")).with_context(|| format!("cannot write `{}`", file.display()))?;
            command.env(fixtures::trials::NAMES, file);
        } else {
            command.arg("--exact").args(names);
        }
        Ok(())
    }

    fn list(&mut self, slow: bool) -> Result<()> {
        let ignored = command::output(self.command().args(["--list", "--ignored"]))?;
        // Rust's harness ends its list with the numbers of tests and benchmarks.
        self.is_ours = !ignored.lines().any(|line| line.ends_with(" benchmarks"));
        self.tests = ignored.lines().filter_map(listed).collect();
        if !slow {
            // Those marked `#[ignore]` are listed with the others.
            let ignored: HashSet<Test> = self.tests.drain(..).collect();
            let all = command::output(self.command().arg("--list"))?;
            self.tests = all.lines().filter_map(listed).filter(|test| !ignored.contains(test)).collect();
        }
        Ok(())
    }

    /// Gets the reasons why tests are ignored from programs with Rust's harness: they print them when asked to run
    /// these tests without `--ignored`.
    fn ask_groups(&mut self) -> Result<()> {
        if self.is_ours || self.tests.is_empty() {
            return self.check_groups();
        }
        let names = self.tests.iter().map(|test| &test.name);
        let said = command::output(self.command().args(["--test-threads", "1", "--exact"]).args(names))?;
        for line in said.lines() {
            let Some((name, reason)) = line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... ignored, "))
            else {
                continue;
            };
            let group = reason.split([':', ' ']).next().map(str::to_owned);
            self.tests.iter_mut().filter(|test| test.name == name).for_each(|test| test.group.clone_from(&group));
        }
        self.check_groups()
    }

    fn check_groups(&self) -> Result<()> {
        for test in &self.tests {
            let group = test.group.as_deref().unwrap_or_default();
            if !tools::groups::GROUPS.iter().any(|known| known.name == group) {
                bail!(
                    "`{}` of {} names no group: `#[ignore = \"GROUP: why\"]`, with a group of crates tools, groups.rs",
                    test.name,
                    self.name
                );
            }
        }
        Ok(())
    }
}

/// Returns the test of a line of `--list`: `NAME: test`, or `[GROUP] NAME: test`.
fn listed(line: &str) -> Option<Test> {
    let line = line.strip_suffix(": test")?;
    let grouped = line.strip_prefix('[').and_then(|rest| rest.split_once("] "));
    let (group, name) = grouped.map_or((None, line), |(group, name)| (Some(group.to_owned()), name));
    Some(Test { name: name.to_owned(), group })
}

/// Returns the folder of the tests' outputs and times.
///
/// # Errors
/// When it cannot be made.
pub(crate) fn folder() -> Result<PathBuf> {
    let folder = workspace::build().join("tests");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make `{}`", folder.display()))?;
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_names_its_group() {
        let test = |name: &str, group: Option<&str>| Some(Test { name: name.into(), group: group.map(str::to_owned) });
        assert_eq!(listed("bench::a_case: test"), test("bench::a_case", None));
        assert_eq!(listed("[aarch64] cases/plain/snmalloc: test"), test("cases/plain/snmalloc", Some("aarch64")));
        assert_eq!(listed("3 tests, 0 benchmarks"), None);
    }
}

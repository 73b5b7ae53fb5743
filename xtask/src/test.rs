//! The tiers of tests, and CI's steps.

use std::collections::BTreeSet;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use tools::groups::{Group, PARTS};
use tools::{command, table};

use crate::part::Part;
use crate::programs::{self, Program};
use crate::selection::Selection;
use crate::{conformance, demo, policy, runner, upstream};

/// The number of slow tests that a run names at its end, by default.
const SLOWEST: usize = 5;

/// The options of `test` and `test-slow`.
#[derive(Debug, Default, PartialEq, Eq)]
struct TestOptions {
    /// The number of slow tests to name.
    slowest: Option<usize>,
    /// Has clippy compile the workspace.
    lint: bool,
    /// Writes the budget's figures anew.
    write_budget: bool,
    /// The part of the slow tests.
    part: Option<u64>,
    /// The other arguments.
    rest: Vec<String>,
}

impl TestOptions {
    fn parse(arguments: &[String]) -> Result<TestOptions> {
        let mut asked = TestOptions::default();
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            let mut number = || words.next().and_then(|text| text.parse().ok());
            match word.as_str() {
                "--slowest" => asked.slowest = Some(number().context("`--slowest` takes a number")? as usize),
                "--part" => {
                    let part = number().filter(|part| *part < PARTS);
                    asked.part = Some(part.with_context(|| format!("`--part` takes a number below {PARTS}"))?);
                }
                "--lint" => asked.lint = true,
                "--write-budget" => asked.write_budget = true,
                _ => {
                    asked.rest.push(word.clone());
                    asked.rest.extend(words.by_ref().cloned());
                }
            }
        }
        Ok(asked)
    }
}

/// `cargo xtask test [--slowest N] [--lint] [NAME [FILTER]..]`: runs every test that is not marked `#[ignore]`, in
/// every package, or in one package or test program. Arguments of `cargo test` are accepted too.
pub(crate) fn fast(arguments: &[String]) -> Result<()> {
    let asked = TestOptions::parse(arguments)?;
    ensure!(asked.part.is_none(), "`--part` is for `test-slow`");
    let mut selection = Selection::parse(&asked.rest)?;
    selection.without_group();
    table::prepare(&selection.needs)?;
    if asked.lint {
        selection.environment = policy::clippy();
    }
    let programs = built(&selection, false)?;
    let times = runner::run(&programs, &selection, false)?;
    println!("{}", times.slowest(asked.slowest.unwrap_or(SLOWEST)));
    match (selection.is_whole, asked.write_budget) {
        (true, true) => times.write_figures(),
        (true, false) => times.check(&programs),
        (false, _) => Ok(()),
    }
}

/// `cargo xtask test-slow [--slowest N] [--part N] [NAME [FILTER]..]`: runs the tests marked `#[ignore]`, all or one
/// part of ten. When all have passed, prints the table of donors by situation: the last lines of a failed run are the
/// reasons.
pub(crate) fn slow(arguments: &[String]) -> Result<()> {
    let asked = TestOptions::parse(arguments)?;
    let mut selection = Selection::parse(&asked.rest)?;
    if asked.lint {
        selection.environment = policy::clippy();
    }
    table::prepare(&selection.needs)?;
    let mut programs = built(&selection, true)?;
    if let Some(number) = asked.part {
        let part = Part::new(number)?;
        programs = part.select(programs);
        println!("{}", part.described(&programs));
    }
    let groups: BTreeSet<&str> = tests(&programs).filter_map(|test| test.group.as_deref()).collect();
    table::prepare(&groups.iter().map(|group| (*group).to_owned()).collect())?;
    // The tests do not depend on the architectures of the build.
    let architectures = arches(&groups);
    if !architectures.is_empty() {
        selection.environment.extend(architectures);
        built(&selection, true)?;
    }
    conformance::forget()?;
    let times = runner::run(&programs, &selection, true)?;
    conformance::print();
    println!("{}", times.slowest(asked.slowest.unwrap_or(SLOWEST)));
    Ok(())
}

/// Returns the variable with the architectures that the tests of these groups need beside this machine's. Empty if the
/// variable is set already.
fn arches(groups: &BTreeSet<&str>) -> Vec<(String, String)> {
    let needed = groups.iter().filter_map(|name| Group::find(name)).flat_map(|group| group.arches);
    let names: BTreeSet<&str> = needed.map(|arch| arch.name()).collect();
    if names.is_empty() || std::env::var_os(zigcc::arches::ARCHES).is_some() {
        return Vec::new();
    }
    vec![(zigcc::arches::ARCHES.to_owned(), names.into_iter().collect::<Vec<_>>().join(","))]
}

fn tests(programs: &[Program]) -> impl Iterator<Item = &programs::Test> {
    programs.iter().flat_map(|program| &program.tests)
}

fn built(selection: &Selection, slow: bool) -> Result<Vec<Program>> {
    let began = Instant::now();
    let programs = programs::build(selection, slow)?;
    println!("built in {:.0} s", began.elapsed().as_secs_f64());
    Ok(programs)
}

/// `cargo xtask ci [--tested]`.
pub(crate) fn ci(arguments: &[String]) -> Result<()> {
    let tested = match arguments {
        [] => false,
        [flag] if flag == "--tested" => true,
        _ => bail!("`ci` takes `--tested` or nothing"),
    };
    step("fmt", || command::run(&mut command::cargo(&["fmt", "--all", "--check"])))?;
    if !tested {
        step("test", || fast(&["--lint".to_owned()]))?;
    }
    step("oldest Rust", policy::oldest_rust)?;
    step("dependencies", policy::dependencies)?;
    upstream::warn();
    step("doc", || {
        let mut doc = command::cargo(&["doc", "--workspace", "--no-deps", "--locked", "--quiet"]);
        command::run(doc.env("RUSTDOCFLAGS", "-D warnings"))
    })?;
    // With the compiler of `--lint`, whose results are reused.
    step("demo", || demo::quick(&policy::clippy()))?;
    let part = Part::of_head()?;
    // A minute for each target of the part.
    step("fuzz", || crate::fuzz(&["--part".to_owned(), part.to_string()]))?;
    step("test-slow", || slow(&["--lint".to_owned(), "--part".to_owned(), part.to_string()]))
}

fn step(name: &str, run: impl FnOnce() -> Result<()>) -> Result<()> {
    eprintln!("ci: {name} ...");
    let started = Instant::now();
    run().with_context(|| format!("ci: {name} failed"))?;
    eprintln!("ci: {name}: {:.0} s", started.elapsed().as_secs_f64());
    Ok(())
}

/// `cargo xtask setup [NAME..]`: fetches the tools of these names; lists all tools without a name.
pub(crate) fn setup(arguments: &[String]) -> Result<()> {
    match arguments {
        [] => {
            table::prepare(&Selection::parse(&[])?.needs)?;
            println!("setup: the default tests have what they need. `cargo xtask setup NAME` fetches one of:\n");
            print!("{}", table::shown());
            Ok(())
        }
        names => table::prepare_named(&names.iter().map(String::as_str).collect::<Vec<_>>()),
    }
}

/// `cargo xtask part`: prints the variable with the architectures that CI builds for this commit's part of the slow
/// tests, so that nothing is built twice.
pub(crate) fn part(arguments: &[String]) -> Result<()> {
    ensure!(arguments.is_empty(), "`part` takes no arguments");
    let part = Part::of_head()?;
    let groups = tools::groups::GROUPS.iter().filter(|group| group.parts.contains(&part));
    for (name, value) in arches(&groups.map(|group| group.name).collect()) {
        println!("{name}={value}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_comes_before_the_tests() {
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let asked = TestOptions::parse(&words("--slowest 20 --lint cli bench -- --skip a")).unwrap();
        assert_eq!((asked.slowest, asked.lint, asked.rest), (Some(20), true, words("cli bench -- --skip a")));
        assert_eq!(TestOptions::parse(&words("--part 3")).unwrap().part, Some(3));
        for wrong in ["--part 10", "--part x", "--slowest"] {
            assert!(TestOptions::parse(&words(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_slow_groups_name_the_architectures_to_build() {
        assert_eq!(arches(&["minutes", "corpus"].into()), []);
        let foreign = arches(&["aarch64"].into());
        assert!(foreign.is_empty() || foreign[0].1.contains("aarch64"), "{foreign:?}");
    }
}

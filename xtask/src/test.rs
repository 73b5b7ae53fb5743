//! The tiers of tests, and what CI runs.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use xtask::{command, corpus, rust, setup, toolchains};

use crate::{conformance, demo};

/// `cargo xtask test`: every test that is not marked `#[ignore]`, in every package.
pub(crate) fn fast(arguments: &[String]) -> Result<()> {
    setup::prepare(setup::Extent::Everything)?;
    run_tests(command::cargo(&["test", "--workspace", "--locked"]).args(arguments))
}

/// `cargo xtask test-slow`: the tests marked `#[ignore]`, optimised, since they repeat things thousands of times; then the table
/// of donors by situation.
pub(crate) fn slow(arguments: &[String]) -> Result<()> {
    setup::prepare(setup::Extent::Everything)?;
    corpus::prepare()?;
    // A compiler and gigabytes, which whoever names the tests to run has not asked for.
    let wanted = |names: &[&str]| arguments.is_empty() || arguments.iter().any(|given| names.contains(&given.as_str()));
    let mut left_out = Vec::new();
    if wanted(&["cargo", "pages", "snippets"]) {
        match fixtures::rust_musl_unavailable() {
            None => rust::prepare()?,
            Some(reason) => {
                eprintln!(
                    "test-slow: WARNING: left out `cargo allograft` ({RUST_MUSL}) and the pages that take Rust for musl: {reason}"
                );
                left_out = vec!["--skip", RUST_MUSL];
            }
        }
    }
    if wanted(&["toolchains", "snippets"]) {
        // Those tests say themselves that they are skipped.
        toolchains::prepare()?;
    }
    conformance::forget()?;
    let mut cargo = command::cargo(&["test", "--workspace", "--locked", "--release"]);
    cargo.args(arguments);
    // The caller's own `--` may be there already.
    if !arguments.iter().any(|argument| argument == "--") {
        cargo.arg("--");
    }
    let outcome = run_tests(cargo.arg("--ignored").args(left_out));
    conformance::print();
    outcome
}

/// What the names of tests begin with that take the Rust toolchain with musl targets.
const RUST_MUSL: &str = "rust_musl::";

/// What the closing lines of every test program add up to: cargo prints one for each and no sum.
#[derive(Debug, Default, PartialEq, Eq)]
struct Totals {
    passed: u64,
    failed: u64,
    skipped: u64,
}

impl Totals {
    /// Adds `line` if it is a closing line: `test result: ok. 3 passed; 0 failed; 1 ignored; ...`.
    fn add(&mut self, line: &str) {
        let Some(counts) = line.strip_prefix("test result: ").and_then(|rest| rest.split_once(". ")) else { return };
        for count in counts.1.split("; ") {
            match count.split_once(' ').map(|(number, what)| (number.parse().unwrap_or(0), what)) {
                Some((number, "passed")) => self.passed += number,
                Some((number, "failed")) => self.failed += number,
                Some((number, "ignored")) => self.skipped += number,
                _ => {}
            }
        }
    }
}

fn run_tests(cargo: &mut Command) -> Result<()> {
    let mut child = cargo.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("cannot start cargo")?;
    let mut totals = Totals::default();
    let pipe = child.stdout.take().context("cargo has no stdout")?;
    for line in BufReader::new(pipe).split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        println!("{line}");
        totals.add(&line);
    }
    let status = child.wait()?;
    if totals != Totals::default() {
        println!("{} passed, {} failed, {} skipped", totals.passed, totals.failed, totals.skipped);
    }
    if !status.success() {
        bail!("the tests ended with {status}");
    }
    Ok(())
}

/// `cargo xtask ci`.
pub(crate) fn ci(arguments: &[String]) -> Result<()> {
    let tested = match arguments {
        [] => false,
        [flag] if flag == "--tested" => true,
        _ => bail!("`ci` takes `--tested` or nothing"),
    };
    let quick = ["--quick".to_owned()];
    step("fmt", || command::run(&mut command::cargo(&["fmt", "--all", "--check"])))?;
    // Build scripts run under clippy too, and need zig.
    step("setup", || setup::prepare(setup::Extent::Everything))?;
    step("clippy", || {
        let arguments = ["clippy", "--workspace", "--all-targets", "--locked", "--quiet", "--", "-D", "warnings"];
        command::run(&mut command::cargo(&arguments))
    })?;
    if !tested {
        step("test", || fast(&[]))?;
    }
    step("test-slow", || slow(&within_ci()))?;
    step("demo", || demo::run(&quick))
}

/// CI has an hour and a half. What runs for minutes with each donor (programs at their full length, and beyond) is left to
/// whoever calls `cargo xtask test-slow`, and so are large pages, position-independent programs of foreign architectures, the
/// programs on stock musl, thread storms of the other packages, whole toolchains, and a build of wasmtime; the shortened runs of the same programs
/// on every graft are enough to see that nothing broke.
fn within_ci() -> Vec<String> {
    let tests = ["conformance", "cases", "carried", "corpus", "strings", "cargo"];
    let left_out = [
        "/100%",
        "/ALLOGRAFT_",
        "k-pages",
        "wasmtime_compiles_a_module",
        "debian-aarch64/lld/static-pie",
        "debian-i686/lld/static-pie",
        "debian-arm/lld/static-pie",
    ];
    let tests = tests.into_iter().flat_map(|name| ["--test", name]).chain(["--"]);
    tests.chain(left_out.into_iter().flat_map(|name| ["--skip", name])).map(str::to_owned).collect()
}

fn step(name: &str, run: impl FnOnce() -> Result<()>) -> Result<()> {
    eprintln!("ci: {name} ...");
    let started = Instant::now();
    run().with_context(|| format!("ci: {name} failed"))?;
    eprintln!("ci: {name}: {:.0} s", started.elapsed().as_secs_f64());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name that fits nothing would leave nothing out.
    #[test]
    fn what_is_left_out_is_there() {
        let folder = xtask::workspace::root().join("crates/allograft/tests/cargo");
        let module = folder.join(RUST_MUSL.trim_end_matches(':')).join("mod.rs");
        assert!(module.is_file(), "{}", module.display());
    }

    #[test]
    fn closing_lines_add_up() {
        let mut totals = Totals::default();
        totals.add("test result: ok. 12 passed; 0 failed; 2 ignored; 0 measured; 3 filtered out; finished in 0.04s");
        totals.add("test result: FAILED. 1 passed; 4 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.1s");
        totals.add("test says.test result: ok. 100 passed");
        assert_eq!(totals, Totals { passed: 13, failed: 4, skipped: 2 });
    }
}

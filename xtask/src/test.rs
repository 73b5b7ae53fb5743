//! The tiers of tests, and what CI runs.

use std::time::Instant;

use anyhow::{Context, Result, bail};
use fixtures::wheels::FOR_MUSL;

use xtask::{command, corpus, musls, projects, rust, schema, setup, system, toolchains, wheels, windows};

use crate::selection::Selection;
use crate::{conformance, demo, policy, programs};

/// `cargo xtask test [NAME [FILTER]..]`: runs every test that is not marked `#[ignore]`, in every package, or in one
/// package or test program. Arguments of `cargo test` are accepted too.
pub(crate) fn fast(arguments: &[String]) -> Result<()> {
    setup::prepare(setup::Extent::Everything)?;
    programs::run(&Selection::of(arguments)?)
}

/// `cargo xtask test-slow`: runs the tests marked `#[ignore]`, from the same build; then prints the table of donors by
/// situation.
pub(crate) fn slow(arguments: &[String]) -> Result<()> {
    setup::prepare(setup::Extent::Everything)?;
    corpus::prepare()?;
    // What follows is gigabytes of downloads, which a run of other, named tests does not need.
    let wanted = |names: &[&str]| arguments.is_empty() || arguments.iter().any(|given| names.contains(&given.as_str()));
    if wanted(&["cli"]) {
        schema::prepare()?;
    }
    if wanted(&["cli"]) && !arguments.iter().any(|given| given == SYSTEM) {
        // Without it, the test reports itself that it is skipped.
        system::prepare()?;
        wheels::install(&FOR_MUSL)?;
    }
    let mut left_out = Vec::new();
    if wanted(&["projects"]) {
        projects::prepare_crates()?;
    }
    if wanted(&["pages", "projects"]) {
        toolchains::prepare_bazel()?;
    }
    if wanted(&["cargo", "pages", "projects", "snippets"]) {
        match fixtures::rust_musl_unavailable() {
            None => rust::prepare()?,
            Some(reason) => {
                eprintln!(
                    "test-slow: WARNING: left out `cargo allograft` ({RUST_MUSL}) and the pages that take \
                     Rust for musl: {reason}"
                );
                left_out = vec!["--skip", RUST_MUSL];
            }
        }
    }
    if wanted(&["toolchains", "snippets"]) {
        // Without the compilers, those tests report themselves that they are skipped.
        toolchains::prepare()?;
    }
    if wanted(&["loaders"]) {
        musls::prepare()?;
    }
    if wanted(&["windows"]) {
        windows::prepare()?;
    }
    conformance::forget()?;
    let mut selection = Selection::of(arguments)?;
    selection.programs.push("--ignored".to_owned());
    selection.programs.extend(left_out.into_iter().map(str::to_owned));
    let outcome = programs::run(&selection);
    conformance::print();
    outcome
}

/// The prefix of tests that need a Debian with many programs.
const SYSTEM: &str = "system::";

/// The prefix of tests that need the Rust toolchain with musl targets.
const RUST_MUSL: &str = "rust_musl::";

/// `cargo xtask ci`.
pub(crate) fn ci(arguments: &[String]) -> Result<()> {
    let tested = match arguments {
        [] => false,
        [flag] if flag == "--tested" => true,
        _ => bail!("`ci` takes `--tested` or nothing"),
    };
    let quick = ["--quick".to_owned()];
    step("fmt", || command::run(&mut command::cargo(&["fmt", "--all", "--check"])))?;
    // Clippy runs build scripts too, and these need zig.
    step("setup", || setup::prepare(setup::Extent::Everything))?;
    step("clippy", || {
        let arguments = ["clippy", "--workspace", "--all-targets", "--locked", "--quiet", "--", "-D", "warnings"];
        command::run(&mut command::cargo(&arguments))
    })?;
    step("oldest Rust", policy::oldest_rust)?;
    step("dependencies", policy::dependencies)?;
    if !tested {
        step("test", || fast(&[]))?;
    }
    step("doc", || {
        let mut doc = command::cargo(&["doc", "--workspace", "--no-deps", "--locked", "--quiet"]);
        command::run(doc.env("RUSTDOCFLAGS", "-D warnings"))
    })?;
    step("test-slow", || slow(&within_ci()))?;
    step("demo", || demo::run(&quick))
}

/// Returns the arguments that keep the slow tier within CI's time: 40 minutes on two processors. It leaves out tests
/// that run for minutes with each donor (programs at their full length or more), pages of 16 KiB, position-independent
/// programs of foreign architectures, thread storms of the other packages, whole toolchains, a whole Debian, a build of
/// wasmtime, and verdicts of `profile` that other tests on the machine upset.
/// These remain in `cargo xtask test-slow`. Of the four ways to link for this machine, two are enough here, since the
/// default tier's cases use all four.
fn within_ci() -> Vec<String> {
    let tests = ["conformance", "programs", "cases", "carried", "corpus", "strings", "cargo", "cli"];
    let left_out = [
        "/100%",
        "/ALLOGRAFT_",
        "16k-pages",
        "debian-x86_64/ld/static-pie/",
        "debian-x86_64/lld/static/",
        "wasmtime_compiles_a_module",
        "a_program_packed_by_upx",
        "debian-aarch64/lld/static-pie",
        "debian-i686/lld/static-pie",
        "debian-arm/lld/static-pie",
        "bottlenecks::",
        SYSTEM,
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

    /// A skipped name that matches no test would leave nothing out.
    #[test]
    fn what_is_left_out_is_there() {
        let folder = xtask::workspace::root().join("crates/allograft/tests/cargo");
        let module = folder.join(RUST_MUSL.trim_end_matches(':')).join("mod.rs");
        assert!(module.is_file(), "{}", module.display());
    }
}

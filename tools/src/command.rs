//! Runs other programs. Errors name the program and the reason.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::workspace;

/// Returns the cargo that runs this program, in the checkout's root.
pub fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(workspace::root());
    command
}

/// Returns git, in the checkout's root.
pub fn git(arguments: &[&str]) -> Command {
    let mut command = Command::new("git");
    command.args(arguments).current_dir(workspace::root());
    command
}

/// Runs `command` with this program's output streams and no input.
///
/// # Errors
/// When it cannot be started, or does not end with exit code 0.
pub fn run(command: &mut Command) -> Result<()> {
    let status = command.stdin(Stdio::null()).status().with_context(|| format!("cannot start {}", shown(command)))?;
    if !status.success() {
        bail!("{} ended with {status}", shown(command));
    }
    Ok(())
}

/// Runs `command` and returns its stdout.
///
/// # Errors
/// When it cannot be started, or does not end with exit code 0; the message contains its stderr.
pub fn output(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot start {}", shown(command)))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!("{} ended with {}\n{}", shown(command), output.status, stderr.trim_end());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Builds allograft with optimisations. Returns the path of the program in cargo's target folder.
///
/// # Errors
/// When it does not build.
pub fn build_allograft() -> Result<PathBuf> {
    build_allograft_with(&[])
}

/// Returns the path of an allograft that the user named; without one, builds it with optimisations.
///
/// # Errors
/// When there is no such program, or it does not build.
pub fn given_or_built(program: Option<&Path>) -> Result<PathBuf> {
    match program {
        Some(program) => program.canonicalize().with_context(|| format!("no `{}`", program.display())),
        None => build_allograft(),
    }
}

/// Builds cargo's subcommand with these variables in cargo's environment.
///
/// # Errors
/// When it does not build.
pub fn build_cargo_allograft_with(environment: &[(&str, &OsStr)]) -> Result<PathBuf> {
    build("cargo-allograft", environment)
}

/// Builds cargo's subcommand.
///
/// # Errors
/// When it does not build.
pub fn build_cargo_allograft() -> Result<PathBuf> {
    build_cargo_allograft_with(&[])
}

/// Builds the program with these variables in cargo's environment.
///
/// # Errors
/// When it does not build.
pub fn build_allograft_with(environment: &[(&str, &OsStr)]) -> Result<PathBuf> {
    build("allograft", environment)
}

/// Builds allograft like the tests, with these variables in cargo's environment: its own code is not optimised, the
/// donors are.
///
/// # Errors
/// When it does not build.
pub fn build_for_tests(environment: &[(String, String)]) -> Result<PathBuf> {
    build_for_tests_in(&workspace::root(), environment)
}

/// Builds like [`build_for_tests`], the checkout in `tree`.
///
/// # Errors
/// When it does not build.
pub fn build_for_tests_in(tree: &Path, environment: &[(String, String)]) -> Result<PathBuf> {
    let mut cargo = cargo(&["build"]);
    cargo.current_dir(tree).envs(environment.iter().cloned());
    built(cargo, "allograft")
}

fn build(program: &str, environment: &[(&str, &OsStr)]) -> Result<PathBuf> {
    let mut cargo = cargo(&["build", "--release"]);
    cargo.envs(environment.iter().copied());
    built(cargo, program)
}

fn built(mut cargo: Command, program: &str) -> Result<PathBuf> {
    cargo.args(["--locked", "--package", "allograft", "--bin", program]);
    cargo.args(["--quiet", "--message-format", "json-render-diagnostics"]).stderr(Stdio::inherit());
    for line in output(&mut cargo)?.lines() {
        let message: serde_json::Value = serde_json::from_str(line).context("cargo's report is not JSON")?;
        if message["reason"] == "compiler-artifact"
            && message["target"]["name"] == program
            && let Some(program) = message["executable"].as_str()
        {
            return Ok(PathBuf::from(program));
        }
    }
    bail!("cargo built {program} and named no program")
}

/// Removes the environment variables that this program's own cargo has set: a different cargo must not see them.
pub fn apart(command: &mut Command) {
    std::env::vars_os().filter(|(name, _)| is_own(&name.to_string_lossy())).for_each(|(name, _)| {
        command.env_remove(name);
    });
}

/// Whether a variable is cargo's or rustc's own. The variables of rustup stay: without `RUSTUP_TOOLCHAIN`, a build
/// script that runs rustup's `rustc` in the folder of a dependency obeys the `rust-toolchain.toml` there, and rustup
/// then changes the user's toolchain, in several processes at once.
fn is_own(variable: &str) -> bool {
    (variable.starts_with("CARGO") && variable != "CARGO_HOME")
        || (variable.starts_with("RUST") && !variable.starts_with("RUSTUP_"))
}

/// Returns the path of `name` on the command path.
pub fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|program| program.is_file())
}

fn shown(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy().into_owned()];
    words.extend(command.get_args().take(4).map(|word| word.to_string_lossy().into_owned()));
    if command.get_args().len() > 4 {
        words.push("...".to_owned());
    }
    format!("`{}`", words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_cargo_keeps_the_toolchain_that_rustup_chose() {
        let own = ["CARGO", "CARGO_MANIFEST_DIR", "CARGO_TARGET_DIR", "RUSTC", "RUSTFLAGS", "RUST_BACKTRACE"];
        assert_eq!(own.map(is_own), [true; 6]);
        let others = ["CARGO_HOME", "RUSTUP_TOOLCHAIN", "RUSTUP_HOME", "RUSTUP_AUTO_INSTALL", "PATH"];
        assert_eq!(others.map(is_own), [false; 5]);
    }
}

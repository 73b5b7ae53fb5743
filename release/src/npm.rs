//! Packages for npm: one for each architecture with the programs, and one with a launcher, whose optional dependencies
//! they are. npm installs the one that fits the machine.

use anyhow::{Context, Result, bail};
use format::Arch;
use serde_json::{Map, Value, json};

use crate::payload::{File, Payload};
use crate::tarball::{self, Options};
use crate::{LICENSE, SUMMARY, gzip};

const LAUNCHER: &str = include_str!("../npm/launcher.js");

/// Returns `allograft-VERSION.tgz`, the package with the launcher for the programs of all `payloads`.
///
/// # Errors
/// When there is no payload, or npm does not know an architecture.
pub(crate) fn launcher(payloads: &[Payload]) -> Result<File> {
    let payload = payloads.first().context("there is nothing to pack")?;
    let mut files: Vec<File> = payload.licenses.iter().chain([&payload.readme]).cloned().collect();
    files.push(File::new("launcher.js", LAUNCHER));
    let (mut commands, mut dependencies) = (Map::new(), Map::new());
    for File { path: name, .. } in &payload.programs {
        let path = format!("bin/{name}.js");
        let script = format!("#!/usr/bin/env node\nrequire(\"../launcher.js\")(\"{name}\");\n");
        files.push(File { path: path.clone(), executable: true, bytes: script.into() });
        commands.insert(name.clone(), path.into());
    }
    for payload in payloads {
        dependencies.insert(package(payload.arch)?, payload.version.clone().into());
    }
    let manifest = json!({
        "name": "allograft",
        "version": payload.version,
        "description": SUMMARY,
        "license": LICENSE,
        "bin": commands,
        "os": ["linux"],
        "engines": { "node": ">=16" },
        "optionalDependencies": dependencies,
    });
    pack(payload, files, &manifest)
}

/// Returns `allograft-linux-CPU-VERSION.tgz`, the package with the programs of one architecture.
///
/// # Errors
/// When npm does not know the architecture.
pub(crate) fn programs(payload: &Payload) -> Result<File> {
    let mut files = payload.licenses.clone();
    files.extend(payload.programs.iter().map(|program| program.with_path(format!("bin/{}", program.path))));
    let manifest = json!({
        "name": package(payload.arch)?,
        "version": payload.version,
        "description": format!("The programs of allograft for Linux on {}", payload.arch),
        "license": LICENSE,
        "os": ["linux"],
        "cpu": [cpu(payload.arch)?],
        // A package manager that does not unpack packages cannot run programs in them.
        "preferUnplugged": true,
    });
    pack(payload, files, &manifest)
}

/// Returns the name of the package with the programs of an architecture.
fn package(arch: Arch) -> Result<String> {
    Ok(format!("allograft-linux-{}", cpu(arch)?))
}

/// Returns node's name of an architecture.
fn cpu(arch: Arch) -> Result<&'static str> {
    match arch {
        Arch::X86_64 => Ok("x64"),
        Arch::Aarch64 => Ok("arm64"),
        other => bail!("node's name of {other} is not known here"),
    }
}

/// Returns a package with `manifest` as its package.json. All files are below `package/`, which npm requires.
fn pack(payload: &Payload, mut files: Vec<File>, manifest: &Value) -> Result<File> {
    files.push(File::new("package.json", serde_json::to_string_pretty(manifest)? + "\n"));
    let form = Options { prefix: "package/", ..Options::default() };
    let archive = tarball::pack(&files, payload.time, form)?;
    let name = manifest["name"].as_str().context("a package without a name")?;
    Ok(File::new(format!("{name}-{}.tgz", payload.version), gzip::compress(&archive)?))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use super::*;
    use crate::sample;

    fn npm(folder: &std::path::Path) -> Command {
        let mut npm = Command::new("npm");
        npm.current_dir(folder).args(["--offline", "--cache", "cache", "--loglevel", "error"]);
        npm
    }

    #[test]
    fn npm_installs_the_packages_that_fit() {
        if sample::skipped("npm") {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let other = if sample::HERE == "x86_64" { Arch::Aarch64 } else { Arch::X86_64 };
        let payloads = [sample::payload(), Payload { arch: other, ..sample::payload() }];
        for file in [launcher(&payloads).unwrap(), programs(&payloads[0]).unwrap()] {
            fs::write(folder.path().join(&file.path), file.bytes).unwrap();
        }
        fs::write(folder.path().join("package.json"), "{}").unwrap();
        let cpu = cpu(payloads[0].arch).unwrap();
        let files = ["./allograft-1.2.3.tgz".to_owned(), format!("./allograft-linux-{cpu}-1.2.3.tgz")];
        for file in &files {
            let listed = sample::output(Command::new("tar").arg("-tzf").arg(folder.path().join(file)));
            assert!(listed.lines().all(|path| path.starts_with("package/")), "{listed}");
        }
        let listed = sample::output(npm(folder.path()).args(["pack", "--dry-run", "--json"]).args(&files));
        let listed: Value = serde_json::from_str(&listed).unwrap();
        assert_eq!(listed[0]["files"].as_array().unwrap().len(), 8, "{listed}");
        sample::output(npm(folder.path()).arg("install").args(&files));
        for name in ["allograft", "cargo-allograft"] {
            let said = sample::output(npm(folder.path()).args(["exec", "--", name, "--flag", "a b"]));
            assert_eq!(said, format!("{name} --flag a b\n"));
        }
    }

    #[test]
    fn the_launcher_ends_as_the_program_does() {
        if sample::skipped("node") {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let mut payload = sample::payload();
        let script = "#!/bin/sh\ncase $1 in code) exit 3;; kill) kill -TERM $$;; esac\n";
        payload.programs[0].bytes = script.into();
        let home = folder.path().join("node_modules");
        let files = [launcher(&[payload.clone()]).unwrap(), programs(&payload).unwrap()];
        for (file, name) in files.iter().zip(["allograft".to_owned(), package(payload.arch).unwrap()]) {
            let (packed, place) = (folder.path().join(&file.path), home.join(name));
            fs::write(&packed, &file.bytes).unwrap();
            fs::create_dir_all(&place).unwrap();
            sample::output(Command::new("tar").args(["--strip-components=1", "-xzf"]).arg(packed).arg("-C").arg(place));
        }
        let start =
            |word: &str| Command::new("node").arg(home.join("allograft/bin/allograft.js")).arg(word).output().unwrap();
        assert_eq!(start("code").status.code(), Some(3));
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&start("kill").status), Some(15));
        fs::remove_dir_all(home.join(package(payload.arch).unwrap())).unwrap();
        let missing = start("code");
        assert_eq!(missing.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&missing.stderr).contains("help: "), "{missing:?}");
    }
}

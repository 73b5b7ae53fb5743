//! The crates of the program, packed for crates.io. Crates that embed zig's output contain it prebuilt, so that `cargo
//! install` needs no zig.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::payload::{File, printed};

/// The crates that embed files, by their folder in the checkout.
const EMBEDDING: [(&str, &str); 2] = [("allograft-donors", "crates/donors"), ("allograft-conformance", "conformance")];

const LICENSES: [&str; 2] = ["LICENSE-APACHE", "LICENSE-MIT"];

/// Packs the program and its crates from the files of `checkout`, by way of a copy in the folder `scratch`. `cargo` is
/// cargo's command, with the environment that it needs.
///
/// # Errors
/// When cargo fails to build or to pack them, and those of the file system.
pub fn pack(checkout: &Path, scratch: &Path, cargo: &dyn Fn() -> Command) -> Result<Vec<File>> {
    if scratch.exists() {
        fs::remove_dir_all(scratch).with_context(|| format!("cannot remove `{}`", scratch.display()))?;
    }
    copy_sources(checkout, scratch)?;
    let members = members(scratch, cargo)?;
    for (_, folder) in &members {
        for license in LICENSES {
            copy(&checkout.join(license), &folder.join(license))?;
        }
    }
    let embedded = embedded(checkout, cargo)?;
    for (name, folder) in EMBEDDING {
        let files = embedded.get(name).with_context(|| format!("`{name}` has no build script"))?;
        copy_folder(files, &scratch.join(folder).join(zigcc::PREBUILT))?;
    }
    let mut package = cargo();
    package.args(["package", "--locked", "--offline", "--quiet", "--no-verify", "--allow-dirty"]);
    for (name, _) in &members {
        package.args(["--package", name]);
    }
    let target = scratch.join("target");
    printed(package.arg("--target-dir").arg(&target).current_dir(scratch))?;
    let mut crates = Vec::new();
    for (name, _) in &members {
        let file = format!("{name}-{}.crate", env!("CARGO_PKG_VERSION"));
        let path = target.join("package").join(&file);
        let bytes = fs::read(&path).with_context(|| format!("cannot read `{}`", path.display()))?;
        crates.push(File::new(file, bytes));
    }
    Ok(crates)
}

/// Copies every file that git knows.
fn copy_sources(checkout: &Path, to: &Path) -> Result<()> {
    let files = printed(Command::new("git").arg("-C").arg(checkout).args(["ls-files", "-z"]))?;
    for file in files.split_terminator('\0') {
        copy(&checkout.join(file), &to.join(file))?;
    }
    Ok(())
}

/// Returns the members of the workspace that may be published, with their folders.
fn members(workspace: &Path, cargo: &dyn Fn() -> Command) -> Result<Vec<(String, PathBuf)>> {
    let metadata = ["metadata", "--no-deps", "--format-version", "1", "--locked", "--offline"];
    let said: Value = serde_json::from_str(&printed(cargo().args(metadata).current_dir(workspace))?)?;
    let mut members = Vec::new();
    for package in said["packages"].as_array().context("cargo lists no packages")? {
        // `publish = false` is an empty list of registries.
        if package["publish"].is_null() {
            let name = package["name"].as_str().context("a package without a name")?;
            let manifest = package["manifest_path"].as_str().context("a package without a manifest")?;
            let folder = Path::new(manifest).parent().context("a manifest is in a folder")?;
            members.push((name.to_owned(), folder.to_owned()));
        }
    }
    ensure!(members.iter().any(|(name, _)| name == "allograft"), "the program is not among the crates to publish");
    members.sort();
    Ok(members)
}

/// Returns the folders with the files that crates embed, by the names of the crates. They are from the build of the
/// program for this machine: a separate build of these crates would have different features, and make the files again.
fn embedded(checkout: &Path, cargo: &dyn Fn() -> Command) -> Result<HashMap<String, PathBuf>> {
    let mut build = cargo();
    build.args(["build", "--release", "--locked", "--quiet", "--package", "allograft", "--bin", "allograft"]);
    let messages = printed(build.args(["--message-format", "json"]).current_dir(checkout))?;
    let folder = |line: &str| {
        let message: Value = serde_json::from_str(line).ok()?;
        if message["reason"] != "build-script-executed" {
            return None;
        }
        // `path+file:///CHECKOUT/crates/donors#allograft-donors@0.1.0`
        let (_, package) = message["package_id"].as_str()?.rsplit_once('#')?;
        let (name, _) = package.split_once('@')?;
        Some((name.to_owned(), Path::new(message["out_dir"].as_str()?).join("embedded")))
    };
    Ok(messages.lines().filter_map(folder).collect())
}

fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    for entry in fs::read_dir(from).with_context(|| format!("cannot read `{}`", from.display()))? {
        let entry = entry?;
        copy(&entry.path(), &to.join(entry.file_name()))?;
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    let folder = to.parent().context("a file is in a folder")?;
    fs::create_dir_all(folder).with_context(|| format!("cannot make `{}`", folder.display()))?;
    fs::copy(from, to).with_context(|| format!("cannot copy `{}` to `{}`", from.display(), to.display()))?;
    Ok(())
}

//! A registry in a folder, with the crates of a release and their dependencies.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use data_encoding::HEXLOWER;
use flate2::bufread::GzDecoder;
use sha2::{Digest, Sha256};
use tools::{command, workspace};

/// Makes the registry in the folder `registry` of the `.crate` files in the folder `release`, and sets cargo up in the
/// folder `home` to take every crate from there.
///
/// # Errors
/// When cargo cannot bring the dependencies, and those of the file system.
pub(crate) fn publish(release: &Path, registry: &Path, home: &Path) -> Result<()> {
    let vendor = ["vendor", "--locked", "--versioned-dirs", "--quiet"];
    command::output(command::cargo(&vendor).arg(registry).current_dir(workspace::root()))?;
    for entry in fs::read_dir(release)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "crate") {
            let bytes = fs::read(&path).with_context(|| format!("cannot read `{}`", path.display()))?;
            tar::Archive::new(GzDecoder::new(bytes.as_slice())).unpack(registry)?;
            let folder = registry.join(path.file_stem().context("a file has a name")?);
            let hash = HEXLOWER.encode(&Sha256::digest(&bytes));
            fs::write(folder.join(".cargo-checksum.json"), format!(r#"{{"files":{{}},"package":"{hash}"}}"#))?;
        }
    }
    fs::create_dir_all(home)?;
    let config = "[source.crates-io]\nreplace-with = \"folder\"\n[source.folder]\ndirectory = ";
    // A string literal of Rust is also a string of TOML.
    Ok(fs::write(home.join("config.toml"), format!("{config}{:?}\n", registry))?)
}

/// Runs a script with that home for cargo, without zig and without this checkout.
///
/// # Errors
/// When the script fails; the message contains its output.
pub(crate) fn run(home: &Path, folder: &Path, script: &str) -> Result<()> {
    let mut shell = Command::new("sh");
    command::apart(&mut shell);
    shell.args(["-ec", script]).current_dir(folder).stdin(Stdio::null());
    let output = shell.env("CARGO_HOME", home).env("CARGO_NET_OFFLINE", "true").env_remove("ALLOGRAFT_ZIG").output()?;
    ensure!(output.status.success(), "{}\n{script}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    Ok(())
}

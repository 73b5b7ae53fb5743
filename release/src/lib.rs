//! Makes a release: static executables with a donor in them, packages for common package managers, the crates, and the
//! bill of materials. Two runs give the same bytes on any machine and in any folder: entries are sorted and belong to
//! root, their times are the release's.
//!
//! | module | what lives there |
//! | --- | --- |
//! | `apk` | a package for Alpine |
//! | `archive` | the archive for `cargo binstall` |
//! | `checksums` | `SHA256SUMS` |
//! | `components` | the donors and libraries in the executables, each with its source |
//! | `crates` | the crates of the program, packed for crates.io |
//! | `deb` | a package for Debian |
//! | `executables` | builds the executables, and grafts them |
//! | `gzip` | compressed streams without a time |
//! | `npm` | packages for npm |
//! | `payload` | the contents of the packages |
//! | `sbom` | the bill of materials, in CycloneDX |
//! | `system` | the paths of files in a system's package |
//! | `tarball` | tar archives with fixed owners and times |
//! | `third_party` | the licences of others |
//! | `wheel` | a package for Python |

mod apk;
mod archive;
pub mod checksums;
mod components;
mod crates;
mod deb;
mod executables;
mod gzip;
mod npm;
mod payload;
#[cfg(test)]
mod sample;
mod sbom;
mod system;
mod tarball;
mod third_party;
mod wheel;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

pub use components::{Component, Kind, Package, components};
pub use crates::pack as crates;
pub use executables::{ARCHES, Builder};
pub use payload::{File, Inputs, Payload};
pub use sbom::cyclonedx;
pub use third_party::licenses;

/// The description in one line.
const SUMMARY: &str = "Transplants a modern allocator into static musl toolchains";

/// The description at length. Lines of at most 79 columns.
const DESCRIPTION: &str = "\
allograft replaces musl's malloc in a toolchain's libc.a, or in a linked static
executable, with a modern allocator, and its string functions with fast ones.
It proves that the result is whole, and takes it back byte for byte.";

/// The licence of allograft's own code, as an SPDX expression.
const LICENSE: &str = "MIT OR Apache-2.0";

/// The maintainer of the packages: those for Debian and Alpine have to name an address.
const MAINTAINER: &str = "The allograft maintainers <maintainers@allograft.invalid>";

/// Writes all packages of `payloads`, one payload for each architecture, into the folder `out`, which it makes. Returns
/// their paths, sorted.
///
/// # Errors
/// When the payloads are not of one version, and those of the file system.
pub fn packages(payloads: &[Payload], out: &Path) -> Result<Vec<PathBuf>> {
    let first = payloads.first().context("there is nothing to pack")?;
    ensure!(payloads.iter().all(|it| it.version == first.version), "the payloads are of different versions");
    let mut packages = vec![npm::launcher(payloads)?];
    for payload in payloads {
        packages.push(archive::pack(payload)?);
        packages.push(wheel::pack(payload)?);
        packages.push(npm::programs(payload)?);
        packages.push(deb::pack(payload)?);
        packages.push(apk::pack(payload)?);
    }
    fs::create_dir_all(out).with_context(|| format!("cannot make `{}`", out.display()))?;
    let mut paths = Vec::new();
    for package in packages {
        let path = out.join(&package.path);
        fs::write(&path, &package.bytes).with_context(|| format!("cannot write `{}`", path.display()))?;
        paths.push(path);
    }
    paths.sort();
    Ok(paths)
}

/// Returns the time of a release in seconds since 1970: `$SOURCE_DATE_EPOCH`, else the date of the commit that is
/// checked out in `checkout`.
///
/// # Errors
/// When the variable is not a number, or there is no commit.
pub fn time(checkout: &Path) -> Result<u64> {
    let stated = match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(stated) => stated,
        Err(_) => {
            let mut git = Command::new("git");
            git.arg("-C").arg(checkout).args(["log", "-1", "--format=%ct"]);
            payload::printed(&mut git).context("neither SOURCE_DATE_EPOCH nor a commit gives the release's time")?
        }
    };
    stated.trim().parse().with_context(|| format!("`{}` is not a time in seconds since 1970", stated.trim()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::os::unix::fs::PermissionsExt;

    use format::Arch;

    use super::*;

    /// Reads a payload from a new folder, with programs of that mode, and returns its packages by name.
    fn packed(mode: u32, time: u64) -> BTreeMap<String, Vec<u8>> {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("native")).unwrap();
        fs::create_dir_all(at("programs")).unwrap();
        let script = "#!/bin/sh\n\
            case \"$*\" in man) printf '.SH\\nallograft\\\\-graft(1)\\n';; *) echo \"$*$CARGO_PKG_NAME\";; esac\n";
        for name in ["allograft", "cargo-allograft"] {
            fs::write(at("native").join(name), script).unwrap();
            fs::write(at("programs").join(name), sample::elf(Arch::Aarch64)).unwrap();
            fs::set_permissions(at("native").join(name), fs::Permissions::from_mode(0o700)).unwrap();
            fs::set_permissions(at("programs").join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        let payload = Payload::read(Inputs {
            version: "1.2.3",
            arch: Arch::Aarch64,
            time,
            programs: &at("programs"),
            native: &at("native"),
            checkout: Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")),
            licenses: "all of them\n",
        });
        let payload = payload.unwrap();
        assert_eq!(payload.bash.bytes, b"completions bash\n", "the environment decides nothing");
        let manuals: Vec<&str> = payload.manuals.iter().map(|page| page.path.as_str()).collect();
        assert_eq!(manuals, ["allograft-graft.1", "allograft.1", "cargo-allograft.1"]);
        let paths = packages(&[payload], &at("out")).unwrap();
        let name = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().into_owned();
        paths.iter().map(|path| (name(path), fs::read(path).unwrap())).collect()
    }

    #[test]
    fn two_runs_in_two_folders_give_the_same_bytes() {
        let (one, other, later) =
            (packed(0o600, 1_700_000_000), packed(0o775, 1_700_000_000), packed(0o600, 1_700_000_002));
        let names: Vec<&str> = one.keys().map(String::as_str).collect();
        assert_eq!(
            names,
            [
                "allograft-1.2.3-aarch64-unknown-linux-musl.tar.gz",
                "allograft-1.2.3-py3-none-manylinux2014_aarch64.musllinux_1_1_aarch64.whl",
                "allograft-1.2.3-r0.aarch64.apk",
                "allograft-1.2.3.tgz",
                "allograft-linux-arm64-1.2.3.tgz",
                "allograft_1.2.3_arm64.deb",
            ]
        );
        for name in names {
            assert!(one[name] == other[name], "{name} differs");
            assert!(one[name] != later[name], "{name} has not the release's time");
        }
    }
}

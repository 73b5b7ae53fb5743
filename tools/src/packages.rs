//! Packages from the registries of Python, npm and Debian: downloaded, checked, unpacked.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use crate::{command, folder};

/// A package and its version.
#[derive(Debug, Clone, Copy)]
pub enum Package<'p> {
    /// `NAME==VERSION`, and the tag of the wheel's platform if there are wheels for several.
    Wheel(&'p str, Option<&'p str>),
    /// `NAME@VERSION`.
    Npm(&'p str),
    /// The upstream archive of a source package, and its files and folders to unpack.
    DebianSource {
        /// The package.
        name: &'p str,
        /// Upstream's version.
        version: &'p str,
        /// The ending of the archive's name: `tar.xz` or `tar.gz`.
        ending: &'p str,
        /// The paths below the archive's only folder; none: all of it.
        members: &'p [String],
    },
}

impl<'p> Package<'p> {
    /// The package of Python or npm that a row of a table names; `name` is for messages.
    ///
    /// # Errors
    /// When it names neither.
    pub fn of_row(
        name: &str,
        pypi: Option<&'p str>,
        platform: Option<&'p str>,
        npm: Option<&'p str>,
    ) -> Result<Package<'p>> {
        match (pypi, platform, npm) {
            (Some(requirement), Some(platform), _) => Ok(Package::Wheel(requirement, Some(platform))),
            (_, _, Some(package)) => Ok(Package::Npm(package)),
            _ => bail!("`{name}` names no package"),
        }
    }
}

/// Fetches the packages of missing `files`, each into its own folder below `all`. `place` is where a file belongs, in
/// its package's folder; `label` names its package; `unpack` fills a package's folder.
///
/// # Errors
/// Those of `unpack`, and of the file system.
pub fn place_missing<T>(
    all: &Path,
    files: &[T],
    place: impl Fn(&T) -> PathBuf,
    label: impl Fn(&T) -> String,
    unpack: impl Fn(&[&T], &Path) -> Result<()>,
) -> Result<()> {
    // A package may contain several of them.
    let mut packages: BTreeMap<PathBuf, Vec<&T>> = BTreeMap::new();
    for file in files {
        let home = place(file).parent().context("a file has no folder")?.to_owned();
        packages.entry(home).or_default().push(file);
    }
    fs::create_dir_all(all).with_context(|| format!("cannot make `{}`", all.display()))?;
    let _lock = folder::lock(&all.join(".lock"))?;
    for (home, files) in packages {
        if !files.iter().all(|file| place(file).is_file()) {
            folder::announce(&label(files[0]), || folder::place(&home, |folder| unpack(&files, folder)))?;
        }
    }
    Ok(())
}

/// Downloads an address (argument 1) to a file (2). Debian's archive is a web server, and python3 is there already.
const DOWNLOAD: &str = "\
import shutil, sys, urllib.request
with urllib.request.urlopen(sys.argv[1], timeout=60) as source, open(sys.argv[2], 'xb') as file:
    shutil.copyfileobj(source, file)
";

/// Unpacks from an archive (argument 1) into a folder (2) the files and folders (3 ...) below the archive's only
/// folder, or all of them. Archives list the files of a folder in sequence, so the rest is not unpacked once all have
/// come: for LLVM's archive, that is nine tenths.
const UNPACK_MEMBERS: &str = "\
import sys, tarfile
archive, folder, *wanted = sys.argv[1:]
seen = set()
with tarfile.open(archive, 'r|*') as members:
    for member in members:
        member.name = member.name.partition('/')[2]
        found = [one for one in wanted if (member.name + '/').startswith(one + '/')]
        if wanted and not found and len(seen) == len(wanted):
            break
        seen.update(found)
        if member.isfile() and (found or not wanted):
            members.extract(member, folder, filter='data')
";

/// Unpacks the package, which must have that SHA-256 in hexadecimal digits, into `folder`.
///
/// # Errors
/// When the package cannot be fetched, or has a different checksum.
pub fn unpack(package: Package<'_>, sha256: &str, folder: &Path) -> Result<()> {
    let downloads = folder::Scratch::beside(folder, "download")?;
    let downloads = downloads.0.as_path();
    match package {
        Package::Wheel(requirement, platform) => wheel(requirement, platform, downloads)?,
        Package::Npm(name) => npm(name, downloads)?,
        Package::DebianSource { name, version, ending, .. } => debian_source(name, version, ending, downloads)?,
    }
    let archive = fs::read_dir(downloads)?.next().context("nothing was downloaded")??.path();
    let found: String = Sha256::digest(fs::read(&archive)?).iter().map(|byte| format!("{byte:02x}")).collect();
    if found != sha256 {
        bail!("{package:?} has the checksum {found}, expected {sha256}");
    }
    if let Package::DebianSource { members, .. } = package {
        let mut unpack = Command::new("python3");
        unpack.args(["-c", UNPACK_MEMBERS]).arg(&archive).arg(folder).args(members);
        return command::output(&mut unpack).map(drop);
    }
    let module = if archive.extension() == Some(OsStr::new("whl")) { "zipfile" } else { "tarfile" };
    command::output(Command::new("python3").args(["-m", module, "-e"]).arg(&archive).arg(folder)).map(drop)
}

fn wheel(requirement: &str, platform: Option<&str>, downloads: &Path) -> Result<()> {
    // Neither a cache nor a check for a newer pip: both need a home folder.
    let flags = "-m pip download --quiet --no-input --no-cache-dir --disable-pip-version-check --no-deps \
                 --only-binary=:all: --python-version 3.12";
    let mut pip = Command::new("python3");
    pip.args(flags.split_whitespace());
    if let Some(platform) = platform {
        pip.args(["--platform", platform]);
    }
    pip.arg("--dest").arg(downloads).arg(requirement);
    command::output(&mut pip).with_context(|| format!("python3 with pip is needed to download {requirement}")).map(drop)
}

fn debian_source(name: &str, version: &str, ending: &str, downloads: &Path) -> Result<()> {
    // Debian's pool puts libraries into folders of their own: `liba` and the like.
    let initial = name.get(..if name.starts_with("lib") { 4 } else { 1 }).context("a package has a name")?;
    let file = format!("{name}_{version}.orig.{ending}");
    let address = format!("https://deb.debian.org/debian/pool/main/{initial}/{name}/{file}");
    let mut download = Command::new("python3");
    download.args(["-c", DOWNLOAD, &address]).arg(downloads.join(file));
    command::output(&mut download).with_context(|| format!("cannot download {address}")).map(drop)
}

fn npm(name: &str, downloads: &Path) -> Result<()> {
    let mut npm = Command::new("npm");
    npm.args(["pack", "--silent", "--pack-destination"]).arg(downloads).arg(name).current_dir(downloads);
    command::output(&mut npm).with_context(|| format!("npm is needed to download {name}")).map(drop)
}

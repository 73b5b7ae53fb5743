//! Compilers on which the search for musl's malloc was not tuned: older zigs from their wheels, Debian's gcc 11 and
//! clang 19.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use tools::debian::Apt;
use tools::{command, folder, workspace};

/// The releases of zig, each with the SHA-256 of its wheel for x86_64.
pub(crate) const ZIGS: [(&str, &str); 4] = [
    ("0.11.0", "45e8116428267e20529b9ee43a7e7364791c1a092845d2143b248a1dbf6760b0"),
    ("0.12.1", "dcde948140b9e5776c2295b9b808fb4950df7ecadaecb54623dd701502be2017"),
    ("0.13.0", "3ce0c9f16547e5d61b32e0d226926e9a2552ef4b91fccf7ab5ea1a623a77824b"),
    ("0.14.1", "6eb9d4d759b292c83810dbee2e9e8e3fbfbf01d864e6e9811bae711fd74e1c2f"),
];
/// The release whose sources of musl the other compilers compile. Later releases leave memcpy and similar functions to
/// zig.
pub(crate) const SOURCES: &str = "0.13.0";

const CLANG: [&str; 4] = ["clang-19", "libclang-common-19-dev", "libllvm19", "libclang-cpp19"];
const GCC: [&str; 3] = ["gcc-11", "cpp-11", "libgcc-11-dev"];

/// Returns the folder of everything that the proof downloads and makes.
pub(crate) fn folder() -> PathBuf {
    workspace::build().join("proof")
}

/// Returns the folder into which a compiler is unpacked, whether it exists or not.
pub(crate) fn home(name: &str) -> PathBuf {
    folder().join("compilers").join(name)
}

/// Returns the folder of zig's copies of libcs.
pub(crate) fn zig_libc(version: &str) -> PathBuf {
    home(&format!("zig-{version}")).join("ziglang/lib/libc")
}

/// Fetches missing compilers, some 400 MB of downloads. If one of Debian's compilers cannot be fetched, its name is
/// printed and its programs are left out.
///
/// # Errors
/// A wheel cannot be fetched.
pub(crate) fn prepare() -> Result<()> {
    fs::create_dir_all(folder().join("compilers"))?;
    for (version, digest) in ZIGS {
        let home = home(&format!("zig-{version}"));
        if !home.join("ziglang/zig").is_file() {
            let fill = || folder::place(&home, |folder| unpack_zig(version, digest, folder));
            folder::announce(&format!("zig {version} (80 MB)"), fill)?;
        }
    }
    for (name, packages) in [("clang-19", CLANG.as_slice()), ("gcc-11", &GCC)] {
        let home = home(name);
        if home.join("usr/bin").join(name).exists() {
            continue;
        }
        let scratch = folder::Scratch::beside(&folder().join("apt"), "state")?;
        let got = folder::announce(&format!("Debian's {name}"), || {
            let apt = Apt::new(&scratch.0, std::iter::empty())?;
            let update = apt.update();
            folder::place(&home, |folder| packages.iter().try_for_each(|package| apt.unpack(package, folder)))
                .or_else(|error| update.and(Err(error)))
        });
        if let Err(error) = got {
            eprintln!("proof: WARNING: left out {name}: {error:#}");
        }
    }
    Ok(())
}

fn unpack_zig(version: &str, digest: &str, folder: &Path) -> Result<()> {
    let downloads = folder.join("download");
    fs::create_dir_all(&downloads)?;
    let flags = "-m pip download --quiet --no-input --no-cache-dir --disable-pip-version-check --no-deps \
                 --only-binary=:all: --platform manylinux_2_12_x86_64 --dest";
    let mut pip = Command::new("python3");
    pip.args(flags.split_whitespace()).arg(&downloads).arg(format!("ziglang=={version}"));
    command::output(&mut pip).context("python3 with pip is needed to download the wheel")?;
    let wheel = fs::read_dir(&downloads)?.next().context("pip downloaded nothing")??.path();
    let found: String = Sha256::digest(fs::read(&wheel)?).iter().map(|byte| format!("{byte:02x}")).collect();
    if found != digest {
        bail!("the wheel of zig {version} has the checksum {found}, expected {digest}");
    }
    command::output(Command::new("python3").args(["-m", "zipfile", "-e"]).arg(&wheel).arg(folder))?;
    fs::remove_dir_all(&downloads)?;
    let zig = folder.join("ziglang").join("zig");
    // Python's zipfile drops the permission to execute.
    fs::set_permissions(&zig, fs::Permissions::from_mode(0o755)).context("the wheel holds no ziglang/zig")
}

/// A Debian C compiler, from this machine or unpacked.
#[derive(Debug, Clone)]
pub(crate) struct Driver {
    /// Its name in the table.
    pub(crate) name: &'static str,
    program: PathBuf,
    libraries: Option<OsString>,
}

impl Driver {
    /// Returns this machine's gcc and the unpacked compilers.
    pub(crate) fn all() -> Vec<Driver> {
        let mut found = Vec::new();
        if let Some(program) = command::on_path("gcc") {
            found.push(Driver { name: "gcc of this machine", program, libraries: None });
        }
        let gcc = home("gcc-11").join("usr/bin/gcc-11");
        if gcc.is_file() {
            found.push(Driver { name: "gcc 11", program: gcc, libraries: None });
        }
        let clang = home("clang-19").join("usr/lib/llvm-19/bin/clang");
        if clang.is_file() {
            let libraries = home("clang-19").join("usr/lib/x86_64-linux-gnu");
            found.push(Driver { name: "clang 19", program: clang, libraries: Some(libraries.into()) });
        }
        found
    }

    pub(crate) fn is_clang(&self) -> bool {
        self.libraries.is_some()
    }

    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        if let Some(libraries) = &self.libraries {
            command.env("LD_LIBRARY_PATH", libraries);
        }
        command
    }
}

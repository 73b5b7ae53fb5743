//! An installed Debian for the slow tier: dpkg and the packages' own scripts run in the folder, in a namespace.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use fixtures::installed::{self, BASE, RELEASE};
use fixtures::system::NAMESPACES;

use crate::debian::Apt;
use crate::{command, folder, system};

/// Runs a command (arguments) under a filter of system calls: those that give a file to a different user, make a device
/// or change the user succeed without effect. In a namespace with one user, they would fail, and with them dpkg. The
/// numbers are x86_64's: chown, fchown, lchown, fchownat, setuid, setgid, setreuid, setregid, setgroups, setresuid,
/// setresgid, setfsuid, setfsgid, mknod, mknodat.
const WITHOUT_OWNERS: &str = "\
import ctypes, os, struct, sys
calls = [92, 93, 94, 260, 105, 106, 113, 114, 116, 117, 119, 122, 123, 133, 259]
allow, succeed = 0x7fff0000, 0x00050000
lines = [(0x20, 0, 0, 4), (0x15, 1, 0, 0xc000003e), (0x06, 0, 0, allow), (0x20, 0, 0, 0)]
lines += [(0x15, len(calls) - index, 0, call) for index, call in enumerate(calls)]
lines += [(0x06, 0, 0, allow), (0x06, 0, 0, succeed)]
code = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *line) for line in lines))
program = struct.pack('HxxxxxxP', len(lines), ctypes.addressof(code))
libc = ctypes.CDLL(None, use_errno=True)
if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, program, 0, 0):
    sys.exit(f'no filter of system calls: {os.strerror(ctypes.get_errno())}')
os.execvp(sys.argv[1], sys.argv[1:])
";

/// Makes the folder (argument 1) a root folder with the packages (2) at `/mnt`, and runs a script (3) there.
const ENTER: &str = r#"
tree=$1 packages=$2 script=$3
mount -t proc proc "$tree/proc" || exit 125
for device in null zero full random urandom; do
	: >"$tree/dev/$device"
	mount --bind "/dev/$device" "$tree/dev/$device" || exit 125
done
mount --bind "$packages" "$tree/mnt" || exit 125
exec chroot "$tree" /usr/bin/env -i HOME=/root LC_ALL=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin \
	DEBIAN_FRONTEND=noninteractive sh -ec "$script"
"#;

/// No package may start a server. All are unpacked before the first is configured, so dependencies do not matter then.
const INSTALL: &str = "\
printf '#!/bin/sh\\nexit 101\\n' >/usr/sbin/policy-rc.d
chmod 755 /usr/sbin/policy-rc.d
dpkg --force-depends --force-confold --force-unsafe-io --unpack /mnt/*.deb
dpkg --force-confold --force-unsafe-io --configure --pending
dpkg --audit
";

/// Installs it, unless it exists.
///
/// # Errors
/// When a package cannot be fetched or installed.
pub fn prepare() -> Result<()> {
    if let Some(reason) = installed::unavailable() {
        eprintln!("setup: WARNING: left out a Debian as installed: {reason}");
        return Ok(());
    }
    let folder = installed::folder();
    fs::create_dir_all(fixtures::tools()).context("cannot make the folder of tools")?;
    let _lock = folder::lock(&fixtures::tools().join(".installed.lock"))?;
    if installed::is_complete() {
        return Ok(());
    }
    folder::announce("a Debian with many programs, installed", || folder::place(&folder, fill))
}

fn fill(folder: &Path) -> Result<()> {
    let scratch = folder::Scratch::beside(&fixtures::tools().join("apt-installed"), "state")?;
    let apt = Apt::of_release(&scratch.0, RELEASE)?;
    let update = apt.update();
    let packages = installed::packages();
    let names: Vec<&str> = BASE.into_iter().chain(packages.iter().map(String::as_str)).collect();
    let files = apt.download_whole(&names).or_else(|error| update.and(Err(error)))?;
    unpack_base(&apt, &files, folder)?;
    let archives = files.first().and_then(|file| file.parent()).context("apt downloaded no package")?;
    let mut install = Command::new("python3");
    install.args(["-c", WITHOUT_OWNERS, "unshare", "--map-root-user"]).args(NAMESPACES);
    install.args(["sh", "-c", ENTER, "enter"]).args([folder, archives]).arg(INSTALL);
    let said = command::output(&mut install)?;
    let last = said.lines().last().unwrap_or_default();
    ensure!(!said.contains("only half"), "dpkg left a package half installed: {last}");
    system::readable(folder)?;
    Ok(fs::write(folder.join("complete"), packages.join("\n"))?)
}

/// Unpacks the packages that dpkg and other packages' scripts need, if they work before they are installed.
fn unpack_base(apt: &Apt, files: &[PathBuf], folder: &Path) -> Result<()> {
    let names = apt.needed(&BASE)?;
    let is_base = |file: &&PathBuf| {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        name.split_once('_').is_some_and(|(name, _)| names.iter().any(|needed| needed == name))
    };
    for file in files.iter().filter(is_base) {
        command::output(Command::new("dpkg-deb").arg("-x").arg(file).arg(folder))?;
    }
    std::os::unix::fs::symlink("mawk", folder.join("usr/bin/awk")).context("cannot link awk")?;
    for name in ["passwd", "group"] {
        let master = folder.join("usr/share/base-passwd").join(format!("{name}.master"));
        fs::copy(&master, folder.join("etc").join(name)).with_context(|| format!("no `{}`", master.display()))?;
    }
    for name in ["status", "available"] {
        fs::write(folder.join("var/lib/dpkg").join(name), "")?;
    }
    Ok(fs::create_dir_all(folder.join("mnt"))?)
}

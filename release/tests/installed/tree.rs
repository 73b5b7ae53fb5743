//! Root folders that packages are installed into: Debian's essential packages and a few more, unpacked without root.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use fixtures::Arch;
use tools::debian::Apt;
use tools::folder;
use tools::packages::{self, Package};

/// A root folder. Files that a command installs are gone after it.
pub(crate) struct Tree {
    name: &'static str,
    /// The release of Debian.
    release: &'static str,
    /// Its packages in the folder, with all their dependencies.
    packages: &'static [&'static str],
    /// The changes after the packages are unpacked.
    finish: fn(&Path) -> Result<()>,
    /// Whether its programs use the IDs of several users and groups.
    several_users: bool,
}

const fn tree(name: &'static str, packages: &'static [&'static str], finish: fn(&Path) -> Result<()>) -> Tree {
    Tree { name, release: fixtures::toolchains::RELEASE, packages, finish, several_users: false }
}

/// A system with dpkg and without languages.
pub(crate) const DEBIAN: Tree = tree("debian", &["?essential"], dpkg_database);

/// A single program, which has a shell and small tools. There is no C library.
pub(crate) const BUSYBOX: Tree = tree("busybox", &["busybox-static"], only_busybox);

/// A system with Python and pip.
pub(crate) const PYTHON: Tree = tree("python", &["?essential", "python3", "python3-venv"], certificates);

/// A system with node and npm.
pub(crate) const NODE: Tree = tree("node", &["?essential", "nodejs"], npm);

/// A system with Debian's checker of packages.
pub(crate) const LINTIAN: Tree = tree("lintian", &["?essential", "lintian"], vendor);

/// A system with systemd, which checks units without being the first process.
pub(crate) const SYSTEMD: Tree = tree("systemd", &["?essential", "systemd"], |_| Ok(()));

/// A system with buildah. Its storage is in the work folder.
pub(crate) const BUILDAH: Tree =
    Tree { several_users: true, ..tree("buildah", &["?essential", "buildah", "netavark"], buildah) };

/// A system with a compiler for musl at Alpine's paths.
pub(crate) const ALPINE: Tree = tree("alpine", &["?essential", "gcc", "musl-tools"], alpine);

/// A system with Rust, its musl target and a compiler for musl. The target's library was built for the compiler of this
/// release.
pub(crate) const RUST: Tree =
    Tree { release: "bookworm", ..tree("rust", &["?essential", "rustc-web", "cargo-web", "musl-tools"], rust) };

/// npm, and the SHA-256 of its package. Debian's own is made of hundreds of packages.
const NPM: (&str, &str) = ("npm@10.9.9", "c80bd097147cce32e31010b791bab8c71a26a5e10668210ec9d2e7f4c7cea2a1");

/// Runs a command in a root folder, with a work folder at `/mnt` and without a network. Files that it writes elsewhere
/// are in memory. `$FORMAT` is a line for the kernel's `binfmt_misc`, or empty: it registers an emulator, in this
/// namespace only.
const ENTER: &str = r#"
root=$1 work=$2 scratch=$3
shift 3
mount -t tmpfs scratch "$scratch" && cd "$scratch" && mkdir upper lower state root || exit 125
mount --rbind "$root" lower || exit 125
mount -t overlay overlay -o lowerdir=lower,upperdir=upper,workdir=state,userxattr root || exit 125
mkdir -p root/proc root/dev root/tmp root/mnt
mount --rbind /proc root/proc || exit 125
for device in null zero full random urandom; do
	: >root/dev/$device
	mount --bind /dev/$device root/dev/$device || exit 125
done
mount --bind "$work" root/mnt || exit 125
if [ -n "$FORMAT" ]; then
	mount -t binfmt_misc formats /proc/sys/fs/binfmt_misc || exit 125
	printf %s "$FORMAT" >/proc/sys/fs/binfmt_misc/register || exit 125
fi
[ -z "$BEFORE" ] || "$BEFORE" root "$work" || exit 126
exec chroot root /usr/bin/env -i HOME=/tmp LC_ALL=C.UTF-8 PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"
"#;

/// The header of an executable for aarch64 and the bits of it that count, in the form of the kernel's
/// `binfmt-misc.rst`: 64 bits, little-endian, ET_EXEC or ET_DYN, EM_AARCH64. Any OS ABI.
const AARCH64: &str = concat!(
    r"\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00:",
    r"\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff"
);

impl Tree {
    /// Runs a script in a fresh copy of the tree, with `work` as `/mnt`. `before`: a program that runs first, outside,
    /// with the tree's root and the work folder as arguments. Returns what the script prints.
    ///
    /// # Errors
    /// When the tree cannot be made, or the script fails.
    pub(crate) fn run(&self, work: &Path, before: Option<&Path>, script: &str) -> Result<String> {
        self.run_with("", work, before, script)
    }

    /// Runs a script, with an emulator for programs for aarch64.
    ///
    /// # Errors
    /// As [`Tree::run`].
    pub(crate) fn run_emulated(&self, work: &Path, before: Option<&Path>, script: &str) -> Result<String> {
        let emulator = fixtures::emulator(Arch::Aarch64).context("no emulator: run `cargo xtask setup`")?;
        self.run_with(&format!(":aarch64:M::{AARCH64}:{}:F", emulator.display()), work, before, script)
    }

    fn run_with(&self, format: &str, work: &Path, before: Option<&Path>, script: &str) -> Result<String> {
        let scratch = tempfile::tempdir()?;
        let mut command = Command::new("unshare");
        command.args(self.namespaces()).args(["sh", "-c", ENTER, "enter"]);
        command.args([&self.root()?, work, scratch.path()]).env("BEFORE", before.unwrap_or(Path::new("")));
        command.env("FORMAT", format);
        command.args(["sh", "-ec", &format!("cd /mnt\n{script}")]);
        let output = command.stdin(Stdio::null()).output()?;
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let said = String::from_utf8_lossy(&output.stderr);
        anyhow::ensure!(output.status.success(), "{}\n{script}\n{printed}\n{said}", output.status);
        Ok(printed)
    }

    /// Returns the reason why no command can be run in the tree, if there is one.
    pub(crate) fn unavailable(&self) -> Option<String> {
        let options = self.namespaces();
        let output = Command::new("unshare").args(options).arg("true").output().expect("`unshare` starts");
        let said = String::from_utf8_lossy(&output.stderr);
        (!output.status.success()).then(|| format!("`unshare {}` fails: {}", options.join(" "), said.trim()))
    }

    /// Returns the options of `unshare` that make the namespaces. Several users take root, or a range of IDs in
    /// `/etc/subuid` and `/etc/subgid`, which `newuidmap` and `newgidmap` map.
    fn namespaces(&self) -> &'static [&'static str] {
        let is_root = fs::metadata("/proc/self").is_ok_and(|itself| itself.uid() == 0);
        match (self.several_users, is_root) {
            (false, _) => &["--map-root-user", "--mount", "--net"],
            (true, false) => &["--map-root-user", "--map-auto", "--mount", "--net"],
            (true, true) => &["--mount", "--net"],
        }
    }

    /// Returns the folder, which the first call makes: 12 to 210 MB of downloads.
    pub(crate) fn root(&self) -> Result<PathBuf> {
        let home = fixtures::tools().join("release-trees");
        let folder = home.join(self.name);
        fs::create_dir_all(&home)?;
        let _lock = folder::lock(&home.join(".lock"))?;
        if !folder.is_dir() {
            let what = format!("a Debian in a folder, to install packages into ({})", self.name);
            folder::announce(&what, || folder::place(&folder, |folder| self.fill(folder)))?;
        }
        Ok(folder)
    }

    fn fill(&self, folder: &Path) -> Result<()> {
        let scratch = folder::Scratch::beside(&folder.with_file_name("apt"), self.name)?;
        let apt = Apt::of_release(&scratch.0, self.release)?;
        let update = apt.update();
        apt.unpack_whole(self.packages, folder).or_else(|error| update.and(Err(error)))?;
        // The scripts of packages have not run. The effects that are needed are made here and in `finish`.
        fs::create_dir_all(folder.join("usr/local/bin"))?;
        (self.finish)(folder)
    }
}

/// Makes the database in which no package is installed.
fn dpkg_database(root: &Path) -> Result<()> {
    let database = root.join("var/lib/dpkg");
    for name in ["info", "updates", "triggers"] {
        fs::create_dir_all(database.join(name))?;
    }
    Ok(fs::write(database.join("status"), "")?)
}

/// Leaves nothing but busybox, under the names of its commands.
fn only_busybox(root: &Path) -> Result<()> {
    let program = fs::read(root.join("usr/bin/busybox"))?;
    for entry in fs::read_dir(root)?.flatten() {
        let path = entry.path();
        if entry.file_type()?.is_dir() { fs::remove_dir_all(path)? } else { fs::remove_file(path)? }
    }
    let bin = root.join("usr/bin");
    fs::create_dir_all(&bin)?;
    symlink("usr/bin", root.join("bin"))?;
    fs::write(bin.join("busybox"), program)?;
    fs::set_permissions(bin.join("busybox"), fs::Permissions::from_mode(0o755))?;
    let names = Command::new(bin.join("busybox")).arg("--list").output().context("busybox does not start")?;
    for name in String::from_utf8(names.stdout)?.lines().filter(|name| *name != "busybox") {
        symlink("busybox", bin.join(name))?;
    }
    Ok(())
}

/// Joins the certificates into the one file without which pip does not start.
fn certificates(root: &Path) -> Result<()> {
    let mut bundle = Vec::new();
    for entry in fs::read_dir(root.join("usr/share/ca-certificates/mozilla"))?.flatten() {
        bundle.extend(fs::read(entry.path())?);
    }
    let folder = root.join("etc/ssl/certs");
    fs::create_dir_all(&folder)?;
    Ok(fs::write(folder.join("ca-certificates.crt"), bundle)?)
}

/// Puts npm beside Debian's node.
fn npm(root: &Path) -> Result<()> {
    let modules = root.join("usr/lib/node_modules");
    fs::create_dir_all(&modules)?;
    packages::unpack(Package::Npm(NPM.0), NPM.1, &modules.join("unpacked"))?;
    fs::rename(modules.join("unpacked/package"), modules.join("npm"))?;
    fs::remove_dir(modules.join("unpacked"))?;
    for name in ["npm", "npx"] {
        let script = format!("#!/bin/sh\nexec node /usr/lib/node_modules/npm/bin/{name}-cli.js \"$@\"\n");
        let program = root.join("usr/bin").join(name);
        fs::write(&program, script)?;
        fs::set_permissions(program, fs::Permissions::from_mode(0o755))?;
    }
    Ok(())
}

/// Names the distribution whose rules lintian checks.
fn vendor(root: &Path) -> Result<()> {
    Ok(symlink("debian", root.join("etc/dpkg/origins/default"))?)
}

/// Names root, and sets limits that buildah does not have to raise.
fn buildah(root: &Path) -> Result<()> {
    for name in ["passwd", "group"] {
        fs::copy(root.join(format!("usr/share/base-passwd/{name}.master")), root.join("etc").join(name))?;
    }
    let storage = "[storage]\ndriver = \"vfs\"\ngraphroot = \"/mnt/storage\"\nrunroot = \"/run/containers/storage\"\n";
    fs::write(root.join("etc/containers/storage.conf"), storage)?;
    let limits = "[containers]\ndefault_ulimits = [\"nofile=1024:1024\", \"nproc=4096:4096\"]\n";
    Ok(fs::write(root.join("etc/containers/containers.conf"), limits)?)
}

/// Moves musl's archive to Alpine's path.
fn alpine(root: &Path) -> Result<()> {
    let libc = root.join("usr/lib/x86_64-linux-musl/libc.a");
    fs::rename(&libc, root.join("usr/lib/libc.a"))?;
    symlink("../libc.a", libc)?;
    symlink("musl-gcc", root.join("usr/bin/cc"))?;
    present(root, "apk")
}

/// Adds the musl target of Rust.
fn rust(root: &Path) -> Result<()> {
    tools::table::prepare_named(&["rust"])?;
    let target = fixtures::rust_target(Arch::X86_64);
    let from = fixtures::tools().join("rust-musl/lib/rustlib").join(target);
    let copied = Command::new("cp").arg("-a").arg(from).arg(root.join("usr/lib/rustlib")).status()?;
    anyhow::ensure!(copied.success(), "cannot copy the target `{target}`");
    symlink("gcc", root.join("usr/bin/cc"))?;
    ["apt-get", "rustup"].into_iter().try_for_each(|name| present(root, name))
}

/// Makes an empty replacement for a program that would only install parts that the tree already has.
fn present(root: &Path, name: &str) -> Result<()> {
    let program = root.join("usr/local/bin").join(name);
    fs::write(&program, "#!/bin/sh\n")?;
    Ok(fs::set_permissions(program, fs::Permissions::from_mode(0o755))?)
}

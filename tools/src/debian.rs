//! Debian's packages, downloaded with apt into lists and caches of this checkout and unpacked: no root, nothing
//! installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use zigcc::Arch;

use crate::command;
use crate::folder;

/// apt's configuration after the machine's, except for the architectures. It clears the machine's hooks, since they
/// clean up the machine's own caches.
const CONFIGURATION: &str = r#"
#clear APT::Architectures;
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear DPkg::Post-Invoke;
#clear Acquire::IndexTargets::deb::DEP-11;
APT::Sandbox::User "";
Debug::NoLocking "true";
Acquire::Languages "none";
Acquire::Retries "3";
"#;

/// One package, or two that belong together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Item {
    /// `musl-dev`, for static programs.
    Musl(Arch),
    /// `musl`: its libc.so, for dynamic programs.
    Loader(Arch),
    /// The GNU C library, for dynamic programs.
    Glibc(Arch),
    /// Emulators for the architectures whose programs this machine does not run.
    Qemu,
    /// Programs that change ELF files, each with the libraries that it needs beside libc.
    ElfTools,
}

/// The packages of [`Item::ElfTools`]. The first name of a row that Debian's release has is taken.
const ELF_TOOLS: [&[&str]; 8] = [
    &["elfutils"],
    &["libelf1t64", "libelf1"],
    &["libdw1t64", "libdw1"],
    &["libasm1t64", "libasm1"],
    &["patchelf"],
    &["chrpath"],
    &["dwz"],
    &["debugedit"],
];

impl Item {
    fn described(self) -> String {
        match self {
            Item::Musl(arch) => format!("Debian's musl-dev for {arch}"),
            Item::Loader(arch) => format!("Debian's musl for dynamic programs on {arch}"),
            Item::Glibc(arch) => format!("Debian's libc6 for dynamic programs on {arch}"),
            Item::ElfTools => "tools for ELF files: elfutils, patchelf, chrpath, dwz, debugedit".to_owned(),
            Item::Qemu => format!("qemu for programs of {}", foreign().map(Arch::name).collect::<Vec<_>>().join(", ")),
        }
    }

    fn destination(self, tools: &Path) -> PathBuf {
        match self {
            Item::Musl(arch) => fixtures::root().join("debian-musl").join(arch.name()),
            Item::Loader(arch) => fixtures::root().join("debian-musl-loader").join(arch.name()),
            Item::Glibc(arch) => fixtures::glibc_root_below(&fixtures::root(), arch),
            Item::Qemu => tools.join("qemu"),
            Item::ElfTools => tools.join("elf-tools"),
        }
    }

    fn is_there(self, tools: &Path) -> bool {
        match self {
            Item::Musl(arch) => {
                let musl = fixtures::debian_musl_below(&fixtures::root(), arch);
                musl.libc.is_file() && musl.include.join("stdlib.h").is_file()
            }
            Item::Loader(arch) => fixtures::musl_loader_below(&fixtures::root(), arch).is_file(),
            Item::Glibc(arch) => {
                let root = self.destination(tools);
                let library = format!("lib/{}-linux-gnu/libgcc_s.so.1", arch.name());
                root.join(&library).is_file() || root.join("usr").join(&library).is_file()
            }
            Item::ElfTools => ["eu-strip", "patchelf", "debugedit"]
                .iter()
                .all(|name| tools.join("elf-tools/usr/bin").join(name).is_file()),
            // An emulator on the command path would do, but tests should use the same one everywhere.
            Item::Qemu => {
                foreign().all(|arch| fixtures::emulator(arch).is_some_and(|program| program.starts_with(tools)))
            }
        }
    }

    /// The architecture whose lists of packages it takes, beside the machine's own.
    fn lists(self) -> Option<&'static str> {
        match self {
            Item::Musl(arch) | Item::Loader(arch) | Item::Glibc(arch) => debian_name(arch),
            Item::Qemu | Item::ElfTools => None,
        }
    }

    fn unpack(self, apt: &Apt, folder: &Path) -> Result<()> {
        let unpack = |package: &str, arch: Arch| {
            let name = debian_name(arch).with_context(|| format!("Debian has no {}", arch.name()))?;
            apt.unpack(&format!("{package}:{name}"), folder)
        };
        match self {
            Item::Musl(arch) => unpack("musl-dev", arch),
            Item::Loader(arch) => unpack("musl", arch),
            // glibc loads libgcc when a thread ends by pthread_exit.
            Item::Glibc(arch) => ["libc6", "libgcc-s1"].into_iter().try_for_each(|package| unpack(package, arch)),
            Item::Qemu => apt.unpack_qemu(folder),
            Item::ElfTools => ELF_TOOLS.iter().try_for_each(|names| apt.unpack_first(names, folder)),
        }
    }
}

fn foreign() -> impl Iterator<Item = Arch> {
    Arch::ALL.into_iter().filter(|arch| !fixtures::runs_here(*arch))
}

/// Unpacks the missing `items`, into the fixtures or into the folder of tools. If one cannot be fetched, prints its
/// name on stderr and goes on: the tests that need it fail.
///
/// # Errors
/// Those of the file system.
pub fn install(tools: &Path, items: &[Item]) -> Result<()> {
    let missing: Vec<Item> = items.iter().copied().filter(|item| !item.is_there(tools)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let left_out = |item: Item, reason: &str| {
        eprintln!("setup: WARNING: left out {}: {reason}\n  tests that need it will fail", item.described());
    };
    let apt = ["apt-get", "dpkg", "dpkg-deb"].into_iter().all(|name| command::on_path(name).is_some());
    if !apt {
        missing.into_iter().for_each(|item| left_out(item, "there is no apt-get and dpkg-deb on this machine"));
        return Ok(());
    }
    let scratch = folder::Scratch::beside(&tools.join("apt"), "state")?;
    // The lists of an architecture have some 9 MB, so they are fetched only if something is missing for it.
    let apt = Apt::new(&scratch.0, missing.iter().filter_map(|item| item.lists()))?;
    // Third-party sources of the machine may be unreachable. The test is whether the packages arrive.
    let update = folder::announce("Debian's package lists", || Ok(apt.update()))?;
    for item in missing {
        let fill = |folder: &Path| item.unpack(&apt, folder);
        let placed = folder::announce(&item.described(), || folder::place(&item.destination(tools), fill));
        if let Err(error) = placed {
            let mut reason = format!("{error:#}");
            if let Err(error) = &update {
                reason.push_str(&format!("\n  and before that: {error:#}"));
            }
            left_out(item, &reason);
        }
    }
    Ok(())
}

/// Returns Debian's name for an architecture, or `None` if Debian has no packages for it.
pub fn debian_name(arch: Arch) -> Option<&'static str> {
    match arch {
        Arch::X86_64 => Some("amd64"),
        Arch::Aarch64 => Some("arm64"),
        Arch::Riscv64 => None,
        Arch::I686 => Some("i386"),
        Arch::Arm => Some("armhf"),
    }
}

/// apt with its own state in a folder, and with the machine's sources, keys and proxies.
pub struct Apt {
    folder: PathBuf,
    /// A list of sources that replaces the machine's.
    sources: Option<PathBuf>,
}

impl Apt {
    /// Prepares apt with the lists of the machine's own architecture and of `foreign` ones. dpkg's own list of
    /// architectures stays unchanged.
    pub fn new(folder: &Path, foreign: impl Iterator<Item = &'static str>) -> Result<Apt> {
        for name in ["lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(folder.join(name))?;
        }
        fs::write(folder.join("status"), "")?;
        let own = command::output(Command::new("dpkg").arg("--print-architecture"))?;
        let mut configuration = String::from(CONFIGURATION);
        let mut names = vec![own.trim().to_owned()];
        names.extend(foreign.filter(|name| *name != own.trim()).map(str::to_owned));
        for name in names {
            configuration.push_str(&format!("APT::Architectures {{ \"{name}\"; }};\n"));
        }
        fs::write(folder.join("apt.conf"), configuration)?;
        Ok(Apt { folder: folder.to_owned(), sources: None })
    }

    /// Prepares apt with the packages of a different release of Debian, from the machine's own source.
    ///
    /// # Errors
    /// When the machine's sources do not name its release.
    pub fn of_release(folder: &Path, release: &str) -> Result<Apt> {
        let mut apt = Apt::new(folder, std::iter::empty())?;
        let system = fs::read_to_string("/etc/os-release").context("cannot read `/etc/os-release`")?;
        let own = system.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
        let own = own.context("`/etc/os-release` names no release of Debian")?.trim_matches('"');
        let candidates = ["/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list"];
        let found = candidates.iter().find_map(|path| {
            let text = fs::read_to_string(path).ok().filter(|text| text.contains(own))?;
            Some((Path::new(path).extension()?.to_owned(), text))
        });
        let (ending, text) = found.with_context(|| format!("apt's sources name no `{own}`"))?;
        let path = folder.join("release").with_extension(ending);
        fs::write(&path, text.replace(own, release))?;
        apt.sources = Some(path);
        Ok(apt)
    }

    fn command(&self) -> Command {
        self.tool("apt-get")
    }

    /// Returns one of apt's commands with this state.
    fn tool(&self, name: &str) -> Command {
        let option = |key: &str, name: &str| format!("{key}={}", self.folder.join(name).display());
        let mut command = Command::new(name);
        command.current_dir(&self.folder).arg("--quiet").arg("--config-file").arg(self.folder.join("apt.conf"));
        for (key, name) in [("Dir::State::Lists", "lists"), ("Dir::State::status", "status"), ("Dir::Cache", "cache")] {
            command.arg("-o").arg(option(key, name));
        }
        if let Some(sources) = &self.sources {
            command.arg("-o").arg(format!("Dir::Etc::SourceList={}", sources.display()));
            command.args(["-o", "Dir::Etc::SourceParts=/dev/null"]);
        }
        command.env("DEBIAN_FRONTEND", "noninteractive");
        command
    }

    /// Downloads packages and all their dependencies. Returns the files: base-files is first, since it has the links
    /// from /bin to /usr/bin and the like; all are in one folder, which holds nothing else.
    ///
    /// # Errors
    /// When one cannot be fetched.
    pub fn download_whole(&self, packages: &[&str]) -> Result<Vec<PathBuf>> {
        let mut download = self.command();
        download.args(["--yes", "--download-only", "-o", "APT::Install-Recommends=false", "install"]);
        command::output(download.args(packages))?;
        let archives = self.folder.join("cache/archives");
        let mut files: Vec<PathBuf> = fs::read_dir(&archives)?.flatten().map(|entry| entry.path()).collect();
        files.retain(|path| path.extension().is_some_and(|ending| ending == "deb"));
        files.sort_by_key(|path| !path.to_string_lossy().contains("/base-files_"));
        Ok(files)
    }

    /// Returns the names of packages and of all their dependencies.
    ///
    /// # Errors
    /// When one is unknown.
    pub fn needed(&self, packages: &[&str]) -> Result<Vec<String>> {
        let mut simulate = self.command();
        simulate.args(["--simulate", "-o", "APT::Install-Recommends=false", "install"]);
        let said = command::output(simulate.args(packages))?;
        let names = said.lines().filter_map(|line| line.strip_prefix("Inst ")?.split_whitespace().next());
        Ok(names.map(str::to_owned).collect())
    }

    /// Downloads packages and all their dependencies, and unpacks them into `folder`. Runs none of their scripts.
    ///
    /// # Errors
    /// When one cannot be fetched.
    pub fn unpack_whole(&self, packages: &[&str], folder: &Path) -> Result<()> {
        for file in self.download_whole(packages)? {
            command::output(Command::new("dpkg-deb").arg("-x").arg(&file).arg(folder))?;
            fs::remove_file(file)?;
        }
        Ok(())
    }

    /// Returns the name of the package with the largest number among the packages named `series` and a number.
    ///
    /// # Errors
    /// When there is no such package.
    pub fn newest(&self, series: &str) -> Result<String> {
        let pattern = format!("^{series}[0-9]+$");
        let found = command::output(self.tool("apt-cache").args(["search", "--names-only", &pattern]))?;
        let names = found.lines().filter_map(|line| line.split_whitespace().next());
        let number = |name: &&str| name.trim_start_matches(series).parse().unwrap_or(0);
        let name = names.max_by_key(number).with_context(|| format!("no package is called `{series}` and a number"))?;
        Ok(name.to_owned())
    }

    /// Returns upstream's part of the newest version of a package.
    ///
    /// # Errors
    /// When there is no package of that name.
    pub fn version(&self, package: &str) -> Result<String> {
        let known = command::output(self.tool("apt-cache").args(["madison", package]))?;
        let version = known.lines().next().and_then(|line| line.split('|').nth(1));
        let version = version.with_context(|| format!("apt knows no version of `{package}`"))?;
        Ok(upstream_part(version.trim()).to_owned())
    }

    /// Updates the lists of packages.
    ///
    /// # Errors
    /// When a source cannot be reached.
    pub fn update(&self) -> Result<()> {
        command::output(self.command().arg("update")).map(|_| ())
    }

    /// Downloads `package` (`name` or `name:architecture`) and unpacks it into `folder`.
    pub fn unpack(&self, package: &str, folder: &Path) -> Result<()> {
        let downloads = folder::Scratch::beside(&self.folder.join("packages"), "download")?;
        command::output(self.command().args(["download", package]).current_dir(&downloads.0))?;
        let file =
            fs::read_dir(&downloads.0)?.next().with_context(|| format!("apt downloaded nothing for {package}"))??;
        command::output(Command::new("dpkg-deb").arg("-x").arg(file.path()).arg(folder)).map(|_| ())
    }

    /// Unpacks the first of these packages that exists.
    fn unpack_first(&self, packages: &[&str], folder: &Path) -> Result<()> {
        let (last, others) = packages.split_last().context("no package is named")?;
        match others.iter().any(|package| self.unpack(package, folder).is_ok()) {
            true => Ok(()),
            false => self.unpack(last, folder),
        }
    }

    /// Unpacks the emulators, and keeps only those for allograft's architectures.
    fn unpack_qemu(&self, folder: &Path) -> Result<()> {
        let names: Vec<&str> = Arch::ALL.into_iter().map(fixtures::emulator_name).collect();
        let unpacked = folder.join("usr/bin");
        fs::create_dir_all(&unpacked)?;
        // From Debian 13 on, qemu-user itself is static, and qemu-user-static has links to it.
        for (package, ending) in [("qemu-user-static", "-static"), ("qemu-user", "")] {
            let all = folder::Scratch::beside(&self.folder.join(package), "all")?;
            self.unpack(package, &all.0)?;
            let program = |name: &&str| all.0.join("usr/bin").join(format!("{name}{ending}"));
            if names.iter().all(|name| fs::symlink_metadata(program(name)).is_ok_and(|found| found.is_file())) {
                for name in &names {
                    fs::copy(program(name), unpacked.join(format!("{name}-static")))?;
                }
                return Ok(());
            }
        }
        bail!("neither qemu-user-static nor qemu-user holds {}", names.join(", "))
    }
}

/// Returns upstream's part of a version: without the epoch before the colon and Debian's revision behind the last
/// hyphen.
fn upstream_part(version: &str) -> &str {
    let version = version.split_once(':').map_or(version, |(_, rest)| rest);
    version.rsplit_once('-').map_or(version, |(upstream, _)| upstream)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epochs_and_revisions_are_not_upstreams() {
        assert_eq!(upstream_part("1:22.1.8-1+b2"), "22.1.8");
        assert_eq!(upstream_part("1:22.1.8-1~deb12u1"), "22.1.8");
        assert_eq!(upstream_part("2.0-rc1-3"), "2.0-rc1");
        assert_eq!(upstream_part("5"), "5");
    }
}

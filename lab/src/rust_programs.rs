//! `cargo xtask bench rust`: Rust programs with threads, built by one toolchain in four ways: with stock musl, with a
//! graft made by hand, by `cargo allograft`, and for glibc.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use data_encoding::HEXLOWER;
use measure::case::{Arm, Case};
use measure::report;
use measure::results::{Input, Origin, Results};
use measure::session::Plan;
use serde_json::Value;
use sha2::{Digest, Sha256};
use tools::{command, table, workspace};
use xtask::sessions;
use zigcc::Arch;

use crate::builds::carries;
use crate::experiment::{self, Bench, Experiment};
use crate::handmade;

/// The experiment.
pub(crate) const EXPERIMENT: Experiment<Results> =
    Experiment { name: "rust", programs: &NAMES, minutes: 7, table: report::markdown };

/// The names of the programs.
pub(crate) const NAMES: [&str; 2] = ["compile", "format"];

/// The programs of `suite/rust`, with their arguments besides the number of threads, by [`Amount`].
static PROGRAMS: [Program; 2] =
    [Program { name: "compile", work: ["800", "300", "100"] }, Program { name: "format", work: ["3", "1", "1"] }];

/// One of the programs.
pub(crate) struct Program {
    name: &'static str,
    work: [&'static str; 3],
}

/// How much work a run does.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Amount {
    Full,
    /// For many arms: more rounds in the same time say more than longer runs.
    Less,
    Quick,
}

/// The input of `format`: source packages from the lock file.
const READ: [&str; 3] = ["cranelift-codegen", "regalloc2", "wasmparser"];

/// The arms, stock first: the name, and the allocator that `inspect` must find.
const ARMS: [(&str, &str); 4] =
    [("stock", "mallocng"), ("hand-made", "mimalloc"), ("cargo-allograft", "snmalloc"), ("glibc", "glibc")];

/// Builds, inspects and measures the programs.
///
/// # Errors
/// A program does not build, carries the wrong allocator, or its answer differs from stock's.
pub(crate) fn measure(bench: &Bench) -> Result<Results> {
    table::prepare_named(&["rust"])?;
    eprintln!("bench: building allograft ...");
    let builds = RustBuilds::new(&bench.home, &command::build_allograft()?, &command::build_cargo_allograft()?)?;
    builds.hand_made()?;
    let mut cases = Vec::new();
    let amount = if bench.quick { Amount::Quick } else { Amount::Full };
    for program in programs(|name| bench.has(name)) {
        cases.extend(builds.cases(program, &builds.build(program)?, amount)?);
    }
    let origins: Vec<Origin> = cases.first().context("nothing to measure")?.arms.iter().map(origin).collect();
    experiment::compared(builds.input()?, &origins, &cases, Plan { count_calls: true, ..bench.plan(6, 1.0) })
}

/// The build method of an arm.
#[derive(Clone, Copy)]
pub(crate) enum BuildMethod<'w> {
    /// By cargo, for musl.
    Stock,
    /// By cargo, for musl, with the `libc.a` of this folder.
    Search(&'w Path),
    /// By `cargo allograft`.
    Subcommand,
    /// By cargo, for glibc.
    Glibc,
}

/// Returns the programs whose names are `wanted`.
pub(crate) fn programs(wanted: impl Fn(&str) -> bool) -> impl Iterator<Item = &'static Program> {
    PROGRAMS.iter().filter(move |program| wanted(program.name))
}

/// The tools and folders of the builds.
pub(crate) struct RustBuilds {
    home: PathBuf,
    allograft: PathBuf,
    /// The folder with `cargo-allograft`.
    subcommands: PathBuf,
    toolchain: PathBuf,
    arch: Arch,
    /// Folders of locked packages by name.
    packages: Vec<(String, PathBuf)>,
}

impl RustBuilds {
    /// `subcommand` is a program in the folder of `cargo-allograft`.
    ///
    /// # Errors
    /// There is no toolchain for this machine, or the packages cannot be fetched.
    pub(crate) fn new(home: &Path, allograft: &Path, subcommand: &Path) -> Result<RustBuilds> {
        let arch = fixtures::RUST_MUSL.into_iter().find(|arch| fixtures::native(*arch));
        let arch = arch.with_context(|| format!("there is no Rust for musl on {}", std::env::consts::ARCH))?;
        let subcommands = subcommand.parent().context("a program without a folder")?.to_owned();
        let (home, allograft, toolchain) = (home.to_owned(), allograft.to_owned(), fixtures::rust_musl());
        let mut builds = RustBuilds { home, allograft, subcommands, toolchain, arch, packages: Vec::new() };
        let said =
            command::output(builds.cargo(&["metadata", "--locked", "--format-version", "1"]).stderr(Stdio::inherit()))?;
        let metadata: Value = serde_json::from_str(&said).context("`cargo metadata` printed no JSON")?;
        for package in metadata["packages"].as_array().context("no packages")? {
            let (name, manifest) = (package["name"].as_str(), package["manifest_path"].as_str());
            let (name, manifest) = name.zip(manifest).context("a package without a name")?;
            let folder = Path::new(manifest).parent().context("a manifest without a folder")?;
            builds.packages.push((name.to_owned(), folder.to_owned()));
        }
        Ok(builds)
    }

    /// Returns the cargo of the toolchain with musl, for `suite/rust`.
    fn cargo(&self, arguments: &[&str]) -> Command {
        let bin = self.toolchain.join("bin");
        let mut cargo = Command::new(bin.join("cargo"));
        command::apart(&mut cargo);
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = [bin, self.subcommands.clone()].into_iter().chain(std::env::split_paths(&path));
        if let Ok(path) = std::env::join_paths(folders) {
            cargo.env("PATH", path);
        }
        cargo.env("CARGO_TARGET_DIR", self.home.join("build"));
        cargo.current_dir(workspace::root().join("suite").join("rust")).args(arguments);
        cargo
    }

    fn package(&self, name: &str) -> Result<&Path> {
        let found = self.packages.iter().find(|(package, _)| package == name);
        Ok(&found.with_context(|| format!("`suite/rust/Cargo.lock` has no package `{name}`"))?.1)
    }

    fn musl_target(&self) -> &'static str {
        fixtures::rust_target(self.arch)
    }

    fn hand_made(&self) -> Result<()> {
        let mimalloc = self.package("libmimalloc-sys")?.join("c_src/mimalloc/v3");
        handmade::make(&self.libc(), &mimalloc, &self.home.join("hand-made"))
    }

    /// Builds and inspects the program of each arm. Leaves out arms that the toolchain cannot build for.
    fn build(&self, program: &Program) -> Result<Vec<(String, PathBuf)>> {
        let hand_made = self.home.join("hand-made");
        let mut built = Vec::new();
        for (arm, expected) in ARMS {
            let method = match arm {
                "glibc" => BuildMethod::Glibc,
                "hand-made" => BuildMethod::Search(&hand_made),
                "cargo-allograft" => BuildMethod::Subcommand,
                _ => BuildMethod::Stock,
            };
            match self.build_arm(program, arm, method, expected)? {
                Some(path) => built.push((arm.to_owned(), path)),
                None => eprintln!("bench: the toolchain builds nothing for glibc: that arm is left out"),
            }
        }
        Ok(built)
    }

    /// Builds the program for one arm, inspects it, and returns its path; `None` if the toolchain cannot build for
    /// glibc.
    ///
    /// # Errors
    /// The program does not build, or does not carry the expected allocator.
    pub(crate) fn build_arm(
        &self,
        program: &Program,
        arm: &str,
        method: BuildMethod<'_>,
        expected: &str,
    ) -> Result<Option<PathBuf>> {
        let glibc = format!("{}-unknown-linux-gnu", self.arch.name());
        let target = if matches!(method, BuildMethod::Glibc) { &glibc } else { self.musl_target() };
        if matches!(method, BuildMethod::Glibc) && !self.toolchain.join("lib/rustlib").join(target).join("lib").is_dir()
        {
            return Ok(None);
        }
        eprintln!("bench: building {} with {arm} ...", program.name);
        let mut cargo = match method {
            BuildMethod::Subcommand => self.cargo(&["allograft", "build"]),
            // The flags apply to the program only, so that its dependencies are compiled once.
            BuildMethod::Search(_) => self.cargo(&["rustc"]),
            BuildMethod::Stock | BuildMethod::Glibc => self.cargo(&["build"]),
        };
        cargo.args(["--release", "--locked", "--quiet", "--package", program.name, "--target", target]);
        if let BuildMethod::Search(folder) = method {
            let search = named_by_libc(folder, &self.home.join("search"))?;
            cargo.args(["--", "-L", &format!("native={}", search.display())]);
        }
        command::run(&mut cargo)?;
        let from = self.home.join("build").join(target).join("release").join(program.name);
        let folder = self.home.join("programs").join(arm);
        fs::create_dir_all(&folder)?;
        let kept = folder.join(program.name);
        fs::copy(&from, &kept).with_context(|| format!("cannot copy `{}`", from.display()))?;
        carries(&self.allograft, &kept, expected)?;
        Ok(Some(kept))
    }

    /// The stock `libc.a` of the toolchain.
    pub(crate) fn libc(&self) -> PathBuf {
        fixtures::rust_libc_below(&self.toolchain, self.arch)
    }

    /// Returns a case with one thread, and one with a thread for each processor.
    ///
    /// # Errors
    /// The input of a program is missing.
    pub(crate) fn cases(&self, program: &Program, built: &[(String, PathBuf)], amount: Amount) -> Result<Vec<Case>> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let work = program.work[amount as usize];
        let folders: Vec<PathBuf> = match program.name {
            "format" => READ.iter().map(|name| self.package(name).map(Path::to_owned)).collect::<Result<_>>()?,
            _ => Vec::new(),
        };
        let mut counts = vec![1, processors];
        counts.dedup();
        let case = |threads: usize| {
            let arguments = |_: &str| {
                let threads = threads.to_string();
                let words = if program.name == "format" { [threads, work.into()] } else { [work.into(), threads] };
                let words = words.into_iter().map(OsString::from);
                words.chain(folders.iter().map(|folder| folder.clone().into())).collect::<Vec<_>>()
            };
            let arm = |(name, path): &(String, PathBuf)| sessions::arm(name, path, arguments(name));
            Case {
                name: program.name.to_owned(),
                threads: u32::try_from(threads).ok(),
                size: None,
                arms: built.iter().map(arm).collect(),
            }
        };
        Ok(counts.into_iter().map(case).collect())
    }

    fn input(&self) -> Result<Input> {
        let libc = self.libc();
        let bytes = fs::read(&libc).with_context(|| format!("cannot read `{}`", libc.display()))?;
        let host_sha256 = HEXLOWER.encode(&Sha256::digest(bytes));
        let target = self.musl_target();
        let build = |command: &str| format!("cargo {command} --release --target {target}");
        let commands = vec![
            ("stock".to_owned(), build("build")),
            ("hand-made".to_owned(), format!("{} -- -L native=hand-made", build("rustc"))),
            ("cargo-allograft".to_owned(), build("allograft build")),
        ];
        Ok(Input { kind: "program".to_owned(), commands, host: format!("rust:{target}"), host_sha256 })
    }
}

/// Makes a link below `home` to a folder, with a name that depends on the content of the folder's `libc.a`, and returns
/// it. Cargo relinks a program when its arguments have changed, but not when a library has.
fn named_by_libc(folder: &Path, home: &Path) -> Result<PathBuf> {
    let libc = folder.join("libc.a");
    let bytes = fs::read(&libc).with_context(|| format!("cannot read `{}`", libc.display()))?;
    let link = home.join(HEXLOWER.encode(&Sha256::digest(bytes)[..8]));
    fs::create_dir_all(home)?;
    let _ = fs::remove_file(&link);
    symlink(folder, &link).with_context(|| format!("cannot make `{}`", link.display()))?;
    Ok(link)
}

fn origin(arm: &Arm) -> Origin {
    let graft = arm.name == "cargo-allograft";
    Origin {
        name: arm.name.clone(),
        donor: graft.then(|| "snmalloc".to_owned()),
        strings: graft,
        command: graft.then(|| "cargo allograft build --release".to_owned()),
        eligible: graft || arm.name == "stock",
        ..Origin::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_libc_is_another_argument_for_cargo() {
        let home = tempfile::tempdir().unwrap();
        let (folder, links) = (home.path().join("snmalloc"), home.path().join("search"));
        fs::create_dir(&folder).unwrap();
        let with = |libc: &str| {
            fs::write(folder.join("libc.a"), libc).unwrap();
            named_by_libc(&folder, &links).unwrap()
        };
        let (first, second) = (with("one graft"), with("another"));
        assert_ne!(first, second);
        assert_eq!(fs::read_to_string(second.join("libc.a")).unwrap(), "another");
        assert_eq!(with("one graft"), first);
    }
}

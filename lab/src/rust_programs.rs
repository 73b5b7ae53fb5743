//! `cargo xtask bench rust`: Rust programs with threads, built by one toolchain in four ways: with stock musl, with a
//! graft made by hand, by `cargo allograft`, and for glibc.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use data_encoding::HEXLOWER;
use measure::case::{Arm, Case};
use measure::machine::{Machine, Watch};
use measure::process::Processes;
use measure::results::{self, CaseResult, Input, Origin, Results, SCHEMA_VERSION};
use measure::session::Plan;
use serde_json::Value;
use sha2::{Digest, Sha256};
use tools::{command, folder, rust, workspace};
use xtask::sessions;
use zigcc::Arch;

use crate::handmade;

/// The programs of `suite/rust`, with their arguments besides the number of threads: full, quick.
static PROGRAMS: [Program; 2] =
    [Program { name: "compile", work: ["800", "100"] }, Program { name: "format", work: ["3", "1"] }];

/// One of the programs.
pub(crate) struct Program {
    name: &'static str,
    work: [&'static str; 2],
}

/// The input of `format`: source packages from the lock file.
const READ: [&str; 3] = ["cranelift-codegen", "regalloc2", "wasmparser"];

/// The arms, stock first: the name, and the allocator that `inspect` must find.
const ARMS: [(&str, &str); 4] =
    [("stock", "mallocng"), ("hand-made", "mimalloc"), ("cargo-allograft", "snmalloc"), ("glibc", "glibc")];

/// The command's arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct RustArgs {
    /// Less work, and a single round
    #[arg(long)]
    quick: bool,
    /// Keep the figures in this file
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// These programs only
    #[arg(value_parser = ["compile", "format"])]
    programs: Vec<String>,
}

/// Builds, inspects, measures and prints.
///
/// # Errors
/// A program does not build, carries the wrong allocator, or its answer differs from stock's.
pub(crate) fn bench(args: &RustArgs) -> Result<()> {
    let (quick, names) = (args.quick, &args.programs);
    ensure!(args.save.is_none() || !quick && names.is_empty(), "a run with --quick, or of some programs, is not kept");
    let chosen = |program: &&Program| names.is_empty() || names.iter().any(|name| *name == program.name);
    tools::prepare_for_one()?;
    rust::prepare()?;
    eprintln!("bench: building allograft ...");
    let (allograft, subcommand) = (command::build_allograft()?, command::build_cargo_allograft()?);
    let home = workspace::build().join("bench").join("rust");
    fs::create_dir_all(&home)?;
    let _lock = folder::lock(&home.join(".lock"))?;
    let bench = Bench::new(home, allograft, subcommand)?;
    bench.hand_made()?;
    let mut cases = Vec::new();
    for program in PROGRAMS.iter().filter(chosen) {
        let built = bench.build(program)?;
        cases.extend(bench.cases(program, &built, quick)?);
    }
    bench.measure(&cases, quick, args.save.as_deref())
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
pub(crate) struct Bench {
    home: PathBuf,
    allograft: PathBuf,
    /// The folder with `cargo-allograft`.
    subcommands: PathBuf,
    toolchain: PathBuf,
    arch: Arch,
    /// Folders of locked packages by name.
    packages: Vec<(String, PathBuf)>,
}

impl Bench {
    /// `subcommand` is a program in the folder of `cargo-allograft`.
    ///
    /// # Errors
    /// There is no toolchain for this machine, or the packages cannot be fetched.
    pub(crate) fn new(home: PathBuf, allograft: PathBuf, subcommand: PathBuf) -> Result<Bench> {
        let arch = fixtures::RUST_MUSL.into_iter().find(|arch| fixtures::native(*arch));
        let arch = arch.with_context(|| format!("there is no Rust for musl on {}", std::env::consts::ARCH))?;
        let subcommands = subcommand.parent().context("a program without a folder")?.to_owned();
        let mut bench =
            Bench { home, allograft, subcommands, toolchain: fixtures::rust_musl(), arch, packages: Vec::new() };
        let said =
            command::output(bench.cargo(&["metadata", "--locked", "--format-version", "1"]).stderr(Stdio::inherit()))?;
        let metadata: Value = serde_json::from_str(&said).context("`cargo metadata` printed no JSON")?;
        for package in metadata["packages"].as_array().context("no packages")? {
            let (name, manifest) = (package["name"].as_str(), package["manifest_path"].as_str());
            let (name, manifest) = name.zip(manifest).context("a package without a name")?;
            let folder = Path::new(manifest).parent().context("a manifest without a folder")?;
            bench.packages.push((name.to_owned(), folder.to_owned()));
        }
        Ok(bench)
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
    pub(crate) fn cases(&self, program: &Program, built: &[(String, PathBuf)], quick: bool) -> Result<Vec<Case>> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let work = program.work[usize::from(quick)];
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

    fn measure(&self, cases: &[Case], quick: bool, save: Option<&Path>) -> Result<()> {
        let budget = Duration::from_secs(if quick { 0 } else { 100 });
        let plan = Plan { budget, least_rounds: if quick { 1 } else { 6 }, memory_runs: 1, ..Plan::default() };
        let (mut measured, mut sessions) = (Vec::new(), Vec::new());
        for case in cases {
            eprintln!("bench: measuring {} ...", case.title());
            let watch = Watch::start();
            let session = sessions::compare(case, &plan, &mut Processes::default())?;
            let result = CaseResult::new(case, &session, &plan, watch.finish());
            measured.push(result);
            sessions.push(session);
        }
        let origins: Vec<Origin> = cases.first().context("nothing to measure")?.arms.iter().map(origin).collect();
        let results = Results {
            schema_version: SCHEMA_VERSION,
            allograft: env!("CARGO_PKG_VERSION").to_owned(),
            input: self.input()?,
            machine: Machine::this(),
            arms: results::arms(&origins, &measured, &sessions),
            plan,
            cases: measured,
            recommendation: None,
            warnings: Vec::new(),
            interrupted: false,
        };
        let kept = self.home.join("results.json");
        fs::write(&kept, results.json()?)?;
        command::run(Command::new(&self.allograft).args(["bench", "--from"]).arg(&kept))?;
        println!("every run: `{}`; as a page: `allograft bench --from FILE --html OUT`", workspace::shown(&kept));
        if let Some(path) = save {
            fs::write(path, results::compact(&results.without_runs())?)
                .with_context(|| format!("cannot write `{}`", path.display()))?;
        }
        Ok(())
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

/// Checks with `allograft inspect` which allocator a program carries.
///
/// # Errors
/// The program carries a different allocator.
pub(crate) fn carries(allograft: &Path, program: &Path, expected: &str) -> Result<()> {
    let said = command::output(Command::new(allograft).args(["inspect", "--json"]).arg(program))?;
    let document: Value = serde_json::from_str(&said).context("`inspect --json` printed no JSON")?;
    let file = &document["files"][0];
    let (name, version) = (&file["malloc"]["name"], &file["malloc"]["version"]);
    let shown = workspace::shown(program);
    println!(
        "{shown}: malloc {} {}, strings {}, {}",
        name.as_str().unwrap_or("?"),
        version.as_str().unwrap_or(""),
        file["strings"].as_str().unwrap_or("?"),
        file["link"].as_str().unwrap_or("?"),
    );
    ensure!(*name == expected, "`{shown}` carries {name}, expected `{expected}`");
    Ok(())
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

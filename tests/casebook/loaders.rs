//! Conformance programs that are linked dynamically, started by a grafted musl loader: Debian's for each architecture,
//! and in the slow tier musl as others build it. Each passes wherever it passes by the stock loader. The default tier
//! runs a part.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::{Arc, Mutex};

use casebook::finished::{self, Graft};
use conformance::Program;
use fixtures::musls::{self, Build};
use fixtures::{Arch, link};
use hosts::Request;
use libtest_mimic::{Arguments, Failed, Trial};

/// The part of a program's work that is done, in percent: in the default tier, and in the slow one. An emulator takes
/// ten times as long.
fn scales(arch: Arch) -> [&'static str; 2] {
    if fixtures::runs_here(arch) { ["3", "15"] } else { ["1", "5"] }
}

/// The programs of the default tier. Donors other than the default one run the first of them only.
const FAST: [&str; 6] = ["family", "threads", "thread_exit", "fork_owners", "libc_callers", "interposer"];

/// The stock loader of a test.
#[derive(Clone)]
struct Stock {
    arch: Arch,
    /// Its name in the names of tests.
    name: String,
    path: fn(&Stock) -> PathBuf,
    /// The programs that also fail by the stock loader.
    fails: &'static [&'static str],
}

impl Stock {
    fn debians(arch: Arch) -> Stock {
        let path = |stock: &Stock| fixtures::musl_loader(stock.arch);
        // It is written for static programs.
        Stock { arch, name: arch.name().to_owned(), path, fails: &["sandbox"] }
    }

    fn built(build: Build) -> Stock {
        let path = |stock: &Stock| {
            let build = musls::builds().find(|build| stock.name == build.name()).expect("a build of that name");
            build.loader()
        };
        // 1.2.2 finds libc's memalign for a program that brings malloc alone (src/malloc/memalign.c).
        let fails: &[&str] = if build.release.version == "1.2.2" { &["sandbox", "interposer"] } else { &["sandbox"] };
        Stock { arch: Arch::X86_64, name: build.name(), path, fails }
    }

    fn path(&self) -> PathBuf {
        (self.path)(self)
    }
}

/// Grafted loaders, made when they are wanted, and the folder for programs.
struct Bench {
    folder: tempfile::TempDir,
    made: Mutex<()>,
}

impl Bench {
    /// The loader with that donor in it.
    fn loader(&self, stock: &Stock, graft: Graft) -> Result<PathBuf, String> {
        let _made = self.made.lock().map_err(|error| error.to_string())?;
        let out = self.folder.path().join(format!("{}-{}.so", graft.name(), stock.name));
        if !out.is_file() {
            let request = Request { out: Some(out.clone()), ..finished::request(graft) };
            hosts::graft(&stock.path(), &request).map_err(|error| error.to_string())?;
        }
        Ok(out)
    }

    /// Links the program dynamically. It names this loader, since some programs start themselves again.
    fn program(&self, stock: &Stock, program: &Program, label: &str, loader: &Path) -> Result<PathBuf, String> {
        let arch = stock.arch;
        let (object, out) = (self.folder.path().join(format!("{label}.o")), self.folder.path().join(label));
        let runtime = self.folder.path().join(format!("{label}.a"));
        fs::write(&object, program.object(arch)).map_err(|error| error.to_string())?;
        fs::write(&runtime, conformance::runtime_library(arch)).map_err(|error| error.to_string())?;
        let musl = fixtures::debian_musl(arch);
        let beside = |name: &str| musl.libdir.join(name);
        let mut linker = if arch == Arch::X86_64 { link::gnu() } else { link::lld() };
        linker.args(["-pie", "-dynamic-linker"]).arg(loader).arg("-o").arg(&out);
        linker.args([beside("Scrt1.o"), beside("crti.o"), object]);
        // By its bare name, or the program would load the stock file by its path as one more library.
        linker.arg("-L").arg(stock.path().with_file_name("")).arg("-l:libc.so");
        linker.args([runtime, beside("crtn.o")]);
        let linked = linker.output().map_err(|error| error.to_string())?;
        match linked.status.success() {
            true => Ok(out),
            false => Err(String::from_utf8_lossy(&linked.stderr).into_owned()),
        }
    }

    /// Checks the program by the loader with that donor.
    fn check(&self, stock: &Stock, graft: Graft, program: &Program, label: &str, scale: &str) -> Result<(), String> {
        let by = |loader: &Path, donor| {
            run(stock.arch, donor, &self.program(stock, program, label, loader)?, program, scale)
        };
        match by(&self.loader(stock, graft)?, Some(graft.donor.name)) {
            // What fails by stock says nothing about a graft.
            Err(_) if stock.fails.contains(&program.name) && by(&stock.path(), None).is_err() => Ok(()),
            Err(said) => Err(format!("by the graft: {said}")),
            Ok(()) => Ok(()),
        }
    }
}

/// Runs the program, whose loader has that donor, or is stock. An error is what it says. That the donor serves is asked
/// of one program only, since others expect that nobody prints anything.
fn run(arch: Arch, donor: Option<&str>, path: &Path, program: &Program, scale: &str) -> Result<(), String> {
    let mut command = match fixtures::runs_here(arch) {
        true => {
            let mut command = Command::new("timeout");
            command.args(["-s", "KILL", &program.seconds.to_string()]).arg(path);
            command
        }
        false => fixtures::run(arch, path),
    };
    let asked = donor.filter(|_| program.name == FAST[0]);
    if asked.is_some() {
        command.env("ALLOGRAFT_VERBOSE", "1");
    }
    let output = command.env("ALLOGRAFT_SCALE", scale).output().map_err(|error| error.to_string())?;
    if let Some(donor) = asked
        && !String::from_utf8_lossy(&output.stderr).contains(&format!("allograft: {donor} "))
    {
        return Err(format!("{donor} does not serve it"));
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    match output.status.success() && text.lines().any(|line| line == format!("ok {}", program.name)) {
        true => Ok(()),
        false => Err(format!("{}: {text}{}", output.status, String::from_utf8_lossy(&output.stderr))),
    }
}

fn main() -> ExitCode {
    let folder = tempfile::tempdir().expect("a folder for programs");
    let bench = Arc::new(Bench { folder, made: Mutex::new(()) });
    let debians = fixtures::LOADERS.into_iter().map(|arch| (Stock::debians(arch), true));
    // Without a linkage table, libc.so reaches its own malloc in another way, and is refused.
    let others = musls::builds().filter(|build| build.flags.name != "no-plt").map(|build| (Stock::built(build), false));
    let mut trials = Vec::new();
    for (stock, debians) in debians.chain(others) {
        let fitting = || donors::all().iter().filter(|donor| donor.has_loader(stock.arch));
        let default = donors::defaults().find(|donor| donor.has_loader(stock.arch)).expect("a default for loaders");
        let alone = fitting().map(|donor| Graft { donor, strings: false });
        let grafts: Vec<Graft> = alone.chain(debians.then_some(Graft { donor: default, strings: true })).collect();
        for (program, graft) in
            conformance::programs().iter().flat_map(|program| grafts.iter().map(move |graft| (program, *graft)))
        {
            let own = graft.donor.name == default.name && !graft.strings;
            let fast = debians && (FAST.contains(&program.name) && own || program.name == FAST[0]);
            let [short, part] = scales(stock.arch);
            let scale = if fast || !debians { short } else { part };
            let name = format!("loader/{}/{}/{}", stock.name, program.name, graft.name());
            let (bench, stock, label) = (Arc::clone(&bench), stock.clone(), name.replace('/', "-"));
            let test = move || bench.check(&stock, graft, program, &label, scale).map_err(Failed::from);
            trials.push(Trial::test(name, test).with_ignored_flag(!fast));
        }
    }
    for build in musls::builds().filter(|build| build.flags.name == "no-plt") {
        let test = move || {
            let out = std::env::temp_dir().join("allograft-no-such-graft");
            let request = Request { out: Some(out), ..Request::of(donors::default_for(Arch::X86_64)) };
            match hosts::graft(&build.loader(), &request).map_err(|error| error.to_string()) {
                Err(said) if said.contains("calls `malloc` through 0 slots") => Ok(()),
                other => Err(Failed::from(format!("{:?}", other.map(|_| "grafted")))),
            }
        };
        trials.push(Trial::test(format!("loader/{}/refused", build.name()), test).with_ignored_flag(true));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

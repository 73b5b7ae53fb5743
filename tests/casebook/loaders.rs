//! Conformance programs that are linked dynamically, started by a grafted musl loader. Each passes wherever it passes
//! by the stock loader. The default tier runs a part.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::{Arc, Mutex};

use conformance::Program;
use donors::Donor;
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

/// The programs that also fail by the stock loader: they are written for static programs.
const STATIC_ONLY: [&str; 1] = ["sandbox"];

/// Grafted loaders, made when they are wanted, and the folder for programs.
struct Bench {
    folder: tempfile::TempDir,
    made: Mutex<()>,
}

impl Bench {
    /// The loader with that donor in it.
    fn loader(&self, arch: Arch, donor: &'static Donor) -> Result<PathBuf, String> {
        let _made = self.made.lock().map_err(|error| error.to_string())?;
        let out = self.folder.path().join(format!("{}-{}.so", donor.name, arch.name()));
        if !out.is_file() {
            let request = Request { out: Some(out.clone()), untested: true, ..Request::of(donor) };
            hosts::graft(&fixtures::musl_loader(arch), &request).map_err(|error| error.to_string())?;
        }
        Ok(out)
    }

    /// Links the program dynamically. Which loader it names does not matter: it is started by command.
    fn program(&self, arch: Arch, program: &Program, label: &str) -> Result<PathBuf, String> {
        let (object, out) = (self.folder.path().join(format!("{label}.o")), self.folder.path().join(label));
        let runtime = self.folder.path().join(format!("{label}.a"));
        fs::write(&object, program.object(arch)).map_err(|error| error.to_string())?;
        fs::write(&runtime, conformance::runtime_library(arch)).map_err(|error| error.to_string())?;
        let musl = fixtures::debian_musl(arch);
        let beside = |name: &str| musl.libdir.join(name);
        let mut linker = if arch == Arch::X86_64 { link::gnu() } else { link::lld() };
        linker.args(["-pie", "-dynamic-linker", &format!("/lib/ld-musl-{}.so.1", arch.name()), "-o"]).arg(&out);
        linker.args([beside("Scrt1.o"), beside("crti.o"), object]);
        // By its bare name, or the program would load the stock file by its path as one more library.
        linker.arg("-L").arg(fixtures::musl_loader(arch).with_file_name("")).arg("-l:libc.so");
        linker.args([runtime, beside("crtn.o")]);
        let linked = linker.output().map_err(|error| error.to_string())?;
        match linked.status.success() {
            true => Ok(out),
            false => Err(String::from_utf8_lossy(&linked.stderr).into_owned()),
        }
    }
}

/// Runs the program by a loader with that donor, or the stock loader. An error is what it says.
fn run(
    (arch, loader): (Arch, &Path),
    donor: Option<&str>,
    path: &Path,
    program: &Program,
    scale: &str,
) -> Result<(), String> {
    let mut command = match fixtures::runs_here(arch) {
        true => {
            let mut command = Command::new("timeout");
            command.args(["-s", "KILL", &program.seconds.to_string()]).arg(loader);
            command
        }
        false => fixtures::run(arch, loader),
    };
    command.arg(path);
    let output = command.env("ALLOGRAFT_SCALE", scale).env("ALLOGRAFT_VERBOSE", "1").output();
    let output = output.map_err(|error| error.to_string())?;
    if let Some(donor) = donor
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
    let mut trials = Vec::new();
    for arch in fixtures::LOADERS {
        let default = donors::defaults().find(|donor| donor.has_loader(arch)).expect("a default donor for loaders");
        let pairs = conformance::programs().iter().flat_map(|program| {
            donors::all().iter().filter(|donor| donor.has_loader(arch)).map(move |it| (program, it))
        });
        for (program, donor) in pairs {
            let own = donor.name == default.name;
            let fast = FAST.contains(&program.name) && own || program.name == FAST[0];
            let [short, part] = scales(arch);
            let scale = if fast { short } else { part };
            let name = format!("loader/{}/{}/{}", arch.name(), program.name, donor.name);
            let (bench, label) = (Arc::clone(&bench), name.replace('/', "-"));
            let test = move || {
                let path = bench.program(arch, program, &label)?;
                match run((arch, &bench.loader(arch, donor)?), Some(donor.name), &path, program, scale) {
                    Ok(()) => Ok(()),
                    // What fails by stock says nothing about a graft.
                    Err(_)
                        if STATIC_ONLY.contains(&program.name)
                            && run((arch, &fixtures::musl_loader(arch)), None, &path, program, scale).is_err() =>
                    {
                        Ok(())
                    }
                    Err(said) => Err(Failed::from(format!("it passes by stock, and by the graft: {said}"))),
                }
            };
            trials.push(Trial::test(name, test).with_ignored_flag(!fast));
        }
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

//! Conformance programs that are linked dynamically, with musl and with glibc, and a donor merged into them. All pass,
//! except for those that are listed. The default tier runs a part.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;

use casebook::bench::Bench;
use casebook::dynamic::{self, Libc};
use casebook::finished;
use conformance::Program;
use donors::Donor;
use fixtures::Arch;
use fixtures::trials::in_group;
use hosts::Request;
use libtest_mimic::{Failed, Trial};

/// The part of a program's work that is done, in percent.
const SHORT: &str = "2";
const PART: &str = "15";
const WHOLE: &str = "100";

/// The program that finds heaps left behind by ended threads. With little work, such a heap cannot be distinguished
/// from a cache.
const WHOLE_HERE: &str = "thread_exit";

/// The programs of the default tier. Donors other than the default one run the first of them only.
const FAST: [&str; 5] = ["family", "threads", "thread_exit", "fork_owners", "libc_callers"];

/// The program that is also linked for fixed addresses: it takes the addresses of the family's functions.
const FIXED: &str = "family";

/// The programs that fail with stock, and merged too.
///
/// `sandbox` allows only those system calls that static programs make: a dynamic one reads libraries and files.
const FAILS: [&str; 1] = ["sandbox"];

/// The programs that fail with stock glibc, and pass with a donor: each thread's arena of glibc's malloc takes 64 MiB
/// of address space; and a part of glibc crashes without memory.
const MENDED: [&str; 2] = ["footprint", "no_memory"];

/// The programs that fail with stock glibc under qemu's user mode. The first two fail sometimes: children of a process
/// with threads hang. glibc's `posix_spawn` reports through memory shared by child and parent that a program cannot be
/// started, and the emulator's vfork shares none.
const FAILS_EMULATED: [&str; 4] = ["fork_owners", "fork_stress", "libc_callers", "spawn"];

/// The architecture, whether it is musl, and whether the program is position-independent.
const FORMS: [(Arch, bool, bool); 8] = [
    (Arch::X86_64, true, true),
    (Arch::X86_64, true, false),
    (Arch::X86_64, false, true),
    (Arch::X86_64, false, false),
    (Arch::Aarch64, true, true),
    (Arch::Aarch64, true, false),
    (Arch::Aarch64, false, true),
    (Arch::Aarch64, false, false),
];

/// The libc and the options that a program is linked with.
#[derive(Clone, Copy)]
struct ProgramForm {
    arch: Arch,
    musl: bool,
    position_independent: bool,
}

impl ProgramForm {
    fn name(self) -> String {
        let libc = if self.musl { "musl" } else { "glibc" };
        let fixed = if self.position_independent { "" } else { "-fixed" };
        let arch = if self.arch == Arch::X86_64 { String::new() } else { format!("-{}", self.arch) };
        format!("{libc}{arch}{fixed}")
    }

    /// Whether it runs under an emulator, with glibc.
    fn emulates_glibc(self) -> bool {
        !self.musl && !fixtures::runs_here(self.arch)
    }

    fn stock(self, bench: &Bench, program: &Program) -> PathBuf {
        let name = format!("{} {}", program.name, self.name());
        if !self.musl {
            return Libc::Glibc(self.arch).link(bench, program, self.position_independent, &name);
        }
        let stock = fixtures::musl_loader(self.arch);
        let loader = bench.made(&format!("loader {}", self.arch), |path| {
            fs::copy(&stock, path)
                .and_then(|_| fs::set_permissions(path, fs::Permissions::from_mode(0o755)))
                .map_err(|error| error.to_string())
        });
        let libc = Libc::Musl { arch: self.arch, library: &stock.with_file_name(""), loader: &loader };
        libc.link(bench, program, self.position_independent, &name)
    }
}

/// Merges the donor into the program, and runs it. A program with its own malloc is refused.
fn test(bench: &Bench, form: ProgramForm, program: &Program, donor: &'static Donor, scale: &str) -> Result<(), String> {
    let stock = form.stock(bench, program);
    let out = bench.path(&format!("{} {} {}", program.name, form.name(), donor.name));
    // For a foreign architecture the graft may be untested, since it is run below.
    let untested = !fixtures::runs_here(form.arch);
    let merged = hosts::graft(&stock, &Request { out: Some(out.clone()), untested, ..Request::new(donor) });
    match merged {
        Err(error) if program.name == finished::OWN_MALLOC => {
            let said = error.to_string();
            let refused = error.exit_code() == 3 && said.contains("another allocator's");
            return refused.then_some(()).ok_or(said);
        }
        Ok(_) if program.name == finished::OWN_MALLOC => return Err("it brings a malloc, and was merged".to_owned()),
        merged => merged.map_err(|error| error.to_string())?,
    };
    match dynamic::run(form.arch, &out, program, Some(donor.name), scale) {
        Err(_) if FAILS.contains(&program.name) => Ok(()),
        ran => ran,
    }
}

/// Runs the stock program: it fails only if it is listed.
fn stock(bench: &Bench, form: ProgramForm, program: &Program, scale: &str) -> Result<(), String> {
    // glibc's `valloc` does not call the program's `memalign`.
    let by_glibc = MENDED.contains(&program.name) || program.name == finished::OWN_MALLOC;
    let listed = FAILS.contains(&program.name) || !form.musl && by_glibc;
    // An emulator has no seccomp, refuses no memory, and does too little of the work for all faults to show.
    let may_pass = !fixtures::runs_here(form.arch);
    match dynamic::run(form.arch, &form.stock(bench, program), program, None, scale) {
        Ok(()) if listed && may_pass => Ok(()),
        Ok(()) if listed => Err("it passes: it is listed as one that fails".to_owned()),
        Err(_) if listed => Ok(()),
        ran => ran,
    }
}

type Test = Box<dyn FnOnce(&Bench) -> Result<(), String> + Send>;

pub(crate) fn trials(bench: &Arc<Bench>) -> Vec<Trial> {
    let mut trials = Vec::new();
    let mut add = |name: String, group: Option<&'static str>, test: Test| {
        let bench = Arc::clone(bench);
        trials.push(in_group(Trial::test(name, move || test(&bench).map_err(Failed::from)), group));
    };
    for program in conformance::programs() {
        for (arch, musl, position_independent) in FORMS {
            if !position_independent && program.name != FIXED {
                continue;
            }
            let form = ProgramForm { arch, musl, position_independent };
            if form.emulates_glibc() && FAILS_EMULATED.contains(&program.name) {
                continue;
            }
            let group = |slow: bool| match arch {
                Arch::X86_64 => slow.then_some("minutes"),
                arch => Some(arch.name()),
            };
            let whole = fixtures::runs_here(arch) && program.name == WHOLE_HERE;
            // An emulator takes ten times as long.
            let part = if fixtures::runs_here(arch) { PART } else { SHORT };
            for donor in donors::all().iter().filter(|donor| donor.has_library(arch)) {
                let is_default = donor.name == donors::DEFAULTS[0];
                let fast =
                    FAST.contains(&program.name) && is_default || program.name == FAST[0] && position_independent;
                let short = if fast { SHORT } else { part };
                let scale = if whole { WHOLE } else { short };
                let name = format!("merged/{}/{}/{}", form.name(), program.name, donor.name);
                add(name, group(!fast), Box::new(move |bench| test(bench, form, program, donor, scale)));
            }
            let name = format!("merged/{}/{}/stock", form.name(), program.name);
            add(name, group(true), Box::new(move |bench| stock(bench, form, program, part)));
        }
    }
    trials
}

//! Conformance programs with newer releases of the libcs than this machine's: linked with musl's `libc.a`, grafted, and
//! linked with glibc's, with a donor merged into them. The default donor passes all, and each other one
//! a part. All are of the slow tier.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use casebook::bench::{Bench, Donors, Host};
use casebook::dynamic::{self, Libc};
use casebook::finished;
use casebook::link::{LinkSetup, Linker, Mode};
use conformance::Program;
use donors::Donor;
use fixtures::trials::slow;
use fixtures::{Arch, glibcs};
use hosts::Request;
use libtest_mimic::{Failed, Trial};

/// The part of a program's work that is done, in percent.
const PART: &str = "10";

/// The programs that each donor runs. The default donor runs all.
const SOME: [&str; 5] = ["family", "fork_owners", "fork_stress", "threads", "thread_exit"];

/// The programs that are not merged: `sandbox` allows only the system calls of static programs, and `interposer` has
/// a malloc of its own.
const STATIC: [&str; 2] = ["sandbox", finished::OWN_MALLOC];

/// Links the program with the newest musl's archive, grafted, and runs it.
fn with_musl(bench: &Bench, program: &Program, donor: &'static Donor) -> Result<(), String> {
    let way = LinkSetup { host: Host::Newest, linker: Linker::Gnu, mode: Mode::StaticPie };
    let object = bench.file(&format!("{} x86_64.o", program.name), program.object(Arch::X86_64));
    let libc = bench.libc(way.host, Donors::both(donor.name), &[]);
    let folder = bench.path(&format!("{} {} {}", Host::Newest.name(), program.name, donor.name));
    std::fs::create_dir(&folder).map_err(|error| error.to_string())?;
    let linked = folder.join(program.name);
    way.link(bench, &libc, &[object], &[], &linked)?;
    let output = way.run(&linked, &[("ALLOGRAFT_SCALE".to_owned(), PART.to_owned())])?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr))),
    }
}

/// Merges the donor into the program, which is linked with that release of glibc, and runs it by glibc's loader.
fn with_glibc(bench: &Bench, release: glibcs::Release, program: &Program, donor: &'static Donor) -> Result<(), String> {
    let stock = stock(bench, release, program);
    let out = bench.path(&format!("{} glibc {} {}", program.name, release.debian, donor.name));
    let request = Request { out: Some(out.clone()), ..Request::new(donor) };
    hosts::graft(&stock, &request).map_err(|error| error.to_string())?;
    dynamic::run(Arch::X86_64, &out, program, Some(donor.name), PART)
}

fn stock(bench: &Bench, release: glibcs::Release, program: &Program) -> PathBuf {
    Libc::NewerGlibc(release).link(bench, program, true, &format!("{} glibc {}", program.name, release.debian))
}

/// Checks that Debian's release still has that release of glibc, or a newer one, by the loader's output.
fn is_as_new(release: glibcs::Release) -> Result<(), String> {
    release.libraries();
    let output = Command::new(release.loader()).arg("--version").output().map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&output.stdout);
    let version = said.split("stable release version ").nth(1).and_then(|rest| rest.split(['\n', ' ']).next());
    let number = |version: &str| version.trim_end_matches('.').split('.').nth(1)?.parse::<u32>().ok();
    match version.and_then(number) >= number(release.version) {
        true => Ok(()),
        false => Err(format!("{} has: {said}", release.debian)),
    }
}

type Test = Box<dyn FnOnce(&Bench) -> Result<(), String> + Send>;

pub(crate) fn trials(bench: &Arc<Bench>) -> Vec<Trial> {
    let mut trials = Vec::new();
    let mut add = |name: String, group: &'static str, test: Test| {
        let bench = Arc::clone(bench);
        trials.push(slow(Trial::test(name, move || test(&bench).map_err(Failed::from)), group));
    };
    let default = donors::default_for(Arch::X86_64);
    let is_run = |program: &Program, donor: &Donor| donor.name == default.name || SOME.contains(&program.name);
    for program in conformance::programs() {
        for donor in donors::all().iter().filter(|donor| is_run(program, donor)) {
            let name = format!("releases/{}/{}/{}", Host::Newest.name(), program.name, donor.name);
            add(name, "musls", Box::new(move |bench| with_musl(bench, program, donor)));
            let is_merged = donor.has_library(Arch::X86_64) && !STATIC.contains(&program.name);
            for release in glibcs::RELEASES.into_iter().filter(|_| is_merged) {
                let name = format!("releases/glibc-{}/{}/{}", release.debian, program.name, donor.name);
                add(name, "glibcs", Box::new(move |bench| with_glibc(bench, release, program, donor)));
            }
        }
    }
    for release in glibcs::RELEASES {
        let name = format!("releases/glibc-{}/version", release.debian);
        add(name, "glibcs", Box::new(move |_| is_as_new(release)));
    }
    trials
}

//! Conformance programs that are linked dynamically, started by a grafted musl loader: Debian's for each architecture,
//! and in the slow tier musl built like other distributions'. Each passes if it passes with the stock loader. The
//! default tier runs a part.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use casebook::bench::Bench;
use casebook::dynamic::{self, Libc};
use casebook::finished::{self, Graft};
use conformance::Program;
use fixtures::Arch;
use fixtures::musls::{self, Build};
use fixtures::trials::{in_group, slow};
use hosts::Request;
use libtest_mimic::{Failed, Trial};

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
    /// The programs that also fail with the stock loader.
    fails: &'static [&'static str],
}

impl Stock {
    fn debians(arch: Arch) -> Stock {
        let path = |stock: &Stock| fixtures::musl_loader(stock.arch);
        // `sandbox` is written for static programs.
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

/// Returns the loader with that donor in it, made on first use.
fn loader(bench: &Bench, stock: &Stock, graft: Graft) -> PathBuf {
    bench.made(&format!("{}-{}.so", graft.name(), stock.name), |out| {
        let request = Request { out: Some(out.to_owned()), ..finished::request(graft) };
        hosts::graft(&stock.path(), &request).map(drop).map_err(|error| error.to_string())
    })
}

/// Checks the program with the grafted loader.
fn check(bench: &Bench, stock: &Stock, graft: Graft, program: &Program, scale: &str) -> Result<(), String> {
    let by = |loader: &Path, donor: Option<&str>| {
        let name = format!("{} {} {}", program.name, stock.name, donor.map_or("stock".to_owned(), |_| graft.name()));
        let libc = Libc::Musl { arch: stock.arch, library: &stock.path().with_file_name(""), loader };
        dynamic::run(stock.arch, &libc.link(bench, program, true, &name), program, donor, scale)
    };
    match by(&loader(bench, stock, graft), Some(graft.donor.name)) {
        // A failure that stock has, too, does not count against a graft.
        Err(_) if stock.fails.contains(&program.name) && by(&stock.path(), None).is_err() => Ok(()),
        Err(said) => Err(format!("by the graft: {said}")),
        Ok(()) => Ok(()),
    }
}

pub(crate) fn trials(bench: &Arc<Bench>) -> Vec<Trial> {
    let debians = fixtures::LOADERS.into_iter().map(|arch| (Stock::debians(arch), true));
    // Without a linkage table, libc.so calls its own malloc differently, and is refused.
    let others = musls::builds().filter(|build| build.flags.name != "no-plt").map(|build| (Stock::built(build), false));
    let mut trials = Vec::new();
    for (stock, debians) in debians.chain(others) {
        let fitting = || donors::all().iter().filter(|donor| donor.has_loader(stock.arch));
        let default = donors::defaults().find(|donor| donor.has_loader(stock.arch)).expect("a default for loaders");
        let with_strings = debians && default.loader_with_strings(stock.arch).is_some();
        let alone = fitting().map(|donor| Graft { donor, strings: false });
        let grafts: Vec<Graft> = alone.chain(with_strings.then_some(Graft { donor: default, strings: true })).collect();
        for (program, graft) in
            conformance::programs().iter().flat_map(|program| grafts.iter().map(move |graft| (program, *graft)))
        {
            let own = graft.donor.name == default.name && !graft.strings;
            let fast = debians && (FAST.contains(&program.name) && own || program.name == FAST[0]);
            let [short, part] = scales(stock.arch);
            let scale = if fast || !debians { short } else { part };
            let name = format!("loaders/{}/{}/{}", stock.name, program.name, graft.name());
            let (bench, stock_of_test) = (Arc::clone(bench), stock.clone());
            let test = move || check(&bench, &stock_of_test, graft, program, scale).map_err(Failed::from);
            let group = match stock.arch {
                _ if !debians => Some("musls"),
                Arch::X86_64 => (!fast).then_some("minutes"),
                arch => Some(arch.name()),
            };
            trials.push(in_group(Trial::test(name, test), group));
        }
    }
    for build in musls::builds().filter(|build| build.flags.name == "no-plt") {
        let test = move || {
            let out = std::env::temp_dir().join("allograft-no-such-graft");
            let request = Request { out: Some(out), ..Request::new(donors::default_for(Arch::X86_64)) };
            match hosts::graft(&build.loader(), &request).map_err(|error| error.to_string()) {
                Err(said) if said.contains("calls `malloc` through 0 slots") => Ok(()),
                other => Err(Failed::from(format!("{:?}", other.map(|_| "grafted")))),
            }
        };
        trials.push(slow(Trial::test(format!("loaders/{}/refused", build.name()), test), "musls"));
    }
    trials
}

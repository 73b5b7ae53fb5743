//! The system calls of each donor. `docs/system-calls.md` must list those that the conformance program `sandbox`
//! reports. With `ALLOGRAFT_BLESS=1` the table is written there.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use casebook::bench::{Bench, Donors, Host};
use casebook::link::{LinkSetup, Linker, Mode};
use fixtures::Arch;
use fixtures::trials::room;
use libtest_mimic::Trial;

/// The places of calls, in the words of `sandbox`.
const PLACES: [&str; 4] = ["at the start", "in the family", "at a thread's end", "around fork"];

/// Calls that depend on contention between threads. The page says that every donor may make them.
const WAITING: [&str; 2] = ["futex", "sched_yield"];

/// The lines around the table in the page.
const BEGIN: &str = "<!-- table: written by the test -->\n";
const END: &str = "<!-- end of the table -->\n";

/// The amount of work from which the page is written and compared: percent and runs.
const BLESSED: (&str, usize) = ("50", 6);
const COMPARED: (&str, usize) = ("4", 1);

type Calls = [BTreeSet<String>; PLACES.len()];

pub(crate) fn trials() -> Vec<Trial> {
    room("system_calls", &[("the_page_has_every_call", the_page_has_every_call)])
}

fn the_page_has_every_call() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join("docs").join("system-calls.md");
    let text = std::fs::read_to_string(&page).expect("docs/system-calls.md");
    let (before, rest) = text.split_once(BEGIN).expect("the table's begin");
    let (table, after) = rest.split_once(END).expect("the table's end");
    let bless = std::env::var_os("ALLOGRAFT_BLESS").is_some();
    let (scale, runs) = if bless { BLESSED } else { COMPARED };

    let bench = Bench::new();
    let mut rows = format!("| donor | {} |\n| --- |{}\n", PLACES.join(" | "), " --- |".repeat(PLACES.len()));
    let mut missing = Vec::new();
    for donor in [None].into_iter().chain(donors::all().iter().map(|donor| Some(donor.name))) {
        let name = donor.unwrap_or("stock musl");
        let program = link(&bench, donor, donors::DEFAULT_PROFILE);
        let mut calls = Calls::default();
        for _ in 0..runs {
            if !observe(&program, scale, &mut calls) {
                println!("this system does not let a process watch another one's system calls: nothing is compared");
                return;
            }
        }
        let cells = calls.each_ref().map(|calls| calls.iter().map(String::as_str).collect::<Vec<_>>().join(" "));
        rows.push_str(&format!("| {name} | {} |\n", cells.join(" | ")));
        let documented = row(table, name);
        for (place, calls) in calls.iter().enumerate() {
            // malloc and free also run at a thread's end and around a fork.
            let cells = documented.get(place).into_iter().chain(documented.get(1).filter(|_| place > 1));
            let known: Vec<&str> = cells.flat_map(|cell| cell.split(' ')).collect();
            let unknown =
                calls.iter().filter(|call| !known.contains(&call.as_str()) && !WAITING.contains(&call.as_str()));
            missing.extend(unknown.map(|call| format!("{name} calls {call} {}", PLACES[place])));
        }
    }
    if bless {
        std::fs::write(&page, [before, BEGIN, &rows, END, after].concat()).expect("the page is written");
        return;
    }
    assert!(missing.is_empty(), "docs/system-calls.md lacks (ALLOGRAFT_BLESS=1 writes the table): {missing:#?}");
}

/// prctl settings hold for the whole process, and for the programs that it starts. An option of an allocator must not
/// have that effect.
#[test]
fn no_profile_sets_anything_for_the_whole_process() {
    let bench = Bench::new();
    let mut observed = 0;
    for donor in donors::all() {
        for profile in donor.profiles.iter().filter(|profile| !profile.options.is_empty()) {
            let mut calls = Calls::default();
            if !observe(&link(&bench, Some(donor.name), profile.name), COMPARED.0, &mut calls) {
                println!("this system does not let a process watch another one's system calls: nothing is tried");
                return;
            }
            for (place, calls) in PLACES.iter().zip(&calls) {
                assert!(!calls.contains("prctl"), "{} with `{}` calls prctl {place}", donor.name, profile.name);
            }
            observed += 1;
        }
    }
    assert!(observed > 0, "profiles that set something");
}

/// Returns the cells of a row, without the first.
fn row<'t>(table: &'t str, name: &str) -> Vec<&'t str> {
    let line = table.lines().find_map(|line| line.strip_prefix(&format!("| {name} | "))).unwrap_or_default();
    line.trim_end_matches(" |").split(" | ").collect()
}

fn link(bench: &Bench, donor: Option<&'static str>, profile: &str) -> PathBuf {
    let way = LinkSetup { host: Host::Debian(Arch::X86_64), linker: Linker::Lld, mode: Mode::Static };
    let program = conformance::find("sandbox").expect("the program");
    let object = bench.file("sandbox.o", program.object(Arch::X86_64));
    let options = donor.and_then(donors::find).and_then(|donor| donor.profile(profile)).unwrap_or_default();
    let settings: Vec<(String, i64)> = options.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
    let libc = bench.libc(way.host, donor.map_or(Donors::STOCK, Donors::both), &settings);
    let path = bench.path(&format!("sandbox {} {profile}", donor.unwrap_or("stock")));
    way.link(bench, &libc, &[object], &[], &path).unwrap_or_else(|error| panic!("{error}"));
    path
}

/// Adds the calls of one run. Returns false if the system does not permit observing them.
fn observe(program: &Path, scale: &str, calls: &mut Calls) -> bool {
    let mut command = fixtures::run(Arch::X86_64, program);
    let output = command.env("ALLOGRAFT_SCALE", scale).env("ALLOGRAFT_FIGURES", "1").output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", output.status);
    let mut told = 0;
    for line in said.lines() {
        let Some((place, names)) = line.strip_prefix("note: calls ").and_then(|rest| rest.split_once(':')) else {
            continue;
        };
        let place = PLACES.iter().position(|known| *known == place).expect("a known place");
        calls[place].extend(names.split_whitespace().map(str::to_owned));
        told += 1;
    }
    told == PLACES.len()
}

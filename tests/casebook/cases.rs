//! Every case with every donor, linked in every way.

use std::sync::Arc;

use casebook::bench::{Bench, Donors, Host};
use casebook::case::Case;
use casebook::link::{LinkSetup, Linker, Mode};
use fixtures::Arch;
use fixtures::trials::in_group;
use libtest_mimic::{Failed, Trial};

pub(crate) fn trials(bench: &Arc<Bench>) -> Vec<Trial> {
    let mut trials = Vec::new();
    for case in Case::all() {
        for donors in donors_for(&case) {
            for way in ways().into_iter().filter(|way| donors.exist_for(way.host.arch())) {
                // Setup makes a C++ library for this machine only.
                if case.cxx && !fixtures::native(way.host.arch()) {
                    continue;
                }
                if case.needs_strings && !donors.strings_for(way.host) {
                    continue;
                }
                // A C++ library for these programs is made by zig only.
                let group = if case.cxx { Some("zig-musl") } else { way.host.group() };
                let group = group.or((!is_fast(donors, way)).then_some("minutes"));
                trials.push(in_group(trial(bench, &case, donors, way), group));
            }
        }
        // A claim about a graft must hold for stock musl as well, unless the case says otherwise. If not, the case
        // demands too much.
        if case.settings.is_empty() && !case.more_than_stock {
            let way = LinkSetup { host: Host::Debian(Arch::X86_64), linker: Linker::Lld, mode: Mode::Static };
            trials.push(in_group(trial(bench, &case, Donors::STOCK, way), case.cxx.then_some("zig-musl")));
        }
    }
    trials
}

/// Whether the default tier has this run: the default donor in every way, and the others in one, since no case is about
/// a difference between donors that depends on the linker or the kind of program.
fn is_fast(donors: Donors, way: LinkSetup) -> bool {
    let first = LinkSetup { host: Host::Debian(Arch::X86_64), linker: Linker::Gnu, mode: Mode::Static };
    way == first || donors.malloc == Some(donors::DEFAULTS[0])
}

/// Returns the donors of users: every allocator, with string functions. Cases can request one of the two alone.
fn donors_for(case: &Case) -> Vec<Donors> {
    let strings_only = Donors { malloc: None, strings: true };
    let mut all: Vec<Donors> = match case.strings_only {
        true => vec![strings_only],
        false => {
            donors::all().iter().filter(|donor| is_about(case, donor)).map(|donor| Donors::both(donor.name)).collect()
        }
    };
    if case.malloc_only {
        all.extend(donors::defaults().map(|donor| Donors { malloc: Some(donor.name), strings: false }));
    }
    all
}

/// Whether the case is for this donor, and the donor has the options that the case sets.
fn is_about(case: &Case, donor: &donors::Donor) -> bool {
    let options = donor.options().expect("a donor's options");
    let named = case.donors.is_empty() || case.donors.iter().any(|name| name == donor.name);
    named && case.settings.keys().all(|name| options.iter().any(|option| option.name == *name))
}

/// Returns the ways to link. GNU ld links for this machine only, lld for every architecture. Each difference is covered
/// once, not in all combinations.
fn ways() -> Vec<LinkSetup> {
    let native = Host::Debian(Arch::X86_64);
    let way = |host, linker, mode| LinkSetup { host, linker, mode };
    vec![
        way(native, Linker::Gnu, Mode::Static),
        way(native, Linker::Gnu, Mode::StaticPie),
        way(native, Linker::Lld, Mode::Static),
        way(native, Linker::Lld, Mode::StaticPie),
        way(Host::Zig(Arch::X86_64), Linker::Lld, Mode::Static),
        way(Host::Zig(Arch::X86_64), Linker::Gnu, Mode::Static),
        way(Host::Debian(Arch::Aarch64), Linker::Lld, Mode::Static),
        way(Host::Debian(Arch::Aarch64), Linker::Lld, Mode::StaticPie),
        way(Host::Zig(Arch::Aarch64), Linker::Lld, Mode::Static),
        way(Host::Zig(Arch::Riscv64), Linker::Lld, Mode::Static),
        way(Host::Debian(Arch::I686), Linker::Lld, Mode::Static),
        way(Host::Debian(Arch::I686), Linker::Lld, Mode::StaticPie),
        way(Host::Debian(Arch::Arm), Linker::Lld, Mode::Static),
        way(Host::Debian(Arch::Arm), Linker::Lld, Mode::StaticPie),
    ]
}

fn trial(bench: &Arc<Bench>, case: &Case, donors: Donors, way: LinkSetup) -> Trial {
    let (bench, case) = (Arc::clone(bench), case.clone());
    let name = format!("cases/{}/{}/{}", case.name(), donors.name(), way.name());
    Trial::test(name, move || {
        case.check(&bench, donors, way).map_err(|error| Failed::from(format!("{}: {error}", case.about)))
    })
}

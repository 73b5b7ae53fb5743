//! Editors: a file that is damaged is refused by the editor or by the verifier, and a graft that passes is recognised.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use format::Linked as Kind;
use inspector::verify::{Unsound, Verified};
use surgery::archive::Archive;
use transplant::Executable;

use crate::donation::{ARCH, DONORS, Linked};

/// The number of sound grafts that were made, so that a test can see that the seeds are hosts.
pub static GRAFTS: AtomicUsize = AtomicUsize::new(0);

/// The variable by which an editor that makes a graft of a damaged file, which the verifier stops, has failed.
pub const STRICT: &str = "ALLOGRAFT_FUZZ_STRICT";

/// A graft that the verifier stops is written nowhere. Valid files have none: the tests of seeds and of generated hosts
/// are strict.
fn unsound(error: &Unsound) {
    assert!(std::env::var_os(STRICT).is_none(), "a graft is unsound: {error}");
}

/// An archive: no edit changes no byte; a graft of it is sound, and so is one with string functions.
pub(crate) fn archive(input: &[u8]) {
    let _ = inspector::inspect(input);
    let archive = match Archive::parse(input) {
        Ok(archive) => archive,
        Err(error) => return drop(error.to_string()),
    };
    assert!(archive.edit(&BTreeSet::new(), None) == input, "no edit changes a byte");
    let _ = surgery::plan::survey(&archive);
    for donor in [&DONORS.object, &DONORS.strings] {
        match surgery::plan::plan(&archive, donor) {
            Ok(plan) => {
                let graft = plan.apply(&archive);
                match Verified::archive(graft, Some(input)) {
                    Ok(_) => drop(GRAFTS.fetch_add(1, Ordering::Relaxed)),
                    Err(error) => unsound(&error),
                }
            }
            Err(refusal) => drop(refusal.to_string()),
        }
    }
}

/// A static program.
pub(crate) fn program(input: &[u8]) {
    let donor = if input.len().is_multiple_of(2) { &DONORS.program } else { &DONORS.program_with_strings };
    redirected(input, Kind::Program, donor);
}

/// musl's dynamic loader.
pub(crate) fn loader(input: &[u8]) {
    redirected(input, Kind::Loader, &DONORS.loader);
}

/// Redirects the functions of a file of a kind.
fn redirected(input: &[u8], kind: Kind, donor: &Linked) {
    let Some(executable) = read(input) else { return };
    if executable.kind() != kind || executable.arch() != ARCH {
        return;
    }
    let _ = executable.check();
    match executable.redirect(&donor.blob, false).expect("a donor that fits") {
        Ok(graft) => {
            let notes = donor.notes.each_ref().map(Option::as_deref);
            match Verified::executable(graft.bytes, input, donor.linked, notes) {
                Ok(sound) => brings_its_donor(sound.bytes()),
                Err(error) => unsound(&error),
            }
        }
        Err(refusal) => drop(refusal.to_string()),
    }
}

/// A dynamic program: the donor becomes a part of it, or a library that it loads.
pub(crate) fn dynamic(input: &[u8]) {
    const NAME: &[u8] = b"libdonor.so";
    let Some(executable) = read(input) else { return };
    if executable.kind() != Kind::Dynamic || executable.arch() != ARCH {
        return;
    }
    let _ = (executable.check(), executable.interpreter(), executable.may_search_beside_itself());
    let library = &DONORS.library;
    match executable.merge(&library.tuned).expect("a donor that fits") {
        Ok(merge) => match Verified::merged(merge.bytes, input, library.linked, [Some(&library.note), None]) {
            Ok(sound) => brings_its_donor(sound.bytes()),
            Err(error) => unsound(&error),
        },
        Err(refusal) => drop(refusal.to_string()),
    }
    match executable.need(NAME, &library.needed) {
        Ok(need) => match Verified::needed(need.bytes, input, NAME, &library.tuned) {
            Ok(sound) => {
                carries(sound.bytes());
                assert_eq!(read(sound.bytes()).and_then(|graft| graft.loads()).as_deref(), Some(NAME));
            }
            Err(error) => unsound(&error),
        },
        Err(refusal) => drop(refusal.to_string()),
    }
}

fn read(input: &[u8]) -> Option<Executable<'_>> {
    Executable::read(input).map_err(|refusal| refusal.to_string()).ok()
}

/// A graft is recognised as one, and not grafted again.
fn carries(graft: &[u8]) {
    let again = read(graft).expect("a graft that can be read");
    assert!(again.check().is_err(), "a graft is a host");
    GRAFTS.fetch_add(1, Ordering::Relaxed);
}

/// A graft that carries its donor has its malloc, or, if the host has oddities, it is not known which.
fn brings_its_donor(graft: &[u8]) {
    carries(graft);
    let report = inspector::inspect(graft).expect("a graft that can be inspected");
    let name = report.malloc.name.as_str();
    assert!(name == donors::default_for(ARCH).name || name.contains("unknown"), "the malloc of a graft is `{name}`");
}

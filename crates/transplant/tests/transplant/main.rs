//! Programs linked with stock musl, also stripped, and their grafts.

mod compiled;
mod forks;
mod shuffled;
mod strings;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use format::{Arch, Role};
use proptest::prelude::*;
use surgery::donor::DonorObject;
use transplant::{Blob, BlobError, Executable, Graft, Refusal};

/// The graft of a program with these bytes.
fn graft(program: &[u8], blob: &Blob, as_if_stripped: bool) -> Result<Result<Graft, Refusal>, BlobError> {
    Executable::read(program).map_or_else(|refusal| Ok(Err(refusal)), |program| program.redirect(blob, as_if_stripped))
}

/// The default donor's blob.
static BLOB: LazyLock<Blob> = LazyLock::new(|| blob(donors::default_for(Arch::X86_64).name));

fn blob(name: &str) -> Blob {
    let donor = donors::find(name).unwrap();
    let object = donor.object(Arch::X86_64).unwrap();
    let tuned = DonorObject::parse(object).unwrap().tuned(&[], "0").unwrap();
    let tuned = DonorObject::parse(&tuned).unwrap();
    Blob::parse(donor.blob(Arch::X86_64).unwrap(), &tuned.note(), &tuned.options()).unwrap()
}

/// A conformance program, linked by GNU ld with Debian's musl.
fn linked(folder: &Path, name: &str, position_independent: bool) -> PathBuf {
    let musl = fixtures::debian_musl(Arch::X86_64);
    let object = folder.join("program.o");
    fs::write(&object, conformance::find(name).unwrap().object(Arch::X86_64)).unwrap();
    let runtime = folder.join("runtime.a");
    fs::write(&runtime, conformance::runtime_library(Arch::X86_64)).unwrap();
    let program = folder.join(name);
    let mut link = musl.link(position_independent).line(fixtures::link::gnu(), [object], [runtime], &program);
    assert!(link.status().unwrap().success());
    program
}

static FAMILY: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    fs::read(linked(folder.path(), "family", false)).unwrap()
});

#[test]
fn code_says_the_same_as_symbols() {
    for position_independent in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let bytes = fs::read(linked(folder.path(), "family", position_independent)).unwrap();
        let with = graft(&bytes, &BLOB, false).unwrap().unwrap().plan;
        let without = graft(&bytes, &BLOB, true).unwrap().unwrap().plan;
        assert!(with.symbols && !without.symbols);
        // This program does not fork: nothing calls the hook, which is found by its place behind another function.
        assert!(with.fork_hook && without.fork_hook);
        let roles = [
            Role::Malloc,
            Role::Free,
            Role::Realloc,
            Role::AlignedAlloc,
            Role::UsableSize,
            Role::IsZero,
            Role::ForkHook,
        ];
        for role in roles {
            let last = |plan: &transplant::Plan| {
                plan.entries.iter().filter(|entry| entry.role == role).map(|entry| entry.address).max()
            };
            assert!(last(&with).is_some(), "{role}");
            assert_eq!(last(&with), last(&without), "{role}");
        }
    }
}

#[test]
fn the_same_bytes_each_time_and_the_program_in_place() {
    let one = graft(&FAMILY, &BLOB, false).unwrap().unwrap().bytes;
    assert!(one == graft(&FAMILY, &BLOB, false).unwrap().unwrap().bytes);
    let changed: Vec<usize> = (64..FAMILY.len()).filter(|at| one[*at] != FAMILY[*at]).collect();
    // Jumps, a call, an operand; and thread-local symbols, which this program's libc lacks.
    assert!(changed.len() < 5 * 26, "{}", changed.len());
    assert!(matches!(graft(&one, &BLOB, false).unwrap(), Err(Refusal::Grafted { .. })));
}

#[test]
fn other_programs_are_refused() {
    let refusal = |bytes: &[u8]| graft(bytes, &BLOB, false).unwrap().unwrap_err();
    let own = fs::read(std::env::current_exe().unwrap()).unwrap();
    assert_eq!(refusal(&own), Refusal::Dynamic);
    let mut appended = FAMILY.clone();
    appended.extend(b"PK\x03\x04");
    assert_eq!(refusal(&appended), Refusal::Appended(4));
    let mut twice = FAMILY.clone();
    let table: Vec<u8> = [1u16, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15].into_iter().flat_map(u16::to_le_bytes).collect();
    let at = twice.windows(table.len()).position(|window| window == table).unwrap();
    twice[at] = 9;
    assert_eq!(refusal(&twice), Refusal::NoMallocng);
    let folder = tempfile::tempdir().unwrap();
    let interposer = fs::read(linked(folder.path(), "interposer", false)).unwrap();
    for as_if_stripped in [false, true] {
        assert!(graft(&interposer, &BLOB, as_if_stripped).unwrap().is_err());
    }
}

#[test]
fn a_changed_function_is_not_taken_for_musls() {
    // Without the write that marks a freed block, no function is free: the byte 0xff of `mov byte [p - 3], 0xff`.
    let mut bytes = FAMILY.clone();
    let free = graft(&bytes, &BLOB, true).unwrap().unwrap().plan;
    let free = free.entries.iter().filter(|entry| entry.role == Role::Free).map(|entry| entry.address).max().unwrap();
    let from = (free - 0x40_0000) as usize;
    let marks: Vec<usize> =
        (from..from + 1500).filter(|at| bytes[*at] == 0xc6 && bytes[at + 2..at + 4] == [0xfd, 0xff]).collect();
    assert!(!marks.is_empty());
    marks.into_iter().for_each(|at| bytes[at + 3] = 0xfe);
    for as_if_stripped in [false, true] {
        let refusal = graft(&bytes, &BLOB, as_if_stripped).unwrap().unwrap_err();
        assert!(matches!(refusal, Refusal::Missing(Role::Free) | Refusal::Ambiguous { .. }), "{refusal}");
    }
}

#[test]
fn every_blob_is_sound() {
    for donor in donors::all().iter().filter(|donor| donor.has_blobs()) {
        blob(donor.name);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn damage_is_an_answer_and_no_panic(
        cut in 0usize..400_000,
        bytes in prop::collection::vec((0usize..1024, any::<u8>()), 1..6),
        tail in prop::collection::vec((0usize..4096, any::<u8>()), 0..4),
    ) {
        let mut damaged = FAMILY.clone();
        let length = damaged.len();
        for (at, byte) in bytes {
            damaged[at] = byte;
        }
        // Section headers and symbols are near the end.
        for (back, byte) in tail {
            damaged[length - 1 - back] = byte;
        }
        if cut < length / 2 {
            damaged.truncate(length - cut);
        }
        let _ = graft(&damaged, &BLOB, false).unwrap();
    }
}

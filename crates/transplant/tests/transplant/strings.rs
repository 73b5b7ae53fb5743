//! The string functions of programs linked with stock musl: with symbols and as if stripped.

use std::collections::BTreeMap;
use std::fs;
use std::sync::LazyLock;

use format::{Arch, StringFunction};
use surgery::donor::DonorObject;
use transplant::{Blob, KeptReason, Plan};

use crate::{graft, linked};

/// The default donor's blob with string functions.
static BLOB: LazyLock<Blob> = LazyLock::new(|| {
    let donor = donors::default_for(Arch::X86_64);
    let tuned = |object: &[u8]| DonorObject::parse(object).unwrap().tuned(&[], "0").unwrap();
    let malloc = tuned(donor.object(Arch::X86_64).unwrap());
    let strings = tuned(donors::strings().object(Arch::X86_64).unwrap());
    let (malloc, strings) = (DonorObject::parse(&malloc).unwrap(), DonorObject::parse(&strings).unwrap());
    let blob = donor.blob_with_strings(Arch::X86_64).unwrap();
    Blob::parse(blob, &malloc.note(), &malloc.options()).unwrap().with_strings(&strings.note()).unwrap()
});

fn redirected(plan: &Plan) -> BTreeMap<u64, StringFunction> {
    let entries = plan.strings.iter().filter(|entry| entry.kept.is_none());
    entries.map(|entry| (entry.address, entry.function)).collect()
}

#[test]
fn what_code_says_is_what_symbols_say() {
    for position_independent in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let program = fs::read(linked(folder.path(), "family", position_independent)).unwrap();
        let with = graft(&program, &BLOB, false).unwrap().unwrap().plan;
        let without = graft(&program, &BLOB, true).unwrap().unwrap().plan;
        let (with, without) = (redirected(&with), redirected(&without));
        // Symbols name functions that nothing calls, too.
        assert!(without.iter().all(|entry| with.get(entry.0) == Some(entry.1)), "{with:?} {without:?}");
        for function in [StringFunction::Memcpy, StringFunction::Memset, StringFunction::Strlen, StringFunction::Memchr]
        {
            assert!(without.values().any(|found| *found == function), "{function}: {without:?}");
        }
    }
}

#[test]
fn the_same_bytes_each_time_and_nothing_without_being_asked() {
    let folder = tempfile::tempdir().unwrap();
    let program = fs::read(linked(folder.path(), "family", false)).unwrap();
    let one = graft(&program, &BLOB, false).unwrap().unwrap();
    assert!(one.bytes == graft(&program, &BLOB, false).unwrap().unwrap().bytes);
    let alone = graft(&program, &crate::BLOB, false).unwrap().unwrap();
    assert!(alone.plan.strings.is_empty());
    assert_eq!(alone.plan.entries, one.plan.entries);
    // Where nothing was redirected, the program is the same in both.
    let entries: Vec<u64> = redirected(&one.plan).into_keys().collect();
    let sections = 0x40_0000 + program.len() as u64;
    let elsewhere = (0x40_0040..sections).filter(|at| !entries.iter().any(|entry| (*entry..entry + 9).contains(at)));
    // One byte of a distance may be what it was by chance.
    let jumps = |at: &u64| {
        let near = (at - 0x40_0004) as usize..=(at - 0x40_0000 + 4) as usize;
        near.into_iter().any(|at| program.get(at).is_some_and(|byte| *byte != alone.bytes[at]))
    };
    for at in elsewhere.filter(|at| !jumps(at)) {
        let offset = (at - 0x40_0000) as usize;
        assert!(one.bytes[offset] == program[offset], "{at:#x}");
    }
}

/// A function that something jumps into behind its first byte stays.
#[test]
fn a_function_that_is_jumped_into_stays() {
    let folder = tempfile::tempdir().unwrap();
    let mut program = fs::read(linked(folder.path(), "family", false)).unwrap();
    let before = graft(&program, &BLOB, false).unwrap().unwrap().plan;
    let address = |function| before.strings.iter().find(|entry| entry.function == function).unwrap().address;
    let (from, to) = (address(StringFunction::Strncmp), address(StringFunction::Strlen) + 2);
    for (opcode, into) in [(&b"\xe9"[..], to), (b"\x0f\x84", to + 1)] {
        let at = (from - 0x40_0000) as usize;
        let distance = into.wrapping_sub(from + opcode.len() as u64 + 4) as u32;
        program[at..at + opcode.len()].copy_from_slice(opcode);
        program[at + opcode.len()..at + opcode.len() + 4].copy_from_slice(&distance.to_le_bytes());
        for as_if_stripped in [false, true] {
            let after = graft(&program, &BLOB, as_if_stripped).unwrap().unwrap().plan;
            let strlen = after.strings.iter().find(|entry| entry.address == to - 2).unwrap();
            assert_eq!(strlen.kept, Some(KeptReason::JumpedInto { site: from }));
        }
    }
}

/// A function that is nearly strlen: it stays, and is said to.
#[test]
fn a_changed_function_stays() {
    let folder = tempfile::tempdir().unwrap();
    let mut program = fs::read(linked(folder.path(), "family", false)).unwrap();
    let before = graft(&program, &BLOB, false).unwrap().unwrap().plan;
    let strlen = before.strings.iter().find(|entry| entry.function == StringFunction::Strlen).unwrap();
    let at = (strlen.address - 0x40_0000) as usize;
    // xor eax, eax; ret
    program[at..at + 3].copy_from_slice(b"\x31\xc0\xc3");
    let after = graft(&program, &BLOB, false).unwrap().unwrap().plan;
    let stays = after.strings.iter().find(|entry| entry.address == strlen.address).unwrap();
    assert!(stays.kept.is_some(), "{stays:?}");
    let without = graft(&program, &BLOB, true).unwrap().unwrap().plan;
    assert!(!redirected(&without).contains_key(&strlen.address));
}

//! The fields that a graft fills in to describe libc.so to the donor: `struct transplant_parameters` and
//! `struct transplant_loader` (crates/donors/transplant), and the places of thread-local variables.

use std::ops::Range;

use super::{PF_W, VALUES, size_of_values};
use crate::elf::{Elf, PF_X, SHF_ALLOC, SHT_RELA};
use crate::report::Arch;
use crate::verify::donor_image::{
    Linked, PARAMETERS, STREAMS, WrongParameters, is_in_program, is_place_of_errno, pairs,
};

/// The words of `struct transplant_loader`.
const WORDS: u64 = 7;
/// The size of the compiler's record of a thread-local variable, and the place in it that the graft fills in.
const VARIABLE: u64 = 32;
const PLACE: Range<u64> = 16..24;
/// R_X86_64_JUMP_SLOT and R_AARCH64_JUMP_SLOT.
const JUMP_SLOTS: [(Arch, u32); 2] = [(Arch::X86_64, 7), (Arch::Aarch64, 1026)];

/// The ranges of the linked donor that a graft of a loader fills in; none in a donor for programs.
pub(in crate::verify) fn filled_in(linked: &Linked<'_, '_>) -> Vec<Range<u64>> {
    let Ok(block) = linked.symbol("transplant_loader") else { return Vec::new() };
    let records = records(linked).into_iter().map(|record| record + PLACE.start..record + PLACE.end);
    std::iter::once(block..block + 8 * WORDS).chain(records).collect()
}

/// The records of thread-local variables, by their addresses in the linked donor.
fn records(linked: &Linked<'_, '_>) -> Vec<u64> {
    let ends = ["transplant_variables_start", "transplant_variables_end"].map(|name| linked.symbol(name));
    let [Ok(start), Ok(end)] = ends else { return Vec::new() };
    (start..end).step_by(VARIABLE as usize).collect()
}

/// Returns the wrong ones of the donor's parameters. `found` is its memory in the graft.
pub(in crate::verify) fn loader_parameters(
    elf: &Elf<'_>,
    linked: &Linked<'_, '_>,
    base: u64,
    found: &[u8],
    (data, headers): (&[u8], u64),
    stock: Option<&Elf<'_>>,
) -> Result<Vec<String>, String> {
    let words = elf.bytes.over(found);
    let at = linked.symbol("transplant_parameters")?;
    let word = |index: u64| words.u64((at + 8 * index) as usize).unwrap_or(0);
    let address = |distance: u64| base.wrapping_add(distance);
    let within = |flag: u32, address: u64| is_in_program(elf, base, flag, address);
    let mut wrong = WrongParameters::default();
    let entry = stock.and_then(|stock| stock.bytes.word(24));
    let own = address(word(2));
    wrong.expect("libc.so's entry point", within(PF_X, own) && entry.is_none_or(|entry| own == entry));
    wrong.expect("the program headers", address(word(3)) == headers);
    let sealed = linked.symbol("transplant_sealed_end")?;
    let split = linked.data.address;
    wrong.expect("what is made read-only", (6..10).map(word).eq([split, 0, sealed - split, 0]));
    wrong.expect("errno", is_place_of_errno(word(10)));
    wrong.expect("the end of threads", within(PF_X, address(word(11))));
    wrong.expect("the end of processes", within(PF_X, address(word(STREAMS))));
    wrong.expect("programs", (12..PARAMETERS).all(|index| index == STREAMS || word(index) == 0));

    let block = linked.symbol("transplant_loader")?;
    let word = |index: u64| words.u64((block + 8 * index) as usize).unwrap_or(0);
    // `struct pthread` begins at the thread pointer; on aarch64, it ends there (musl, src/internal/pthread_impl.h).
    let field = if elf.arch == Arch::Aarch64 { word(0).wrapping_neg() } else { word(0) };
    wrong.expect("the field with a thread's values", (8..4096).contains(&field) && field % 8 == 0);
    wrong.expect("the size of a thread's values", word(1) == VALUES);
    let main = address(word(2));
    wrong.expect("the main thread's values", within(PF_W, main) && within(PF_W, main.saturating_add(VALUES - 1)));
    for (name, index) in [("malloc", 3), ("aligned_alloc", 5)] {
        let right =
            slot(elf, name) == Some(address(word(index))) && exported(elf, name) == Some(address(word(index + 1)));
        wrong.expect(name, right && within(PF_W, address(word(index))));
    }
    if let Some(stock) = stock {
        let room = size_of_values(elf, stock, base)?.1.saturating_sub(VALUES);
        wrong.expect("its thread-local variables", storage(elf, linked, found) == Some(room));
    }

    // Behind the donor's data: the words to relocate, then zeros.
    let (table, count) = (words.u64((at + 32) as usize).unwrap_or(0), words.u64((at + 40) as usize).unwrap_or(0));
    let start = (linked.end - split) as usize;
    let end =
        usize::try_from(count).ok().and_then(|count| count.checked_mul(16)).and_then(|size| start.checked_add(size));
    let own = linked.section(".rela.dyn").unwrap_or(0..0);
    let own = linked.elf.bytes.over(found.get(own.start as usize..own.end as usize).unwrap_or_default());
    let own = pairs(linked.elf, own.data, 24, 16);
    let pairs = end.and_then(|end| data.get(start..end)).map(|table| pairs(elf, table, 16, 8));
    let rest = end.and_then(|end| data.get(end..)).unwrap_or_default();
    if table != linked.end || pairs != Some(own) || rest.iter().any(|byte| *byte != 0) {
        wrong.0.push("the donor's relocations are not those that it was linked with".to_owned());
    }
    Ok(wrong.0)
}

/// The size of the donor's storage in each thread, if each variable has a place of its own in it, behind the first
/// word.
fn storage(elf: &Elf<'_>, linked: &Linked<'_, '_>, found: &[u8]) -> Option<u64> {
    const STEP: u64 = 64;
    let words = elf.bytes.over(found);
    let mut end = 8;
    for record in records(linked) {
        let word = |at: u64| words.u64((record + at) as usize);
        let (size, alignment, place) = (word(0)?, word(8)?, word(PLACE.start)?);
        if place < end
            || alignment == 0
            || alignment > 16
            || !place.is_multiple_of(alignment)
            || place - end >= alignment
        {
            return None;
        }
        end = place.checked_add(size)?;
    }
    Some(end.next_multiple_of(STEP))
}

fn exported(elf: &Elf<'_>, name: &str) -> Option<u64> {
    let symbol = |symbol: &&crate::elf::Symbol<'_>| symbol.is_exported() && symbol.name == name.as_bytes();
    elf.dynamic_symbols.iter().find(symbol).map(|symbol| symbol.value)
}

/// The slot through which libc.so calls a function that a program may bring: the place of its only relocation for
/// that.
fn slot(elf: &Elf<'_>, name: &str) -> Option<u64> {
    let tables = elf.sections.iter().filter(|section| section.kind == SHT_RELA && section.flags & SHF_ALLOC != 0);
    let entries = tables.flat_map(|table| table.data.unwrap_or_default().chunks_exact(24));
    let mut found = entries.filter_map(|entry| {
        let words = elf.bytes.over(entry);
        let symbol = elf.dynamic_symbols.get(words.u32(12)? as usize)?;
        (JUMP_SLOTS.contains(&(elf.arch, words.u32(8)?)) && symbol.name == name.as_bytes())
            .then(|| words.u64(0))
            .flatten()
    });
    found.next().filter(|_| found.next().is_none())
}

//! The edits of a grafted executable beside its entry points: at the end of a thread, and where main's address is
//! passed to libc. Each edit is one operand of one instruction that stock has, too.

use std::ops::Range;

use iced_x86::{Decoder, DecoderOptions, Instruction, OpKind};

use super::check::{Check, parse};
use super::donor_image::{PARAMETERS, STREAMS, symbol};
use super::image::{ELF_HEADER, cleared_table, differences, same_size};
use super::loader;
use crate::elf::{Elf, PF_X, Segment};
use crate::entry_points::{EntryPoints, jump_size, loads};
use crate::error::InspectError;
use crate::report::Arch;

/// The longest x86 instruction, in bytes (Intel SDM, volume 2, 2.3.11).
const LONGEST: u64 = 15;
/// The size in bytes of an operand that a graft writes.
const FIELD: u64 = 4;

/// The way in which an instruction names an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Naming {
    /// It calls it.
    Call,
    /// It branches to it.
    Branch,
    /// It loads the address itself.
    Address,
    /// It loads the word that is at the address.
    Word,
}

/// An instruction that differs from stock only in the address that it names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Edit {
    /// The bytes that may differ.
    pub(super) field: Range<u64>,
    pub(super) naming: Naming,
    /// The address that stock's instruction names.
    pub(super) before: u64,
    /// The address that the graft's names.
    pub(super) after: u64,
}

/// Checks that the graft names the donor where it must and nowhere else. `donor` is the linked donor. The fields that
/// describe the program to the donor ([`super::donor_image`]) say what stock names at these places.
///
/// # Errors
/// A file is not an ELF file.
pub fn redirections(graft: &[u8], donor: &[u8], stock: &[u8]) -> Result<Check, InspectError> {
    Ok(check(&parse(graft)?, &parse(donor)?, &parse(stock)?))
}

pub(super) fn check(elf: &Elf<'_>, donor: &Elf<'_>, stock: &Elf<'_>) -> Check {
    let found = EntryPoints::required(elf).and_then(|entry_points| expected(elf, &entry_points, donor, stock));
    Check::unless("redirections", found.unwrap_or_else(|problem| vec![problem]), || {
        let main = if loader::is_loader(elf) { "" } else { "main and " };
        format!("each entry point jumps to the donor's function, and so do {main}the ends of threads and processes")
    })
}

/// Returns the faults of the edits beside the entry points.
fn expected(
    elf: &Elf<'_>,
    entry_points: &EntryPoints,
    donor: &Elf<'_>,
    stock: &Elf<'_>,
) -> Result<Vec<String>, String> {
    let base = entry_points.donor();
    let given = Parameters::read(elf, donor, base)?;
    let address = |name: &str| symbol(donor, name).map(|value| base.wrapping_add(value));
    let mut wanted = Vec::new();
    if let Some(destructors) = given.key_destructors {
        wanted.push(("the end of threads", vec![(Naming::Call, destructors, address("transplant_thread_exit")?)]));
    }
    let is_loader = loader::is_loader(elf);
    if let Some(streams) = given.streams {
        wanted.push(("the end of processes", vec![(Naming::Call, streams, address("transplant_process_exit")?)]));
    }
    let main = match given.start_main {
        // The loader's own start goes on to the program; the donor is not involved.
        _ if is_loader => Vec::new(),
        Some(start_main) => {
            let to = address("transplant_libc_start_main")?;
            vec![(Naming::Call, start_main, to), (Naming::Branch, start_main, to)]
        }
        None => {
            let mut ways = vec![(Naming::Address, given.main, address("transplant_main")?)];
            let slot = address("transplant_main_slot")?;
            ways.extend(slots(stock, given.main).into_iter().map(|before| (Naming::Word, before, slot)));
            ways
        }
    };
    wanted.extend((!is_loader).then_some(("main", main)));
    let mut complaints = Vec::new();
    for entry in &entry_points.entries {
        let at = entry.address;
        let name = entry.symbol().ok_or_else(|| format!("the entry point {at:#x} has an unknown role"))?;
        let (found, wanted) = (entry_points.target(elf, at)?, address(name)?);
        if found != wanted {
            complaints.push(format!("the entry point {at:#x} jumps to {found:#x}, expected `{name}` at {wanted:#x}"));
        }
    }
    let mut open = changes(elf, stock, entry_points);
    for (what, ways) in wanted {
        let fits = |edit: &Edit| ways.contains(&(edit.naming, edit.before, edit.after));
        match open.iter().find_map(|address| candidates_at(stock, elf, *address).into_iter().find(fits)) {
            Some(edit) => open.retain(|address| !edit.field.contains(address)),
            None => complaints.push(format!("{what} does not lead through the donor")),
        }
    }
    complaints.extend(open.first().map(|address| format!("the byte at {address:#x} is not stock's")));
    Ok(complaints)
}

/// The addresses in the fields that describe the program to the donor.
struct Parameters {
    main: u64,
    key_destructors: Option<u64>,
    start_main: Option<u64>,
    streams: Option<u64>,
}

impl Parameters {
    fn read(elf: &Elf<'_>, donor: &Elf<'_>, base: u64) -> Result<Parameters, String> {
        let at = base.wrapping_add(symbol(donor, "transplant_parameters")?);
        let block = loads(elf).find_map(|load| {
            let from = usize::try_from(at.checked_sub(load.address)?).ok()?;
            load.data?.get(from..from.checked_add(8 * PARAMETERS as usize)?)
        });
        let block = elf.bytes.over(block.ok_or("the donor's parameters are not in the file")?);
        let word = |index: usize| block.u64(8 * index).unwrap_or(0);
        let address = |index| Some(word(index)).filter(|distance| *distance != 0).map(|it| base.wrapping_add(it));
        Ok(Parameters {
            main: base.wrapping_add(word(12)),
            key_destructors: address(11),
            start_main: address(18),
            streams: address(STREAMS as usize),
        })
    }
}

/// Returns the words of stock that hold main's address at run time, from which an instruction may load it: written in
/// the file, or by a relocation (R_X86_64_RELATIVE: place, type and value; System V ABI, x86-64, 4.4).
fn slots(stock: &Elf<'_>, main: u64) -> Vec<u64> {
    let relocation = [8_u64.to_le_bytes(), main.to_le_bytes()].concat();
    let mut found = Vec::new();
    for load in loads(stock) {
        let data = load.data.unwrap_or_default();
        for at in memchr::memmem::find_iter(data, &main.to_le_bytes()) {
            found.push(load.address + at as u64);
        }
        for at in memchr::memmem::find_iter(data, &relocation) {
            let place = at.checked_sub(8).and_then(|from| data[from..].first_chunk());
            found.extend(place.map(|place| u64::from_le_bytes(*place)));
        }
    }
    found
}

/// The changes of stock's loaded bytes that a kind of graft may make. All kinds may change the file header, which names
/// the new entry point and the new tables, and stock's program headers where `strip` has cleared them.
pub(super) struct Permitted<'p> {
    /// Addresses that are checked elsewhere: jumps, tables with new numbers.
    elsewhere: &'p [Range<u64>],
    unused: Range<u64>,
    /// The most edits of operands, and whether an edit is one of them.
    edits: (usize, &'p dyn Fn(&Edit) -> bool),
}

impl<'p> Permitted<'p> {
    pub(super) fn new(
        graft: &Elf<'_>,
        stock: &Elf<'_>,
        elsewhere: &'p [Range<u64>],
        edits: (usize, &'p dyn Fn(&Edit) -> bool),
    ) -> Permitted<'p> {
        Permitted { elsewhere, unused: cleared_table(graft, stock), edits }
    }

    /// Compares segments of stock with the graft's: each has to be loaded at the same address, with the same size,
    /// permissions and bytes, but for the permitted changes. Returns complaints, and the number of edits.
    pub(super) fn compare<'s, 'e: 's>(
        &self,
        graft: &Elf<'_>,
        stock: &'s Elf<'e>,
        segments: impl Iterator<Item = &'s Segment<'e>>,
    ) -> (Vec<String>, usize) {
        let (most, is_permitted) = self.edits;
        let (mut complaints, mut edits): (Vec<String>, Vec<Edit>) = (Vec::new(), Vec::new());
        for before in segments {
            let Some(after) = loads(graft).find(|other| other.address == before.address) else {
                complaints.push(format!("stock's segment at {:#x} is not there", before.address));
                continue;
            };
            if !same_size(after, before, &self.unused) || before.flags != after.flags {
                complaints.push(format!("the segment at {:#x} has another size or other permissions", before.address));
                continue;
            }
            for address in self.others(before, after) {
                if edits.iter().any(|edit| edit.field.contains(&address)) {
                    continue;
                }
                let edit = candidates_at(stock, graft, address).into_iter().find(is_permitted);
                match edit.filter(|_| edits.len() < most) {
                    Some(edit) => edits.push(edit),
                    None => {
                        complaints.push(format!("the byte at {address:#x} is not stock's"));
                        break;
                    }
                }
            }
        }
        (complaints, edits.len())
    }

    /// Returns the addresses of bytes that differ between a segment of stock and the same segment of the graft, without
    /// those that are checked elsewhere.
    fn others<'s>(&'s self, before: &'s Segment<'_>, after: &'s Segment<'_>) -> impl Iterator<Item = u64> + 's {
        let changed = differences(before.data.unwrap_or_default(), after.data.unwrap_or_default());
        changed.map(|at| (at, before.address + at as u64)).filter_map(move |(at, address)| {
            let in_header = before.offset == 0 && at < ELF_HEADER;
            let elsewhere = || self.elsewhere.iter().any(|range| range.contains(&address));
            (!in_header && !self.unused.contains(&address) && !elsewhere()).then_some(address)
        })
    }
}

/// Returns the places of the jumps at the entry points.
pub(super) fn jumps(graft: &Elf<'_>, entry_points: &EntryPoints) -> Vec<Range<u64>> {
    let size = jump_size(graft.arch) as u64;
    entry_points.entries.iter().map(|entry| entry.address..entry.address.saturating_add(size)).collect()
}

/// Returns where the donor is, and everything behind it.
pub(super) fn added(graft: &Elf<'_>, entry_points: &EntryPoints) -> Range<u64> {
    let end = loads(graft).map(|load| load.address.saturating_add(load.memory)).max().unwrap_or(0);
    entry_points.donor()..end
}

/// Returns the addresses of code bytes that differ from stock and that the graft may not change but by its edits. Only
/// the first few, for a file that differs everywhere.
fn changes(graft: &Elf<'_>, stock: &Elf<'_>, entry_points: &EntryPoints) -> Vec<u64> {
    const MOST: usize = 4096;
    let jumps = jumps(graft, entry_points);
    let permitted = Permitted::new(graft, stock, &jumps, (0, &|_| false));
    let code = loads(stock).filter(|load| load.flags & PF_X != 0);
    let pairs = code.filter_map(|load| Some((load, loads(graft).find(|other| other.address == load.address)?)));
    pairs.flat_map(|(before, after)| permitted.others(before, after)).take(MOST).collect()
}

/// Returns the possible edits that explain a changed byte of code at `address`; none if it is not an operand. x86
/// instructions have no fixed places, so there may be several; the graft's own must be among them.
fn candidates_at(stock: &Elf<'_>, graft: &Elf<'_>, address: u64) -> Vec<Edit> {
    let (Some((start, before)), Some((same, after))) = (code(stock, address), code(graft, address)) else {
        return Vec::new();
    };
    if start != same {
        return Vec::new();
    }
    match graft.arch {
        Arch::X86_64 => {
            let first = address.saturating_sub(LONGEST - 1).max(start);
            let edits = (first..=address).filter_map(|at| x86(before, after, start, at));
            edits.filter(|edit| edit.field.contains(&address)).collect()
        }
        Arch::Aarch64 => aarch64(before, after, start, address & !3).into_iter().collect(),
        _ => Vec::new(),
    }
}

/// Returns the executable segment that holds an address: its address, and its bytes.
fn code<'a>(elf: &Elf<'a>, address: u64) -> Option<(u64, &'a [u8])> {
    let load = loads(elf).find(|load| {
        load.flags & PF_X != 0 && address.wrapping_sub(load.address) < load.data.map_or(0, <[u8]>::len) as u64
    })?;
    Some((load.address, load.data?))
}

/// Returns the edit of the instruction at `at`, whose operand is its last four bytes.
fn x86(before: &[u8], after: &[u8], start: u64, at: u64) -> Option<Edit> {
    let decode = |bytes: &[u8]| {
        let from = usize::try_from(at - start).ok()?;
        let bytes = bytes.get(from..)?;
        let bytes = &bytes[..bytes.len().min(LONGEST as usize)];
        let instruction = Decoder::with_ip(64, bytes, at, DecoderOptions::NONE).decode();
        (!instruction.is_invalid()).then(|| (instruction, bytes[..instruction.len()].to_vec()))
    };
    let ((was, before), (is, after)) = (decode(before)?, decode(after)?);
    let fixed = before.len().checked_sub(FIELD as usize)?;
    if was.code() != is.code() || before.len() != after.len() || before[..fixed] != after[..fixed] {
        return None;
    }
    let ((naming, before), (same, after)) = (named(&was)?, named(&is)?);
    let end = at + is.len() as u64;
    (naming == same).then_some(Edit { field: end - FIELD..end, naming, before, after })
}

/// Returns the address that an instruction's last four bytes name.
fn named(instruction: &Instruction) -> Option<(Naming, u64)> {
    use iced_x86::Mnemonic;
    let relative = instruction.is_ip_rel_memory_operand();
    match (instruction.mnemonic(), instruction.op0_kind()) {
        (Mnemonic::Call, OpKind::NearBranch64) => Some((Naming::Call, instruction.near_branch_target())),
        (Mnemonic::Jmp, OpKind::NearBranch64) => Some((Naming::Branch, instruction.near_branch_target())),
        (Mnemonic::Lea, OpKind::Register) if relative => Some((Naming::Address, instruction.ip_rel_memory_address())),
        (Mnemonic::Mov, OpKind::Register) if relative => Some((Naming::Word, instruction.ip_rel_memory_address())),
        (Mnemonic::Mov, OpKind::Register)
            if matches!(instruction.op1_kind(), OpKind::Immediate32 | OpKind::Immediate32to64) =>
        {
            Some((Naming::Address, instruction.immediate(1)))
        }
        _ => None,
    }
}

/// Returns the edit of the branch at `at`: B or BL, with a distance of 26 bits in words (Arm ARM, C6.2).
fn aarch64(before: &[u8], after: &[u8], start: u64, at: u64) -> Option<Edit> {
    let word = |bytes: &[u8]| {
        let from = usize::try_from(at.checked_sub(start)?).ok()?;
        bytes.get(from..)?.first_chunk().map(|word| u32::from_le_bytes(*word))
    };
    let (was, is) = (word(before)?, word(after)?);
    let naming = match (was >> 26, is >> 26) {
        (0b00_0101, 0b00_0101) => Naming::Branch,
        (0b10_0101, 0b10_0101) => Naming::Call,
        _ => return None,
    };
    let target = |word: u32| at.wrapping_add_signed(i64::from((word << 6) as i32 >> 6) * 4);
    Some(Edit { field: at..at + 4, naming, before: target(was), after: target(is) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operands_are_read() {
        // call +0; lea rdi, [rip+0]; mov edi, 0; mov rdi, [rip+0]; jmp +0
        let before = b"\xe8\0\0\0\0\x48\x8d\x3d\0\0\0\0\xbf\0\0\0\0\x48\x8b\x3d\0\0\0\0\xe9\0\0\0\0";
        let mut after = *before;
        for at in [1, 8, 13, 20, 25] {
            after[at + 1] = 1;
        }
        let read_of =
            |after: &[u8], at| x86(before, after, 0x1000, at).map(|edit| (edit.naming, edit.before, edit.after));
        let read = |at| read_of(&after, at);
        assert_eq!(read(0x1000), Some((Naming::Call, 0x1005, 0x1105)));
        assert_eq!(read(0x1005), Some((Naming::Address, 0x100c, 0x110c)));
        assert_eq!(read(0x100c), Some((Naming::Address, 0, 0x100)));
        assert_eq!(read(0x1011), Some((Naming::Word, 0x1018, 0x1118)));
        assert_eq!(read(0x1018), Some((Naming::Branch, 0x101d, 0x111d)));
        let mut another = after;
        another[0] = 0xe9;
        assert_eq!(read_of(&another, 0x1000), None, "the opcode has changed");
    }

    #[test]
    fn branches_of_aarch64_are_read() {
        let words = |words: [u32; 2]| words.map(u32::to_le_bytes).concat();
        let (before, after) = (words([0x9400_0001, 0x1400_0001]), words([0x9400_0003, 0x17ff_ffff]));
        let read = |at| aarch64(&before, &after, 0x1000, at).map(|edit| (edit.naming, edit.before, edit.after));
        assert_eq!(read(0x1000), Some((Naming::Call, 0x1004, 0x100c)));
        assert_eq!(read(0x1004), Some((Naming::Branch, 0x1008, 0x1000)));
        assert_eq!(aarch64(&before, &words([0x1400_0003, 0]), 0x1000, 0x1000), None);
    }
}

//! An executable that was grafted after linking. Its third note names the entry points, and the code has to confirm
//! them: a note alone is not proof of what the code does.

use crate::elf::{Elf, PF_X, PT_LOAD, Segment};
use crate::note;
use crate::report::Arch;
use crate::verify::names::STRINGS;

/// The type of the note that lists the redirected entry points (docs/note.md).
const KIND: u32 = 4;
/// The number of `free` in the note.
const FREE: u32 = 2;
/// The first number after those of the malloc family.
const FAMILY_END: u32 = 10;
/// The donor's symbol that replaces each function of the family, by the function's number less one
/// (crates/donors/transplant/runtime.c).
const FAMILY: [&str; 9] = [
    "transplant_malloc",
    "transplant_free",
    "transplant_calloc",
    "transplant_realloc",
    "transplant_aligned_alloc",
    "transplant_usable_size",
    "transplant_is_zero",
    "transplant_fork_hook",
    // Only in the dynamic loader: `__malloc_donate`.
    "transplant_donate",
];
/// The number of the first string function; the others follow (docs/note.md). The graft of an archive has more of them.
const FIRST_STRING: u32 = 16;
/// The string functions without a number. [`STRINGS`] is a deliberate copy: it reveals a mistake in the numbers that
/// grafts are made with.
const WITHOUT_NUMBER: [&str; 16] = [
    "memmem",
    "strstr",
    "memccpy",
    "strpbrk",
    "strcasestr",
    "wcslen",
    "wcsnlen",
    "wcschr",
    "wcscmp",
    "wmemchr",
    "wmemcmp",
    "wmemcpy",
    "wmemmove",
    "wmemset",
    "strcasecmp_l",
    "strncasecmp_l",
];

/// A function of the program that jumps to the donor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) address: u64,
    role: u32,
}

impl Entry {
    /// Returns the name of the string function, if it is one.
    pub(crate) fn string(&self) -> Option<&'static str> {
        let mut numbered = STRINGS.into_iter().filter(|name| !WITHOUT_NUMBER.contains(name));
        numbered.nth(self.role.checked_sub(FIRST_STRING)? as usize)
    }

    pub(crate) fn is_family(&self) -> bool {
        (1..FAMILY_END).contains(&self.role)
    }

    /// Returns the linked donor's symbol that replaces it.
    pub(crate) fn symbol(&self) -> Option<&'static str> {
        self.string().or_else(|| FAMILY.get(self.role.checked_sub(1)? as usize).copied())
    }
}

/// The contents of the note.
#[derive(Debug)]
pub(crate) struct EntryPoints {
    pub(crate) entries: Vec<Entry>,
    /// The first address of the segment that holds the note, which is the donor's.
    donor: u64,
}

pub(crate) fn loads<'e, 'a>(elf: &'e Elf<'a>) -> impl Iterator<Item = &'e Segment<'a>> {
    elf.segments.iter().filter(|segment| segment.kind == PT_LOAD)
}

/// Returns the size of a jump or a call, in bytes.
pub(crate) fn jump_size(arch: Arch) -> usize {
    if arch == Arch::Aarch64 { 4 } else { 5 }
}

/// Returns the target of a jump. `None` if these bytes are not a jump.
fn jump_target(arch: Arch, entry: u64, code: &[u8]) -> Option<u64> {
    if arch == Arch::Aarch64 {
        // B: 26 bits, in words.
        let word = u32::from_le_bytes(*code.first_chunk()?);
        let distance = i64::from((word << 6) as i32 >> 6) * 4;
        return (word >> 26 == 0b00_0101).then(|| entry.wrapping_add_signed(distance));
    }
    let (opcode, distance) = code.split_first()?;
    let distance = i64::from(i32::from_le_bytes(*distance.first_chunk()?));
    (*opcode == 0xe9).then(|| entry.wrapping_add(5).wrapping_add_signed(distance))
}

impl EntryPoints {
    /// Reads the note. `None` if the file has no such note.
    pub(crate) fn parse(elf: &Elf<'_>) -> Option<Result<EntryPoints, String>> {
        let notes = note::all(elf).into_iter().filter(|note| note.owner == note::OWNER && note.kind == KIND);
        let note = notes.map(|note| note.description).next()?;
        Some(EntryPoints::read(elf, note))
    }

    /// Reads the note; an error if it is missing.
    pub(crate) fn required(elf: &Elf<'_>) -> Result<EntryPoints, String> {
        EntryPoints::parse(elf).unwrap_or_else(|| Err("there is no note on the entry points".to_owned()))
    }

    fn read(elf: &Elf<'_>, note: &[u8]) -> Result<EntryPoints, String> {
        let at = (note.as_ptr() as usize).wrapping_sub(elf.bytes.data.as_ptr() as usize) as u64;
        let holds = |load: &&Segment<'_>| {
            let size = load.data.map_or(0, <[u8]>::len) as u64;
            load.flags & PF_X != 0 && (load.offset..load.offset.saturating_add(size)).contains(&at)
        };
        let donor = loads(elf).find(holds).ok_or("the note on the entry points is in no segment with code")?;
        let words = elf.bytes.over(note);
        let mut entries = Vec::new();
        for index in 0..note.len() / 8 {
            let distance = words.u32(index * 8).unwrap_or(0) as i32;
            let place = (at - donor.offset).wrapping_add(donor.address).wrapping_add(8 * index as u64);
            let role = words.u32(index * 8 + 4).unwrap_or(0);
            match distance {
                0 if role == 0 => {}
                0 => return Err(format!("the note on the entry points has number {role}, and no place for it")),
                _ => entries.push(Entry { address: place.wrapping_add_signed(i64::from(distance)), role }),
            }
        }
        match entries.len() {
            0 | 1 => Err("the note on the entry points names fewer than two".to_owned()),
            _ => Ok(EntryPoints { entries, donor: donor.address }),
        }
    }

    /// Returns the address of the donor's first byte. The program's own segments precede it.
    pub(crate) fn donor(&self) -> u64 {
        self.donor
    }

    /// Returns the target of the jump at an entry point.
    pub(crate) fn target(&self, elf: &Elf<'_>, entry: u64) -> Result<u64, String> {
        let code = loads(elf).filter(|load| load.flags & PF_X != 0).find_map(|load| {
            let from = usize::try_from(entry.checked_sub(load.address)?).ok()?;
            load.data?.get(from..from.checked_add(jump_size(elf.arch))?)
        });
        let code = code.ok_or_else(|| format!("the entry point {entry:#x} is not in the code"))?;
        jump_target(elf.arch, entry, code)
            .ok_or_else(|| format!("the entry point {entry:#x} does not begin with a jump"))
    }

    /// Whether the code at an entry point is a jump into the donor's segment.
    pub(crate) fn leads_to(&self, elf: &Elf<'_>, entry: u64) -> Result<(), String> {
        let target = self.target(elf, entry)?;
        let inside =
            loads(elf).any(|load| load.address == self.donor && target.wrapping_sub(load.address) < load.memory);
        match inside {
            true => Ok(()),
            false => Err(format!("the entry point {entry:#x} jumps to {target:#x}, which is not the donor's")),
        }
    }

    /// Whether every entry point is confirmed.
    pub(crate) fn is_confirmed(&self, elf: &Elf<'_>) -> bool {
        self.entries.iter().all(|entry| self.leads_to(elf, entry.address).is_ok())
    }

    /// Returns the string functions among the entry points.
    pub(crate) fn strings(&self) -> impl Iterator<Item = (u64, &'static str)> + '_ {
        self.entries.iter().filter_map(|entry| Some((entry.address, entry.string()?)))
    }

    /// Returns the entries with an unknown number.
    pub(crate) fn unknown(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| !entry.is_family() && entry.string().is_none())
    }

    /// Whether an entry point begins at an address, after its landing pad or before it.
    pub(crate) fn begins_at(&self, address: u64) -> bool {
        self.entries.iter().any(|entry| entry.address == address || entry.address == address + 4)
    }

    /// Whether an entry point begins at an address, or the code there only jumps to one: musl's public functions do
    /// that (src/malloc/free.c), by a jump of 2 or 5 bytes on x86.
    pub(crate) fn is_reached_from(&self, elf: &Elf<'_>, address: u64) -> bool {
        let jumps = |at: u64| {
            let code = loads(elf)
                .filter(|load| load.flags & PF_X != 0)
                .find_map(|load| load.data?.get(usize::try_from(at.checked_sub(load.address)?).ok()?..))?;
            let short = || match (elf.arch, code) {
                (Arch::X86_64, [0xeb, distance, ..]) => Some((at + 2).wrapping_add_signed(i64::from(*distance as i8))),
                _ => None,
            };
            jump_target(elf.arch, at, code).or_else(short)
        };
        let leads = |at: u64| jumps(at).is_some_and(|target| self.begins_at(target));
        self.begins_at(address) || leads(address) || leads(address + 4)
    }

    /// Whether the public `free` is among them. musl's is a function of its own that only jumps to the allocator's
    /// (src/malloc/free.c). It is linked only where the program has no `free` of its own: then there are two.
    pub(crate) fn has_public_free(&self) -> bool {
        self.entries.iter().filter(|entry| entry.role == FREE).count() >= 2
    }
}

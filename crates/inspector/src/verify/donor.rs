//! Checks on a donor's member: its note, its options, its definitions and its undefined symbols.

use std::collections::{BTreeMap, BTreeSet};

use foldhash::HashSet;

use super::check::Check;
use super::digest::sha256;
use super::names::{BESIDE_MUSL, HOOKS, INTERNAL, PUBLIC};
use crate::archive::Member;
use crate::bytes::{Bytes, c_string, printable};
use crate::elf::{Elf, STB_GLOBAL, STB_WEAK, STV_HIDDEN, Section};
use crate::library::{Library, Part};
use crate::note::{self, DESCRIPTION_SIZE, GraftNote, Subject};

/// The section of the options block in an object, and in a file that was linked.
const OPTIONS_SECTION: &[u8] = b".rodata.allograft.options";
pub(super) const LINKED_OPTIONS: &[u8] = b".allograft.options";
const OPTIONS_SECTIONS: [&[u8]; 2] = [OPTIONS_SECTION, LINKED_OPTIONS];
/// "ARGO", read as a little-endian number.
const OPTIONS_MAGIC: u32 = 0x4f47_5241;
/// The size in bytes of the header of the options block.
pub(super) const OPTIONS_HEADER: usize = 16;
/// The size in bytes of an entry.
pub(super) const OPTION_SIZE: usize = 64;
/// The size in bytes of an option's name, with at least one NUL.
const OPTION_NAME: usize = 32;

/// Names that linkers define.
const OF_LINKERS: [&[u8]; 13] = [
    b"_GLOBAL_OFFSET_TABLE_",
    b"_DYNAMIC",
    b"__ehdr_start",
    b"__executable_start",
    b"__init_array_start",
    b"__init_array_end",
    b"__fini_array_start",
    b"__fini_array_end",
    b"__preinit_array_start",
    b"__preinit_array_end",
    b"_end",
    b"__bss_start",
    b"_edata",
];

/// The member that carries a note.
pub(super) struct Donor {
    pub(super) subject: Subject,
    /// The member's place in [`Library::parts`].
    pub(super) number: usize,
    pub(super) note: GraftNote,
    /// The number of the note's section.
    section: usize,
}

impl Donor {
    pub(super) fn part<'l, 'a>(&self, graft: &'l Library<'a>) -> &'l Part<'a> {
        &graft.parts[self.number]
    }
}

/// Returns the sections that hold a note on the subject: the numbers of the part and of the section in it.
fn sections(graft: &Library<'_>, subject: Subject) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    for (number, part) in graft.parts.iter().enumerate() {
        let sections = part.elf.sections.iter().enumerate();
        let named = sections.filter(|(_, section)| section.name == subject.section().as_bytes());
        found.extend(named.map(|(index, _)| (number, index)));
    }
    found
}

/// Whether a member has a note on the subject.
pub(super) fn is_there(graft: &Library<'_>, subject: Subject) -> bool {
    !sections(graft, subject).is_empty()
}

/// Whether a member has a section that is named as one with a note, or may have one: it cannot be read.
pub(super) fn is_noted(member: &Member<'_>) -> bool {
    let subjects = [Subject::Malloc, Subject::Strings].map(|subject| subject.section().as_bytes());
    member.is_elf()
        && Elf::parse(member.data)
            .map_or(true, |elf| elf.sections.iter().any(|section| subjects.contains(&section.name)))
}

/// Checks that the archive has one note on the subject, and that it is well formed.
pub(super) fn note(name: &str, graft: &Library<'_>, subject: Subject) -> (Check, Option<Donor>) {
    let fails = |detail: String| (Check::new(name, false, detail), None);
    let found = sections(graft, subject);
    let (number, section) = match found.as_slice() {
        [] => {
            let section = subject.section();
            return fails(format!("no member has a section `{section}`: this is not one of allograft's grafts"));
        }
        [one] => *one,
        several => {
            let members = several.iter().map(|&(number, _)| graft.label(&graft.parts[number]));
            let members = members.collect::<Vec<_>>().join(", ");
            return fails(format!(
                "{} sections `{}`, in members {members}; one is expected",
                several.len(),
                subject.section()
            ));
        }
    };
    let part = &graft.parts[number];
    match well_formed(part, &part.elf.sections[section], subject) {
        Ok(note) => {
            let detail = format!("member {}: {}", graft.label(part), note.summary(subject.section()));
            (Check::new(name, true, detail), Some(Donor { subject, number, note, section }))
        }
        Err(problem) => fails(format!("member {}: {problem}", graft.label(part))),
    }
}

/// The offset of the note's description in its section.
const DESCRIPTION: usize = 24;

fn well_formed(part: &Part<'_>, section: &Section<'_>, subject: Subject) -> Result<GraftNote, String> {
    if section.kind != crate::elf::SHT_NOTE || section.flags & crate::elf::SHF_ALLOC == 0 {
        return Err("the section of the note is not an allocated SHT_NOTE, so linkers may drop it".to_owned());
    }
    let data = section.data.unwrap_or_default();
    if data.len() != DESCRIPTION + DESCRIPTION_SIZE {
        return Err(format!("the note has {} bytes, expected {}", data.len(), DESCRIPTION + DESCRIPTION_SIZE));
    }
    let notes = note::split(&part.elf.bytes.over(data), section.align);
    let [raw] = notes.as_slice() else { return Err(format!("the section holds {} notes, expected 1", notes.len())) };
    if !raw.is_on(subject) || raw.description.len() != DESCRIPTION_SIZE {
        return Err(format!(
            "the note is `{}` of type {} with {} bytes, expected `allograft` of type {} with {DESCRIPTION_SIZE}",
            printable(raw.owner),
            raw.kind,
            raw.description.len(),
            subject.kind()
        ));
    }
    let end = raw.description.iter().position(|&byte| byte == 0).ok_or("the note's text fills it without a NUL")?;
    if raw.description[end..].iter().any(|&byte| byte != 0) {
        return Err("the note has bytes after the NUL that ends its text".to_owned());
    }
    let note = GraftNote::parse(raw.description).map_err(|problem| format!("the note is incomplete: {problem}"))?;
    let text = String::from_utf8_lossy(&raw.description[..end]);
    let keys: Vec<&str> = text.lines().map(|line| line.split('=').next().unwrap_or_default()).collect();
    let known: Vec<&str> = keys.iter().copied().filter(|key| KEYS.contains(key)).collect();
    if known != KEYS {
        return Err(format!("the note's keys are {}, expected {} in this order", keys.join(" "), KEYS.join(" ")));
    }
    Ok(note)
}

/// The keys of the note, in order.
const KEYS: [&str; 5] = ["donor", "version", "options", "object", "allograft"];

/// Checks that the donor's bytes have the checksum that the note states.
pub(super) fn checksum(name: &str, graft: &Library<'_>, donor: &Donor) -> Check {
    let part = donor.part(graft);
    let mut bytes = graft.member(part).data.to_vec();
    let mut blank = |start: u64, length: usize| {
        let start = usize::try_from(start).unwrap_or(usize::MAX);
        if let Some(range) = bytes.get_mut(start..start.saturating_add(length)) {
            range.fill(0);
        }
    };
    blank(part.elf.sections[donor.section].offset.saturating_add(DESCRIPTION as u64), DESCRIPTION_SIZE);
    let with_options = donor.subject == Subject::Malloc;
    for section in part.elf.sections.iter().filter(|section| with_options && section.name == OPTIONS_SECTION) {
        blank(section.offset, section.data.unwrap_or_default().len());
    }
    let found = format!("sha256:{}", sha256(&bytes));
    if found == donor.note.object {
        Check::new(name, true, found)
    } else {
        Check::new(name, false, format!("the donor's bytes have {found}, and its note says {}", donor.note.object))
    }
}

/// Checks the options of the donor's member, with [`options_of`].
pub(super) fn options(graft: &Library<'_>, donor: &Donor) -> Check {
    options_of(&donor.part(graft).elf, &donor.note.options)
}

/// Checks that the options block is well formed, that its values are in range, and that the note (`noted`) names the
/// options that were set.
pub(super) fn options_of(elf: &Elf<'_>, noted: &str) -> Check {
    const NAME: &str = "options";
    let sections: Vec<_> = elf.sections.iter().filter(|section| OPTIONS_SECTIONS.contains(&section.name)).collect();
    let result = match sections.as_slice() {
        [] => Ok(BTreeMap::new()),
        [section] => read_options(&elf.bytes.over(section.data.unwrap_or_default())),
        several => Err(format!("{} sections `.rodata.allograft.options`, expected 1", several.len())),
    };
    let options = match result {
        Ok(options) => options,
        Err(problem) => return Check::new(NAME, false, problem),
    };
    let set: BTreeSet<String> = options
        .iter()
        .filter(|(_, option)| option.set)
        .map(|(name, option)| format!("{name}={}", option.value))
        .collect();
    let noted: BTreeSet<String> = noted.split_whitespace().map(str::to_owned).collect();
    if set != noted {
        let words = |words: BTreeSet<String>| {
            if words.is_empty() { "nothing".to_owned() } else { words.into_iter().collect::<Vec<_>>().join(" ") }
        };
        let detail = format!("the block has {} set, and the note says {}", words(set), words(noted));
        return Check::new(NAME, false, detail);
    }
    Check::new(NAME, true, format!("{} options, {} of them set", options.len(), set.len()))
}

pub(super) struct DonorOption {
    pub(super) value: i64,
    pub(super) set: bool,
}

/// Reads an options block (docs/options-block.md).
pub(super) fn read_options(block: &Bytes<'_>) -> Result<BTreeMap<String, DonorOption>, String> {
    let word = |at: usize| block.u32(at).ok_or_else(|| "the options block ends within its header".to_owned());
    let (magic, format, count, size) = (word(0)?, word(4)?, word(8)?, word(12)?);
    if (magic, format, size as usize) != (OPTIONS_MAGIC, 1, OPTION_SIZE) {
        return Err(format!(
            "the options block starts with magic {magic:#x}, format {format}, entries of {size} bytes; expected {OPTIONS_MAGIC:#x}, 1, {OPTION_SIZE}"
        ));
    }
    let entries = block.data.get(OPTIONS_HEADER..).unwrap_or_default();
    if entries.len() / OPTION_SIZE != count as usize || entries.len() % OPTION_SIZE != 0 {
        return Err(format!("the options block has {count} entries in {} bytes", entries.len()));
    }
    let mut options = BTreeMap::new();
    for entry in entries.chunks_exact(OPTION_SIZE) {
        let name = c_string(entry, 0).unwrap_or_default();
        let plain = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'_';
        if name.is_empty()
            || !name.iter().all(plain)
            || entry[name.len()..OPTION_NAME.max(name.len())].iter().any(|&byte| byte != 0)
        {
            return Err(format!("`{}` is not a name of an option", printable(&entry[..OPTION_NAME])));
        }
        let name = printable(name);
        let entry = block.over(entry);
        let number = |at| entry.u64(at).unwrap_or_default() as i64;
        let (value, least, greatest) = (number(32), number(40), number(48));
        let (flags, reserved) = (entry.u32(56).unwrap_or_default(), entry.u32(60).unwrap_or_default());
        if !(least..=greatest).contains(&value) {
            return Err(format!("option `{name}` is {value}, and its range is {least} to {greatest}"));
        }
        if flags & !1 != 0 || reserved != 0 {
            return Err(format!("option `{name}` has flags {flags:#x} and {reserved:#x} in its reserved field"));
        }
        if options.insert(name.clone(), DonorOption { value, set: flags & 1 != 0 }).is_some() {
            return Err(format!("option `{name}` is there twice"));
        }
    }
    Ok(options)
}

/// Checks that the donor defines exactly the symbols that a graft must define, with the right binding and visibility.
pub(super) fn exports(graft: &Library<'_>, donor: &Donor) -> Check {
    let part = donor.part(graft);
    let mut complaints = Vec::new();
    let all = || PUBLIC.iter().chain(&BESIDE_MUSL).chain(&INTERNAL).chain(&HOOKS);
    for name in all() {
        let public = PUBLIC.contains(name) || BESIDE_MUSL.contains(name);
        let (binding, visibility) = if public { (STB_WEAK, 0) } else { (STB_GLOBAL, STV_HIDDEN) };
        let expected = if public { "weak and of default visibility" } else { "strong and hidden" };
        match part.exported(name.as_bytes()) {
            // Donors of earlier releases lack these.
            None if BESIDE_MUSL.contains(name) => {}
            None => complaints.push(format!("`{name}` is not defined")),
            Some(symbol) if symbol.binding != binding || symbol.visibility != visibility => {
                complaints.push(format!("`{name}` is not {expected}"));
            }
            Some(_) => {}
        }
    }
    let expected: HashSet<&[u8]> = all().map(|name| name.as_bytes()).collect();
    let others = part.exports().filter(|symbol| !expected.contains(symbol.name));
    complaints.extend(
        others.map(|symbol| format!("`{}` is defined too, and collides with other files", printable(symbol.name))),
    );
    Check::unless("exports", complaints, || format!("{} names, no other", part.exports().count()))
}

/// Checks that every undefined symbol of the donor is defined in the archive or by the linker, or that other members
/// need it too and get it from another library: zig's libc.a leaves memcpy to its compiler's runtime.
pub(super) fn needs(name: &str, graft: &Library<'_>, donor: &Donor) -> Check {
    let definitions = graft.definitions();
    let part = donor.part(graft);
    let needed: BTreeSet<&[u8]> =
        part.elf.symbols.iter().filter(|symbol| symbol.is_needed()).map(|symbol| symbol.name).collect();
    let others: HashSet<&[u8]> = graft
        .parts
        .iter()
        .filter(|other| other.place != part.place)
        .flat_map(|other| other.elf.symbols.iter().filter(|symbol| symbol.is_needed()))
        .map(|symbol| symbol.name)
        .collect();
    let missing = |name: &&&[u8]| {
        !definitions.contains_key(**name)
            && !OF_LINKERS.contains(*name)
            && !is_of_compiler(name)
            && !others.contains(**name)
    };
    let complaints = needed.iter().filter(missing).map(|name| format!("`{}` is not in the archive", printable(name)));
    Check::unless(name, complaints.collect(), || format!("{} symbols, all available", needed.len()))
}

/// Whether a name is one of a compiler's support functions, which replace missing instructions and come with the
/// compiler's own library: an operation, one or two modes of operands and a digit, as `__umoddi3` (GCC internals, "The
/// GCC low-level runtime library"); on arm `__aeabi_` and a name (Run-time ABI for the Arm Architecture); on aarch64 an
/// out-of-line atomic operation.
fn is_of_compiler(name: &[u8]) -> bool {
    const MODES: [&[u8]; 7] = [b"si", b"di", b"ti", b"sf", b"df", b"xf", b"tf"];
    if name.starts_with(b"__aeabi_") || name.starts_with(b"__aarch64_") {
        return true;
    }
    let Some((digit, rest)) = name.strip_prefix(b"__").and_then(|rest| rest.split_last()) else { return false };
    let operation = MODES.iter().find_map(|mode| rest.strip_suffix(*mode));
    digit.is_ascii_digit() && operation.is_some_and(|name| !name.is_empty() && name.iter().all(u8::is_ascii_lowercase))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_compilers_bring_is_told() {
        for name in ["__umoddi3", "__udivti3", "__muloti4", "__aeabi_uldivmod", "__aarch64_cas8_acq_rel"] {
            assert!(is_of_compiler(name.as_bytes()), "{name}");
        }
        for name in ["__malloc_context", "__libc_free", "strlen", "__di3", "__", "nobody_has_this", "__stpcpy2"] {
            assert!(!is_of_compiler(name.as_bytes()), "{name}");
        }
    }
}

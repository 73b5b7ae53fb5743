//! Checks the values that a graft fills into a linked donor: its notes, and its options.

use super::check::Check;
use super::donor::{LINKED_OPTIONS, OPTION_SIZE, OPTIONS_HEADER, read_options};
use crate::bytes::printable;
use crate::elf::{Elf, Section};
use crate::entry_points::loads;
use crate::note::{DESCRIPTION_SIZE, GraftNote, Subject};

/// The size of a note's header with its owner's name (docs/note.md).
const NOTE_HEADER: usize = 24;
/// The fields of a row that a graft writes (docs/options-block.md): the value, and the flags.
const VALUE: std::ops::Range<usize> = 32..40;
const FLAGS: std::ops::Range<usize> = 56..60;

/// Checks that the donor `linked`, which is loaded at `base`, has these texts as its notes (an allocator's, and string
/// functions'), and that its options have the values that the first note states, or their defaults.
pub(super) fn check(graft: &Elf<'_>, linked: &Elf<'_>, base: u64, notes: [Option<&str>; 2]) -> Check {
    let mut complaints = Vec::new();
    for (subject, wanted) in [Subject::Malloc, Subject::Strings].into_iter().zip(notes) {
        let (name, section) = (subject.section(), named(linked, subject.section().as_bytes()));
        let (Some(section), Some(wanted)) = (section, wanted) else {
            if section.is_some() != wanted.is_some() {
                complaints.push(format!("`{name}` is expected in one of graft and donor only"));
            }
            continue;
        };
        let (Some(now), Some(before)) = (section_in(graft, linked, base, section), section.data) else {
            complaints.push(format!("`{name}` is outside the file"));
            continue;
        };
        let mut whole = before.get(..NOTE_HEADER).unwrap_or_default().to_vec();
        whole.extend(wanted.as_bytes());
        whole.resize(NOTE_HEADER + DESCRIPTION_SIZE, 0);
        if now != whole {
            let text = now.get(NOTE_HEADER..).unwrap_or_default();
            let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
            complaints.push(format!("`{name}` is `{}`, expected `{}`", printable(text), printable(wanted.as_bytes())));
        }
    }
    complaints.extend(options(graft, linked, base, notes[0].unwrap_or_default()).err());
    Check::unless("notes", complaints, || "its notes and options are those that were asked for".to_owned())
}

fn named<'e, 'a>(linked: &'e Elf<'a>, name: &[u8]) -> Option<&'e Section<'a>> {
    linked.sections.iter().find(|section| section.name == name)
}

/// The bytes of one of the donor's sections in the graft.
fn section_in<'a>(graft: &Elf<'a>, linked: &Elf<'_>, base: u64, section: &Section<'_>) -> Option<&'a [u8]> {
    let size = section.data?.len();
    let load = loads(linked).find(|load| {
        let size = load.data.map_or(0, <[u8]>::len) as u64;
        section.offset.checked_sub(load.offset).is_some_and(|at| at < size)
    })?;
    let address = load.address.checked_add(section.offset - load.offset)?;
    graft.at_address(base.checked_add(address)?)?.get(..size)
}

fn options(graft: &Elf<'_>, linked: &Elf<'_>, base: u64, note: &str) -> Result<(), String> {
    let section = named(linked, LINKED_OPTIONS).ok_or("the linked donor has no options")?;
    let (now, before) = (section_in(graft, linked, base, section), section.data);
    let (now, before) = now.zip(before).ok_or("the options are outside the file")?;
    let (values, own) = (read_options(&graft.bytes.over(now))?, read_options(&linked.bytes.over(before))?);
    let mut rest = now.to_vec();
    let rows = |bytes: &mut [u8], from: &[u8]| {
        let rows = bytes[OPTIONS_HEADER..].chunks_exact_mut(OPTION_SIZE);
        for (row, from) in rows.zip(from[OPTIONS_HEADER..].chunks_exact(OPTION_SIZE)) {
            row[VALUE].copy_from_slice(&from[VALUE]);
            row[FLAGS].copy_from_slice(&from[FLAGS]);
        }
    };
    if now.len() != before.len() {
        return Err("the options are others than the donor's".to_owned());
    }
    rows(&mut rest, before);
    if rest != before {
        return Err("the names or ranges of the options are not the donor's".to_owned());
    }
    let said = GraftNote::parse(note.as_bytes()).map(|note| note.options).unwrap_or_default();
    for (name, option) in &values {
        let wanted = said.split_whitespace().find_map(|word| word.strip_prefix(name.as_str())?.strip_prefix('='));
        let set = wanted.is_some();
        let expected = wanted.and_then(|text| text.parse().ok()).or_else(|| Some(own.get(name)?.value));
        if Some(option.value) != expected || option.set != set {
            let expected = expected.map_or("nothing".to_owned(), |value| value.to_string());
            return Err(format!("option `{name}` is {}, expected {expected}", option.value));
        }
    }
    Ok(())
}

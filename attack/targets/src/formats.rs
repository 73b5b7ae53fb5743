//! The parts of a donor that are written: notes and options. They are read, written again, and read as the same.

use format::merged::Merged;
use format::needed::Needed;
use format::{DonorKind, Note, note, options};

/// The notes of a graft.
pub(crate) fn notes(input: &[u8]) {
    match Note::parse(input) {
        Ok(note) => {
            // A note that is too long is not written.
            if let Ok(written) = note.encode() {
                assert_eq!(Note::parse(&written).as_ref(), Ok(&note));
            }
        }
        Err(error) => drop(error.to_string()),
    }
    for kind in [DonorKind::Malloc, DonorKind::Strings] {
        if let Ok(within) = note::description(kind, input) {
            assert!(within.end <= input.len() && within.len() == note::DESCRIPTION);
        }
    }
    if let Some(merged) = Merged::parse(input) {
        assert!(input.starts_with(&merged.encode()));
    }
    if let Some(needed) = Needed::parse(input) {
        assert!(input.starts_with(&needed.encode()));
    }
}

/// The block of options.
pub(crate) fn options(input: &[u8]) {
    let mut known = match options::parse(input) {
        Ok(known) => known,
        Err(error) => return drop(error.to_string()),
    };
    let mut same = input.to_vec();
    options::write(&known, &mut same);
    assert_eq!(options::parse(&same).as_ref(), Ok(&known));
    let names: Vec<(String, i64)> = known.iter().map(|option| (option.name.clone(), option.min)).collect();
    for (name, value) in names {
        options::set(&mut known, &name, value).expect("the least value is in range");
    }
    options::write(&known, &mut same);
    assert_eq!(options::parse(&same), Ok(known));
    assert!(same.len() == input.len());
}

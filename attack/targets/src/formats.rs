//! The parts of a donor that are written: notes and options. They are read, written again, and read as the same. And
//! the heap profiles that a donor writes.

use format::merged::Merged;
use format::needed::Needed;
use format::{DonorKind, Note, note, options};
use profiler::heap::{Heap, HeapProfile};

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

/// A heap profile. The files that it names are not read: they are not the fuzzer's.
pub(crate) fn heap(input: &[u8]) {
    let mut profile = match HeapProfile::parse(input) {
        Ok(profile) => profile,
        Err(error) => return drop(error.to_string()),
    };
    profile.forget_files();
    let (live, allocated) = profile.totals();
    let heap = Heap::new(profile, None, None).expect("no file is named");
    let report = &heap.report;
    assert_eq!((report.live, report.allocated), (live, allocated));
    let sum = report.sites.iter().fold(0_u64, |sum, site| sum.saturating_add(site.live.bytes));
    assert!(sum <= live.bytes);
    assert_eq!(heap.page().matches("<script>").count(), 1);
}

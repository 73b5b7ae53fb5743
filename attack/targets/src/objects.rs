//! Relocatable objects: what is made local is local, what is tuned is read again.

use relocatable::{Binding, Coff};
use surgery::donor::{DonorError, DonorObject};

use crate::donation::DONORS;

/// Names with this many letters stay visible.
fn is_kept(name: &[u8]) -> bool {
    name.len().is_multiple_of(2)
}

/// An ELF object.
pub(crate) fn elf(input: &[u8]) {
    let _ = inspector::inspect(input);
    let before = relocatable::symbols(input);
    if let Ok(local) = relocatable::localise(input, &is_kept) {
        assert_eq!(local.len(), input.len(), "it keeps its size");
        if let Ok(before) = before {
            let after = relocatable::symbols(&local).expect("an object whose symbols can be read");
            assert_eq!(after.len(), before.len());
            let wrong =
                after.iter().find(|symbol| symbol.defined && symbol.binding != Binding::Local && !is_kept(symbol.name));
            assert!(wrong.is_none(), "{wrong:?}");
            let visible = |symbols: &[relocatable::Symbol<'_>]| {
                let mut names: Vec<Vec<u8>> = symbols
                    .iter()
                    .filter(|symbol| symbol.binding != Binding::Local && (is_kept(symbol.name) || !symbol.defined))
                    .map(|symbol| symbol.name.to_vec())
                    .collect();
                names.sort();
                names
            };
            assert!(visible(&before) == visible(&after), "what is kept stays");
            let again = relocatable::localise(&local, &is_kept).expect("an object");
            assert!(again == local, "twice is once");
        }
    }
    for (first, second) in [(input, &DONORS.strings[..]), (&DONORS.strings[..], input)] {
        if let Ok(merged) = relocatable::merge(first, second) {
            relocatable::symbols(&merged).expect("an object whose symbols can be read");
        }
    }
    tuned(input, |bytes| DonorObject::parse(bytes));
    tuned(input, |bytes| DonorObject::parse_library(bytes));
}

/// A COFF object.
pub(crate) fn coff(input: &[u8]) {
    let _ = inspector::inspect(input);
    if let Ok(coff) = Coff::parse(input) {
        let _ = coff.sections(".text");
        if let Ok(local) = coff.localised(&is_kept) {
            assert_eq!(local.len(), input.len(), "it keeps its size");
            let again = Coff::parse(&local).expect("an object").localised(&is_kept).expect("an object");
            assert!(again == local, "twice is once");
        }
    }
    tuned(input, |bytes| DonorObject::parse_windows(bytes));
}

/// A donor whose options are filled in is read as the same donor, and its checksum stays.
fn tuned(input: &[u8], parse: fn(&[u8]) -> Result<DonorObject<'_>, DonorError>) {
    let Ok(donor) = parse(input) else { return };
    let options = donor.options();
    let settings: Vec<(String, i64)> = options.iter().map(|option| (option.name.clone(), option.max)).collect();
    let Ok(tuned) = donor.tuned(&settings, "7") else { return };
    let after = parse(&tuned).expect("a donor that can be read");
    assert_eq!(after.checksum(), donor.checksum());
    assert_eq!(after.note().allograft, "7");
    let expected: Vec<(String, i64)> =
        after.options().iter().map(|option| (option.name.clone(), option.value)).collect();
    assert_eq!(settings, expected);
}

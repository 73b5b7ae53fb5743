//! The donors that the targets graft: the default one of this machine's architecture, as `graft` makes it ready.

use std::sync::LazyLock;

use format::needed::Needed;
use format::note::DESCRIPTION;
use format::{Arch, Note};
use sha2::{Digest, Sha256};
use surgery::donor::{DonorObject, note_text};
use transplant::Blob;

/// The architecture of the seeds.
pub(crate) const ARCH: Arch = Arch::X86_64;

const VERSION: &str = "0";

/// A donor for executables.
pub(crate) struct Linked {
    pub(crate) blob: Blob,
    /// The linked donor, before its notes are filled in.
    pub(crate) linked: &'static [u8],
    /// The texts of its notes.
    pub(crate) notes: [Option<String>; 2],
}

/// A donor for dynamic programs.
pub(crate) struct Library {
    pub(crate) tuned: Vec<u8>,
    pub(crate) linked: &'static [u8],
    pub(crate) note: String,
    pub(crate) needed: Needed,
}

/// The donors.
pub(crate) struct Donors {
    pub(crate) object: Vec<u8>,
    pub(crate) strings: Vec<u8>,
    pub(crate) program: Linked,
    pub(crate) program_with_strings: Linked,
    pub(crate) loader: Linked,
    pub(crate) library: Library,
}

/// The donors, made once.
pub(crate) static DONORS: LazyLock<Donors> = LazyLock::new(|| {
    let donor = donors::default_for(ARCH);
    let object = tuned(donor.object(ARCH).expect("it is built"));
    let strings = tuned(donors::strings().object(ARCH).expect("it is built"));
    let linked = donor.library(ARCH).expect("it is built");
    let library = DonorObject::parse_library(linked).expect("a donor").tuned(&[], VERSION).expect("a note");
    let note = DonorObject::parse_library(&library).expect("a donor").note();
    let description: [u8; DESCRIPTION] = note.encode().expect("a note").try_into().expect("its size");
    let needed = Needed { sha256: Sha256::digest(&library).into(), donor: description };
    Donors {
        program: linked_donor(&object, donor.blob(ARCH).expect("it is built"), None, false),
        program_with_strings: linked_donor(
            &object,
            donor.blob_with_strings(ARCH).expect("it is built"),
            Some(&strings),
            false,
        ),
        loader: linked_donor(&object, donor.loader(ARCH).expect("it is built"), None, true),
        library: Library { linked, note: note_text(&note).expect("a note"), tuned: library, needed },
        object,
        strings,
    }
});

fn tuned(object: &[u8]) -> Vec<u8> {
    DonorObject::parse(object).expect("a donor").tuned(&[], VERSION).expect("a note")
}

fn linked_donor(object: &[u8], linked: &'static [u8], strings: Option<&[u8]>, is_other: bool) -> Linked {
    let object = DonorObject::parse(object).expect("a donor");
    let mut note: Note = object.note();
    if is_other {
        // It is compiled differently from the object.
        note.object = format!("sha256:{}", hosts::sha256(linked));
    }
    let mut blob = Blob::parse(linked, &note, &object.options()).expect("a donor");
    let mut notes = [Some(note_text(&note).expect("a note")), None];
    if let Some(strings) = strings {
        let strings = DonorObject::parse(strings).expect("a donor").note();
        blob = blob.with_strings(&strings).expect("a donor");
        notes[1] = Some(note_text(&strings).expect("a note"));
    }
    Linked { blob, linked, notes }
}

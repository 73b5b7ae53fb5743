//! The notes on a donor's probes, for profilers outside (crates/donors/glue/probes.h). They are not loaded: profilers
//! find them by their section's name.

use crate::image::{Image, Section, u32_at, u64_at};

/// Their section (sourceware.org/systemtap/wiki/UserSpaceProbeImplementation).
pub(crate) const SECTION: &str = ".note.stapsdt";
/// The sizes of name and description, and the type (gABI, "Note Section").
const HEAD: usize = 12;

/// A donor's notes, whose addresses count from its own first byte; empty if it has none.
#[derive(Debug, Clone)]
pub(crate) struct Probes(Vec<u8>);

impl Probes {
    /// Takes the notes of a donor's file.
    pub(crate) fn from_image(donor: &Image<'_>) -> Probes {
        let content = donor.section(SECTION.as_bytes()).and_then(Section::content);
        Probes(content.and_then(|at| donor.bytes.get(at)).unwrap_or_default().to_vec())
    }

    /// Returns the notes in a program that has the donor at `base`.
    pub(crate) fn placed(&self, base: u64) -> Vec<u8> {
        let mut notes = self.0.clone();
        let mut at = 0;
        while let (Some(name), Some(description)) = (u32_at(&notes, at), u32_at(&notes, at + 4)) {
            let start = at + HEAD + (name as usize).next_multiple_of(4);
            // The probe's address, that of prelink's mark, which is 0, and the semaphore's.
            for field in [start, start + 16] {
                let address = u64_at(&notes, field).unwrap_or(0).wrapping_add(base);
                if let Some(field) = notes.get_mut(field..field + 8) {
                    field.copy_from_slice(&address.to_le_bytes());
                }
            }
            at = start + (description as usize).next_multiple_of(4);
        }
        notes
    }
}

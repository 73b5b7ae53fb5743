//! The parts that are appended to a linked file of any kind: segments and sections at a location, program headers
//! behind them, jumps into the donor, and the parameters for its start.

use std::ops::Range;

use format::entries::ENTRY;
use format::note;
use format::parameters::{self, Parameters};

use crate::blob::{Blob, BlobError};
use crate::code::Machine;
use crate::image::{Image, PF_R, PROGRAM_HEADER, PT_LOAD, PT_PHDR, Section, Segment};
use crate::location::Location;
use crate::refusal::Refusal;

/// Why no file was made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PlanError {
    #[error(transparent)]
    Refusal(#[from] Refusal),
    #[error(transparent)]
    Blob(#[from] BlobError),
}

/// A jump or a call into the donor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Jump {
    /// The entry point's number in the note on entry points; `None` for a call.
    pub(crate) number: Option<u32>,
    pub(crate) site: u64,
    /// The donor's symbol.
    pub(crate) to: &'static str,
}

/// Where the new parts are, and the program headers behind them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Appended {
    pub(crate) location: Location,
    /// The largest size of a page.
    pub(crate) page: u64,
    /// The address of the program headers, behind everything else that is loaded.
    pub(crate) headers_at: u64,
}

impl Appended {
    /// The place in the file of a new address.
    pub(crate) fn offset(&self, address: u64) -> u64 {
        address - self.location.base + self.location.offset
    }

    /// A segment of new addresses.
    pub(crate) fn segment(&self, kind: u32, flags: u32, range: Range<u64>, align: u64) -> Segment {
        Segment {
            kind,
            flags,
            offset: self.offset(range.start),
            address: range.start,
            physical: range.start,
            file_size: range.end - range.start,
            memory_size: range.end - range.start,
            align,
        }
    }

    /// A section of new addresses.
    pub(crate) fn section(&self, kind: u32, flags: u64, range: &Range<u64>, align: u64) -> Section {
        let (address, size) = (range.start, range.end - range.start);
        Section { kind, flags, address, offset: self.offset(address), size, align, ..Section::default() }
    }

    /// Adds segments to load behind the last loaded one of `segments`, and one for the program headers themselves.
    /// `loads` are permissions and addresses, in their order; neighbours with the same permissions are one segment.
    fn with_loads(&self, mut segments: Vec<Segment>, loads: Vec<(u32, Range<u64>)>) -> Vec<Segment> {
        let mut joined: Vec<(u32, Range<u64>)> = Vec::new();
        for (flags, range) in loads {
            match joined.last_mut() {
                Some((before, last)) if *before == flags => last.end = range.end,
                _ => joined.push((flags, range)),
            }
        }
        let size = ((segments.len() + joined.len() + 1) * PROGRAM_HEADER) as u64;
        let headers = self.headers_at..self.headers_at + size;
        joined.push((PF_R, headers.clone()));
        let last = segments.iter().rposition(|segment| segment.kind == PT_LOAD).map_or(0, |last| last + 1);
        let loads = joined.into_iter().map(|(flags, range)| self.segment(PT_LOAD, flags, range, self.page));
        segments.splice(last..last, loads);
        for own in segments.iter_mut().filter(|segment| segment.kind == PT_PHDR) {
            *own = self.segment(PT_PHDR, PF_R, headers.clone(), 8);
        }
        segments
    }

    /// Appends the program headers to a file that ends before them, and enters them in the ELF header: `segments`, and
    /// `loads` as new segments. Returns how many there are.
    pub(crate) fn write_headers(
        &self,
        file: &mut Vec<u8>,
        segments: Vec<Segment>,
        loads: Vec<(u32, Range<u64>)>,
    ) -> usize {
        let segments = self.with_loads(segments, loads);
        file.extend(segments.iter().flat_map(Segment::encode));
        file[32..40].copy_from_slice(&self.offset(self.headers_at).to_le_bytes());
        file[56..58].copy_from_slice(&(segments.len() as u16).to_le_bytes());
        segments.len()
    }
}

/// Writes the address at which the kernel starts the program.
pub(crate) fn write_start(file: &mut [u8], address: u64) {
    file[24..32].copy_from_slice(&address.to_le_bytes());
}

/// Writes jumps over the program's own bytes. `span` is the distance that a refusal names.
pub(crate) fn write_jumps(
    file: &mut [u8],
    image: &Image<'_>,
    machine: &'static dyn Machine,
    (jumps, blob, base): (&[Jump], &Blob, u64),
    span: u64,
) -> Result<(), PlanError> {
    for jump in jumps {
        let target = base + blob.symbol(jump.to)?;
        let at = image.offset(jump.site).ok_or_else(|| Refusal::Malformed("an entry point is not in it".into()))?;
        let bytes = machine.jump(jump.site, target, jump.number.is_none()).ok_or(Refusal::OutOfReach(span))?;
        file[at..at + bytes.len()].copy_from_slice(&bytes);
    }
    Ok(())
}

/// Writes the note of redirected entry points (docs/note.md): distances, each from its own place.
pub(crate) fn write_entries(blob: &mut Blob, base: u64, entries: &[(u64, u32)]) -> Result<(), PlanError> {
    let at = blob.symbol("transplant_entries")? + note::HEAD as u64;
    if entries.len() > blob.room()? {
        return Err(BlobError::Layout("it has no room for the entry points".to_owned()).into());
    }
    for (index, (entry, number)) in entries.iter().enumerate() {
        let place = at + (ENTRY * index) as u64;
        blob.write(place as usize, &(entry.wrapping_sub(base + place) as u32).to_le_bytes());
        blob.write(place as usize + 4, &number.to_le_bytes());
    }
    Ok(())
}

/// Writes the parameters for the donor's start into the blob.
pub(crate) fn write_parameters(blob: &mut Blob, parameters: &Parameters) -> Result<(), BlobError> {
    let at = blob.symbol("transplant_parameters")? as usize + parameters::HEAD;
    blob.write(at, &parameters.encode());
    Ok(())
}

//! The start of the donor's segments, in memory and in the file.
//!
//! A program may read its own headers where they are mapped: LLVM's profile runtime finds the program headers at
//! `__ehdr_start + e_phoff` and a note at `__ehdr_start + p_offset` (compiler-rt, InstrProfilingPlatformLinux.c), and
//! so do kernels before 5.18 for `AT_PHDR` (fs/binfmt_elf.c). Linkers make both true, since they map the beginning of
//! the file at `__ehdr_start`. Both stay true if every new part is as far behind the ELF header in memory as in the
//! file. Memory that is not in the file (`.bss`) has to be written as zeros for that.

use crate::blob::MOST_BLOB;
use crate::code::{Code, Machine};
use crate::image::{FILE_HEADER, Image, PROGRAM_HEADER};
use crate::refusal::Refusal;
use crate::relocations::Relocations;

/// The address of the donor's first byte, and its offset in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Location {
    pub(crate) base: u64,
    pub(crate) offset: u64,
}

/// How many bytes of zeros a file may grow by without need, to match memory that is not in the file (`.bss`).
const MOST_PADDING: u64 = 1 << 20;
/// The most zeros in a dynamic program, whose loader needs them on kernels before 5.18.
const MOST_HOLE: u64 = 1 << 24;
/// The most zeros in a dynamic program that needs them on every kernel.
const MOST_ZEROS: u64 = 1 << 28;

impl Location {
    /// Chooses the donor's place in a program: as far behind the program's ELF header in memory as in the file, if the
    /// header is mapped at all. If that takes much room, or is out of a jump's reach, it is done only for a program
    /// that refers to its ELF header.
    pub(crate) fn choose(code: &Code<'_>) -> Location {
        let (image, page) = (code.image, code.machine.page());
        let (closest, matching) = Location::candidates(image, page);
        let Some((header, distance)) = matching else { return closest };
        let far = if image.position_independent { distance } else { header + distance };
        let affordable = distance - closest.offset <= MOST_PADDING && far + MOST_BLOB <= code.machine.reach();
        match affordable || refers_to_header(code, header) {
            true => Location { base: header + distance, offset: distance },
            false => closest,
        }
    }

    /// Chooses the donor's place in a dynamic program. Kernels before 5.18 give its loader a wrong address of its
    /// program headers unless the distances agree, so they do, unless that takes more than [`MOST_HOLE`]. A program
    /// with so much `.bss` needs a later kernel ([`Location::needs_later_kernel`]).
    ///
    /// # Errors
    /// It refers to its ELF header, and the distances would take more than [`MOST_ZEROS`].
    pub(crate) fn choose_dynamic(image: &Image<'_>, machine: &'static dyn Machine) -> Result<Location, Refusal> {
        let (closest, matching) = Location::candidates(image, machine.page());
        let Some((header, distance)) = matching else { return Ok(closest) };
        let hole = distance - closest.offset;
        let refers = || -> Result<bool, Refusal> {
            let relocations = Relocations::read_dynamic(image)?;
            Ok(refers_to_header(&Code::new(machine, image, &relocations, true), header))
        };
        if hole > MOST_HOLE {
            if !refers()? {
                return Ok(closest);
            }
            if hole > MOST_ZEROS {
                return Err(Refusal::Merge(format!("its file would grow by {hole} bytes of zeros")));
            }
        }
        Ok(Location { base: header + distance, offset: distance })
    }

    /// Whether only kernels from 5.18 on tell a dynamic program's loader where its program headers are, if these are
    /// among the new parts.
    pub(crate) fn needs_later_kernel(&self, image: &Image<'_>) -> bool {
        mapped_header(image).is_some_and(|header| header + self.offset != self.base)
    }

    /// The closest place, and, if the ELF header is mapped, its address with the least distance behind it that is the
    /// same in memory as in the file.
    fn candidates(image: &Image<'_>, page: u64) -> (Location, Option<(u64, u64)>) {
        let end = image.loads().map(|load| load.memory().end).max().unwrap_or(0);
        // An unused page between the two, so that neither runs into the other.
        let closest = Location {
            base: end.next_multiple_of(page) + page,
            offset: (image.bytes.len() as u64).next_multiple_of(page),
        };
        let header = mapped_header(image).filter(|header| header.is_multiple_of(page));
        (closest, header.map(|header| (header, closest.offset.max(closest.base - header))))
    }
}

/// The address of the program's ELF header, if a segment maps it.
fn mapped_header(image: &Image<'_>) -> Option<u64> {
    let holds = |load: &&crate::image::Segment| load.offset == 0 && load.file_size >= FILE_HEADER as u64;
    image.loads().find(holds).map(|load| load.address)
}

/// Whether any code or data may refer to the ELF header. In a position-independent program a relocation tells the
/// address 0 from the number.
fn refers_to_header(code: &Code<'_>, header: u64) -> bool {
    let image = code.image;
    // The headers contain their own address.
    let headers = header..header + image.segment_headers + (PROGRAM_HEADER * image.segments.len()) as u64;
    let by_data = match image.position_independent {
        true => code.relocations.lead_to(header),
        false => image.find(&header.to_le_bytes()).iter().any(|place| !headers.contains(place)),
    };
    by_data || !code.references(header..header + FILE_HEADER as u64).is_empty()
}

//! Recognises executables that cannot be hosts, by their headers and marks. The others may still be refused for their
//! content.

use format::note::{self, DESCRIPTION, HEAD};
use format::{Arch, DonorKind};

use crate::image::{Image, PT_GNU_PROPERTY, PT_NOTE, SHT_NOTE, u32_at};
use crate::merge::needed;
use crate::notes::places;
use crate::refusal::Refusal;

/// Whether a file carries a graft's note, of any kind.
pub fn carries_graft(bytes: &[u8]) -> bool {
    places(bytes, &note::head(DonorKind::Malloc)).next().is_some() || needed::note(bytes).is_some()
}

/// The descriptions of a graft's notes, of its allocator and of its string functions; `None` if there is no such note.
/// For a program that loads its allocator, the copy of the allocator's note that the program has.
pub fn notes(graft: &[u8]) -> [Option<Vec<u8>>; 2] {
    let [malloc, strings] = DonorKind::ALL.map(|kind| {
        let start = places(graft, &note::head(kind)).next()? + HEAD;
        graft.get(start..start + DESCRIPTION).map(<[u8]>::to_vec)
    });
    [malloc.or_else(|| needed::note(graft).map(|needed| needed.donor.to_vec())), strings]
}

/// Refuses executables of a known kind without libc's malloc, so that the message can name the kind, and those with a
/// graft.
pub(crate) fn check(image: &Image<'_>) -> Result<(), Refusal> {
    check_unguarded(image)?;
    if is_guarded(image) { Err(Refusal::Guarded) } else { Ok(()) }
}

/// Checks a program that no code goes into.
pub(crate) fn check_unguarded(image: &Image<'_>) -> Result<(), Refusal> {
    if let [Some(text), _] = notes(image.bytes) {
        let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let donor = String::from_utf8_lossy(&line[..line.len().min(80)]).into_owned();
        return Err(Refusal::Grafted(donor.strip_prefix("donor=").unwrap_or(&donor).to_owned()));
    }
    let has_section = |name: &[u8]| image.section(name).is_some();
    let has_note = |owner: &[u8]| {
        image.sections.iter().filter(|section| section.kind == SHT_NOTE).any(|section| {
            let content = section.content().and_then(|at| image.bytes.get(at)).unwrap_or_default();
            memchr::memmem::find(content, owner).is_some()
        })
    };
    let what = match () {
        () if image.bytes[..image.bytes.len().min(4096)].windows(4).any(|four| four == b"UPX!") => {
            "packed by UPX: unpack it first (`upx -d`)"
        }
        () if has_section(b".go.buildinfo") || has_note(b"Go\0") => "a Go program: its memory is the Go runtime's",
        () if has_section(b"__libc_freeres_fn") || has_section(b"__libc_IO_vtables") => {
            "linked with the GNU C library, not with musl"
        }
        () => return appended(image),
    };
    Err(Refusal::Other(what))
}

/// Whether the kernel guards the pages of code: GNU_PROPERTY_AARCH64_FEATURE_1_AND has
/// GNU_PROPERTY_AARCH64_FEATURE_1_BTI (System V ABI for the Arm 64-bit Architecture, 6.2). In a static program it then
/// guards all of them, the donor's too.
fn is_guarded(image: &Image<'_>) -> bool {
    const FEATURES: u32 = 0xc000_0000;
    const BTI: u32 = 1;
    if image.arch != Arch::Aarch64 {
        return false;
    }
    let notes = image.segments.iter().filter(|segment| matches!(segment.kind, PT_NOTE | PT_GNU_PROPERTY));
    notes.filter_map(|note| image.read(note.address, usize::try_from(note.file_size).ok()?)).any(|note| {
        let words: Vec<u32> = (0..note.len() / 4).filter_map(|at| u32_at(note, 4 * at)).collect();
        words.windows(3).any(|three| three[0] == FEATURES && three[1] == 4 && three[2] & BTI != 0)
    })
}

/// Refuses data behind everything that the headers describe: archives of self-extracting programs, applications of
/// Python, Node or Deno. Such programs look for it from the end of the file, which would be the graft's. Signatures are
/// stored there, too.
fn appended(image: &Image<'_>) -> Result<(), Refusal> {
    let segments = image.segments.iter().filter(|segment| segment.kind != 0).filter(|segment| segment.file_size != 0);
    let segments = segments.map(|segment| segment.offset.saturating_add(segment.file_size));
    let sections = image.sections.iter().filter_map(|section| section.content()).map(|content| content.end as u64);
    let headers = [
        image.segment_headers + (image.segments.len() * crate::image::PROGRAM_HEADER) as u64,
        image.section_headers + (image.sections.len() * crate::image::SECTION_HEADER) as u64,
    ];
    let known = segments.chain(sections).chain(headers).max().unwrap_or(0);
    let rest = usize::try_from(known).ok().and_then(|known| image.bytes.get(known..)).unwrap_or_default();
    if rest.iter().any(|byte| *byte != 0) || rest.len() >= 4096 {
        return Err(Refusal::Appended(rest.len() as u64));
    }
    Ok(())
}

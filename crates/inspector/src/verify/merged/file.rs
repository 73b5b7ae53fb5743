//! The permitted changes of a dynamic program's file, whether a donor was merged into it or it loads one.

use crate::elf::{Elf, PT_DYNAMIC, PT_LOAD, PT_NOTE, PT_TLS};
use crate::verify::check::Check;
use crate::verify::file::{self, FileChanges, PF_R, PF_W, PT_PHDR, programs};
use crate::verify::section_headers;

/// Checks that the file of a dynamic program, as a graft writes it, is stock's followed by the new parts, which are
/// loaded from `start` on. `donor` is the merged donor, if one was merged.
pub(in crate::verify) fn check(elf: &Elf<'_>, stock: &Elf<'_>, donor: Option<&Elf<'_>>, start: u64) -> Check {
    let headers = programs(elf);
    let changes = FileChanges {
        start,
        kept: &|segment, header| {
            let is_moved = match segment.kind {
                PT_PHDR => true,
                PT_TLS | PT_DYNAMIC => !headers.contains(&header),
                _ => false,
            };
            (!is_moved).then(|| header.to_vec())
        },
        new: &[(PT_LOAD, 1..=usize::MAX), (PT_NOTE, 1..=2), (PT_TLS, 0..=1)],
        demand: &|segment| match segment.kind {
            // Loaders write to it (DT_DEBUG), whatever the linker said.
            PT_DYNAMIC => segment.flags == PF_R | PF_W,
            PT_TLS => {
                let mut before = stock.segments.iter().filter(|before| before.kind == PT_TLS);
                before.all(|before| segment.flags == before.flags && segment.align >= before.align)
            }
            _ => true,
        },
        copied: None,
        sections: None,
        section: &section_headers::of_dynamic,
    };
    let compared = file::compare(elf, stock, &changes)
        .and_then(|()| thread_storage(elf, &[Some(stock), donor]))
        .and_then(|()| ends_with_zeros(elf));
    file::check(elf, stock, compared)
}

/// Checks that zeros fill the room behind the dynamic section, which tools may take for a part of it.
fn ends_with_zeros(elf: &Elf<'_>) -> Result<(), String> {
    const ENTRY: usize = 16;
    let section = elf.segments.iter().find(|segment| segment.kind == PT_DYNAMIC);
    let entries = elf.dynamic_entries().take_while(|(tag, _)| *tag != 0).count();
    let rest = section.and_then(|section| section.data?.get(entries * ENTRY..)).unwrap_or_default();
    match rest.iter().all(|byte| *byte == 0) {
        true => Ok(()),
        false => Err("there are bytes behind the dynamic section".to_owned()),
    }
}

/// Checks that the thread-local storage has room for the storage of all `parts`, and for no more. Each part begins at
/// its alignment, and the program's keeps its distance from the thread pointer, so up to one alignment is unused.
fn thread_storage(elf: &Elf<'_>, parts: &[Option<&Elf<'_>>]) -> Result<(), String> {
    let storage = |elf: &Elf<'_>| elf.segments.iter().find(|it| it.kind == PT_TLS).map(|it| (it.memory, it.align));
    let wanted: u64 = parts.iter().flatten().filter_map(|part| storage(part)).map(|(size, _)| size).sum();
    match storage(elf) {
        None if wanted == 0 => Ok(()),
        Some((size, align)) if size.checked_sub(wanted).is_some_and(|between| between <= align.max(64)) => Ok(()),
        found => {
            let size = found.map_or(0, |(size, _)| size);
            Err(format!("its thread-local storage has {size} bytes, expected {wanted}"))
        }
    }
}

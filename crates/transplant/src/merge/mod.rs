//! Merges a donor, a shared object, into a dynamic program, as a linker would: one file afterwards, whose own `malloc`
//! every library of the process finds first.
//!
//! | module | what lives there |
//! | --- | --- |
//! | `dynamic` | the dynamic section, and the tables that it points to |
//! | `libc` | which libc the program has, and whether it may be merged at all |
//! | `donor` | the donor's shared object: its memory, and what is to be done to it |
//! | `names` | the symbols of both in one table |
//! | `hashes` | the hash tables of symbols |
//! | `kinds` | the numbers of relocations on each architecture |
//! | `relocations` | the relocations of both |
//! | `layout` | where everything goes in memory and in the file |
//! | `sections` | section headers for the new parts |
//! | `needed` | the alternative: the donor stays a shared object, which the program loads first |
//!
//! Facts about loaders are from glibc 2.36 (elf/rtld.c, elf/dl-lookup.c, elf/dl-init.c, csu/libc-start.c) and musl
//! 1.2.5 (ldso/dynlink.c), where no other source is named.

mod donor;
mod dynamic;
mod hashes;
mod kinds;
mod layout;
mod libc;
mod names;
pub(crate) mod needed;
mod relocations;
mod sections;

use format::merged;
use format::{Arch, Linked};

use crate::appended::PlanError;
use crate::code;
use crate::executable::Executable;
use crate::image::Image;
use crate::kind;
use crate::location::Location;
use crate::refusal::Refusal;
use donor::Donor;
use dynamic::Dynamic;
use kinds::Kinds;
pub use libc::Libc;

/// A merged program.
#[derive(Debug, Clone)]
pub struct Merge {
    /// The parts of the merge, for reports.
    pub plan: MergePlan,
    /// The merged file.
    pub bytes: Vec<u8>,
}

/// The changes that a merge makes, with the facts that it relies on.
#[derive(Debug, Clone)]
pub struct MergePlan {
    /// The program's architecture.
    pub arch: Arch,
    /// Whether it loads at any address.
    pub position_independent: bool,
    /// Whether it has a symbol table (not that of its dynamic symbols).
    pub symbols: bool,
    /// Its libc.
    pub libc: Libc,
    /// The names of malloc's family that are the donor's for the whole process.
    pub defined: usize,
    /// Whether it can load libraries into a namespace of their own, which has a libc of its own.
    pub loads_namespaces: bool,
    /// Whether it starts with Linux 5.18 and later only: its `.bss` is too large to be written into the file as zeros.
    pub needs_later_kernel: bool,
    /// The libraries that it needs, by the names in it.
    pub needed: Vec<String>,
}

/// Plans the merge of a shared object with a dynamic program, and makes it (see [`Executable::merge`]).
pub(crate) fn merge(executable: &Executable<'_>, donor: &[u8]) -> Result<Merge, PlanError> {
    let image = &executable.image;
    if executable.kind() != Linked::Dynamic {
        return Err(libc::refused("it has no interpreter: nothing loads libraries for it").into());
    }
    let both = code::machine(image.arch).zip(Kinds::for_arch(image.arch));
    let (machine, kinds) = both.ok_or_else(|| Refusal::Architecture(image.arch.to_string()))?;
    kind::check(image)?;
    let dynamic = Dynamic::parse(image)?;
    libc::check(&dynamic, image.arch)?;
    let libc = Libc::recognise(&dynamic, image)?;
    let own = Image::parse(donor).map_err(|refusal| donor::layout(refusal.to_string()))?;
    if own.arch != image.arch {
        return Err(donor::layout(format!("it is for {}, and the program for {}", own.arch, image.arch)).into());
    }
    let own = Donor::parse(&own, machine.page(), kinds)?;
    let location = Location::choose_dynamic(image, machine)?;
    let mut plan = MergePlan {
        arch: image.arch,
        position_independent: image.position_independent,
        symbols: !image.symbols().is_empty(),
        libc,
        defined: 0,
        loads_namespaces: dynamic.loads_namespaces(),
        needs_later_kernel: location.needs_later_kernel(image),
        needed: dynamic.texts(dynamic::NEEDED).into_iter().map(|it| String::from_utf8_lossy(it).into_owned()).collect(),
    };
    let (bytes, defined) = layout::assemble(image, &dynamic, own, libc, location, (machine.page(), kinds))?;
    plan.defined = defined;
    Ok(Merge { plan, bytes })
}

/// The place of the note on a merge in a file; `None` if the file has no such note, or several.
pub(crate) fn note(bytes: &[u8]) -> Option<(usize, merged::Merged)> {
    let head = merged::head();
    let mut found =
        memchr::memmem::find_iter(bytes, &head).filter_map(|at| Some((at, merged::Merged::parse(&bytes[at..])?)));
    found.next().filter(|_| found.next().is_none())
}

/// Returns a copy of a merged program in which none of the program's own constructors runs; those of its libraries do.
/// `None` if no donor was merged into it.
pub(crate) fn with_only_donors_constructors(graft: &Image<'_>) -> Option<Vec<u8>> {
    let (_, merged) = note(graft.bytes)?;
    let tag = if merged.preinit { dynamic::PREINIT_ARRAYSZ } else { dynamic::INIT_ARRAYSZ };
    let at = dynamic::value_at(graft, tag)?;
    let mut copy = graft.bytes.to_vec();
    copy.get_mut(at..at + 8)?.copy_from_slice(&(8 * merged.constructors).to_le_bytes());
    Some(copy)
}

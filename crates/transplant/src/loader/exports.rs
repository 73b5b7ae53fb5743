//! The names that musl's libc.so exports, and the slots through which it calls its own malloc.
//!
//! musl is linked with `--dynamic-list`: calls of malloc, calloc, realloc, free, memalign and aligned_alloc go through
//! slots, so that a program or a library can bring its own; all else is bound inside (musl's `configure` and
//! `dynamic.list`).

use std::collections::HashMap;

use format::{Arch, Role};

use super::refused;
use crate::code::{Code, Machine};
use crate::family::Family;
use crate::image::{Image, PT_DYNAMIC, SHT_DYNSYM, SHT_SYMTAB, Symbol, u64_at};
use crate::refusal::Refusal;

const DT_PLTRELSZ: u64 = 2;
const DT_SYMTAB: u64 = 6;
const DT_JMPREL: u64 = 23;

/// The exported names of each function that a graft redirects.
const NAMES: [(&str, Role); 6] = [
    ("malloc", Role::Malloc),
    ("free", Role::Free),
    ("calloc", Role::Calloc),
    ("realloc", Role::Realloc),
    ("aligned_alloc", Role::AlignedAlloc),
    ("malloc_usable_size", Role::UsableSize),
];
/// Exported functions that stay musl's, and the function that each calls through a slot.
const CALLERS: [(&str, Role); 3] =
    [("memalign", Role::AlignedAlloc), ("posix_memalign", Role::AlignedAlloc), ("reallocarray", Role::Realloc)];

/// The slots by which libc's functions tell whether a program brings functions of its own: the address of each slot,
/// and of libc's function.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slots {
    pub(crate) malloc: (u64, u64),
    pub(crate) aligned_alloc: (u64, u64),
}

/// R_X86_64_JUMP_SLOT, R_AARCH64_JUMP_SLOT (System V ABI, x86-64, 4.4; ELF for the Arm 64-bit Architecture, 5.7.12).
fn jump_slot(arch: Arch) -> u64 {
    if arch == Arch::Aarch64 { 1026 } else { 7 }
}

/// The names of libc.so.
pub(super) struct Exports<'a> {
    /// The exported symbols, and those of the symbol table, if it has one.
    pub(super) symbols: Vec<Symbol<'a>>,
    exported: Vec<Symbol<'a>>,
    /// The slots: name and address.
    slots: Vec<(&'a [u8], u64)>,
}

impl<'a> Exports<'a> {
    pub(super) fn parse(image: &Image<'a>) -> Result<Exports<'a>, Refusal> {
        let dynamic = image.segment(PT_DYNAMIC).ok_or_else(|| refused("has no dynamic section"))?;
        let entries = image.read(dynamic.address, dynamic.file_size as usize).unwrap_or_default();
        let value = |tag: u64| {
            let mut pairs = entries.chunks_exact(16).map(|entry| (u64_at(entry, 0), u64_at(entry, 8)));
            pairs.find(|(is, _)| *is == Some(tag)).and_then(|(_, value)| value)
        };
        let table = image.sections.iter().find(|section| section.kind == SHT_DYNSYM).map(|section| section.address);
        let all = image.symbols_of(SHT_DYNSYM);
        if table.is_none() || table != value(DT_SYMTAB) || all.is_empty() {
            return Err(refused("has no section with its dynamic symbols"));
        }
        let size = usize::try_from(value(DT_PLTRELSZ).unwrap_or(0)).unwrap_or(usize::MAX);
        let relocations = value(DT_JMPREL).and_then(|at| image.read(at, size)).unwrap_or_default();
        let slot = |entry: &[u8]| {
            let (place, info) = (u64_at(entry, 0)?, u64_at(entry, 8)?);
            let symbol = all.get(usize::try_from(info >> 32).ok()?)?;
            (info & 0xffff_ffff == jump_slot(image.arch)).then_some((symbol.name, place))
        };
        let slots = relocations.chunks_exact(24).filter_map(slot).collect();
        let exported: Vec<Symbol<'a>> = all.into_iter().filter(|symbol| symbol.section != 0).collect();
        let mut symbols = image.symbols_of(SHT_SYMTAB);
        symbols.retain(|symbol| symbol.section != 0);
        symbols.extend(&exported);
        Ok(Exports { symbols, exported, slots })
    }

    /// The address of an exported function.
    pub(super) fn address(&self, name: &str) -> Result<u64, Refusal> {
        let found = self.exported.iter().find(|symbol| symbol.name == name.as_bytes());
        found.map(|symbol| symbol.value).ok_or_else(|| refused(format!("does not export `{name}`")))
    }

    /// The jumps through slots, each with the function that libc itself has for the slot.
    pub(super) fn stubs(&self, machine: &dyn Machine, image: &Image<'_>) -> HashMap<u64, u64> {
        let own = |slot: u64| {
            let (name, _) = self.slots.iter().find(|(_, place)| *place == slot)?;
            self.exported.iter().find(|symbol| symbol.name == *name).map(|symbol| symbol.value)
        };
        machine.indirect_jumps(image).into_iter().filter_map(|(site, slot)| Some((site, own(slot)?))).collect()
    }

    fn slot(&self, name: &str) -> Result<u64, Refusal> {
        let found: Vec<u64> =
            self.slots.iter().filter(|(is, _)| *is == name.as_bytes()).map(|(_, place)| *place).collect();
        match found.as_slice() {
            [one] => Ok(*one),
            other => Err(refused(format!("calls `{name}` through {} slots, expected one", other.len()))),
        }
    }

    pub(super) fn slots(&self) -> Result<Slots, Refusal> {
        let of = |name| Ok((self.slot(name)?, self.address(name)?));
        Ok(Slots { malloc: of("malloc")?, aligned_alloc: of("aligned_alloc")? })
    }

    /// Refuses unless the exported names resolve to the family that was found by its code, and the family is complete.
    pub(super) fn agree(&self, code: &mut Code<'_>, family: &Family) -> Result<(), Refusal> {
        let calloc = self.address("calloc")?;
        let of = |role: Role| match role {
            // There are two: calloc, and `__libc_calloc` for blocks of libc's own.
            Role::Calloc => Some(calloc).filter(|start| family.wrappers.contains(&(role, *start))),
            _ => family.core.get(&role).copied(),
        };
        for (name, role) in NAMES {
            let exported = self.address(name)?;
            let found = of(role).ok_or(Refusal::Missing(role))?;
            if code.through(exported) != found {
                return Err(Refusal::Symbol { name, address: exported, found: Some(found) });
            }
        }
        for (name, role) in CALLERS {
            let start = self.address(name)?;
            let leads: Vec<u64> = code.function(start).map(|it| it.leads_to().collect()).unwrap_or_default();
            let wanted = of(role);
            if !leads.into_iter().chain([start]).any(|to| Some(code.through(to)) == wanted) {
                return Err(refused(format!("its `{name}` does not call `{role}`")));
            }
        }
        for role in [Role::IsZero, Role::Donate] {
            of(role).ok_or(Refusal::Missing(role))?;
        }
        let hook = of(Role::ForkHook).ok_or(Refusal::ForkHook)?;
        let fork = self.address("fork")?;
        match code.function(fork).is_some_and(|function| function.leads_to().any(|to| to == hook)) {
            true => Ok(()),
            false => Err(Refusal::ForkHook),
        }
    }
}

//! The relocations of the program and of the donor in one table.

use super::donor::Donor;
use super::dynamic::{Dynamic, JMPREL, PLTRELSZ, RELA, RELASZ, RELOCATION, Relocation};
use super::kinds::Kinds;
use super::libc::refused;
use super::names::Names;
use crate::appended::PlanError;
use crate::blob::BlobError;
use crate::image::{Image, Segment};

/// The changes to the program's places and thread-local storage.
#[derive(Debug)]
pub(super) struct Moves {
    /// The segment of the program's initial thread-local storage in stock.
    pub(super) stock: Option<Segment>,
    /// The address of the same bytes in the new storage.
    pub(super) at: u64,
    /// The number of bytes in front of them.
    pub(super) front: u64,
}

impl Moves {
    fn holds(&self, place: u64) -> bool {
        self.stock.is_some_and(|tls| (tls.address..tls.address + tls.file_size).contains(&place))
    }

    /// The place of a relocated word, which moves with the thread-local storage.
    fn place(&self, place: u64) -> u64 {
        match self.stock.filter(|_| self.holds(place)) {
            Some(tls) => place - tls.address + self.at,
            None => place,
        }
    }
}

/// The relocations of the merged program.
#[derive(Debug)]
pub(super) struct Table {
    kinds: Kinds,
    pub(super) relative: Vec<Relocation>,
    pub(super) other: Vec<Relocation>,
    /// The entries of DT_JMPREL, which stay in their place.
    pub(super) slots: Vec<Relocation>,
}

impl Table {
    /// Takes the program's relocations.
    pub(super) fn from_program(
        image: &Image<'_>,
        program: &Dynamic<'_>,
        names: &Names,
        moves: &Moves,
        kinds: Kinds,
    ) -> Result<Table, PlanError> {
        let range = |at: u64, size: u64| {
            let start = program.value(at).unwrap_or(0);
            start..start + program.value(size).unwrap_or(0)
        };
        let (all, slots) = (range(RELA, RELASZ), range(JMPREL, PLTRELSZ));
        if !slots.is_empty() && !all.is_empty() && slots.start < all.end && all.start < slots.end {
            return Err(refused("two tables of its relocations overlap").into());
        }
        let mut table = Table { kinds, relative: Vec::new(), other: Vec::new(), slots: Vec::new() };
        for relocation in &program.relocations {
            let now = table.renumbered(relocation, names, moves, false)?;
            let now = Relocation { place: moves.place(now.place), ..now };
            if now.kind == kinds.relative { table.relative.push(now) } else { table.other.push(now) }
        }
        for relocation in &program.slots {
            if moves.holds(relocation.place) {
                return Err(refused("a slot for a function is in its thread-local storage").into());
            }
            let now = table.renumbered(relocation, names, moves, true)?;
            table.slots.push(now);
        }
        // DT_RELR stays unchanged. It relocates the old initial storage, which is no longer read.
        if !image.position_independent && !program.packed.is_empty() {
            return Err(refused("its addresses are fixed, and yet relocated (DT_RELR)").into());
        }
        for (place, word) in program.packed.iter().filter(|(place, _)| moves.holds(*place)) {
            table.relative(moves.place(*place), *word);
        }
        Ok(table)
    }

    pub(super) fn relative(&mut self, place: u64, value: u64) {
        self.relative.push(Relocation { place, kind: self.kinds.relative, symbol: 0, addend: value.cast_signed() });
    }

    /// Adds the donor's relocations; a word that is known now is written into the donor's memory. Its first byte is at
    /// `base`; its part of the thread-local storage begins at `storage`, which ends `end` bytes behind its beginning.
    pub(super) fn add_donor(
        &mut self,
        donor: &mut Donor<'_>,
        image: &Image<'_>,
        names: &Names,
        (base, storage, distance): (u64, u64, i64),
    ) -> Result<Vec<(u64, u64)>, BlobError> {
        let own = donor.tls.address..donor.tls.address + donor.tls.file_size;
        let mut in_storage = Vec::new();
        for (place, value) in donor.relative.clone() {
            let inside = own.contains(&place);
            if inside {
                in_storage.push((place - own.start, base + value));
            }
            if !image.position_independent {
                donor.write(place, base + value)?;
            } else {
                self.relative(if inside { storage + (place - own.start) } else { base + place }, base + value);
            }
        }
        for (place, offset) in donor.thread_distances.clone() {
            donor.write(place, (offset + distance) as u64)?;
        }
        for relocation in &donor.imported {
            let is_slot = relocation.kind == self.kinds.jump_slot;
            let kind = if is_slot { self.kinds.glob_dat } else { relocation.kind };
            let symbol = names.donors[relocation.symbol as usize];
            self.other.push(Relocation { place: base + relocation.place, kind, symbol, addend: relocation.addend });
        }
        Ok(in_storage)
    }

    /// DT_RELA: those that only add the base come first, so that DT_RELACOUNT can give their number.
    pub(super) fn encode(&self) -> Vec<u8> {
        self.relative.iter().chain(&self.other).flat_map(Relocation::encode).collect()
    }

    pub(super) fn size(&self) -> usize {
        (self.relative.len() + self.other.len()) * RELOCATION
    }

    /// A program's relocation with the new number of its symbol.
    fn renumbered(
        &self,
        relocation: &Relocation,
        names: &Names,
        moves: &Moves,
        is_slot: bool,
    ) -> Result<Relocation, PlanError> {
        let (kinds, mut now) = (self.kinds, *relocation);
        let of_storage = [kinds.dtpoff, kinds.tpoff, kinds.tlsdesc].contains(&now.kind);
        let of_symbol = [kinds.relative, kinds.absolute, kinds.glob_dat, kinds.jump_slot].contains(&now.kind);
        if of_storage && now.symbol == 0 {
            now.addend += moves.front as i64;
        } else if !of_storage && !of_symbol && !kinds.kept.contains(&now.kind) {
            // R_X86_64_PC32 and others that linkers leave in code (DT_TEXTREL).
            return Err(refused(format!("it has a relocation of type {}, which is not known", now.kind)).into());
        }
        let alias = names.aliases.get(&relocation.symbol).filter(|_| is_slot && now.kind == kinds.jump_slot);
        now.symbol = match alias {
            Some(alias) => *alias,
            None => names.programs[relocation.symbol as usize],
        };
        Ok(now)
    }
}

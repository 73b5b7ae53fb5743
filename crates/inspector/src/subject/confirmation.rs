//! Confirms what names and notes say: anybody may give a function an allocator's name, or copy a note. An allocator has
//! more than that in the file.

use memchr::memmem;

use crate::code::messages;
use crate::elf::Elf;
use crate::evidence::families;
use crate::note;
use crate::report::{Kind, name};
use crate::subject::image::Image;

/// The functions of an allocator that leaves no marks: rpmalloc 1 has some 40.
const MANY: usize = 12;
/// The parts of zig's libraries of which a program of zig has some, whatever it does. In one that is written in C,
/// little more is left of them than the allocator and the functions of compilers.
const PARTS_OF_ZIG: [&[u8]; 7] = [b"start.", b"os.linux.", b"posix.", b"heap.", b"mem.", b"c.", b"compiler_rt."];

impl Image<'_, '_> {
    /// Whether more of an allocator is in the file than the names around `malloc`: its marks, or where it leaves none,
    /// many functions of its own.
    pub(super) fn is_confirmed(&self, allocator: &str) -> bool {
        if self.kind == Kind::Object {
            // It may be a part of the allocator, without the data that has the marks.
            return true;
        }
        match allocator {
            name::GO => self.has_go_tables(),
            name::GLIBC => {
                let malloc = self.marks.symbol("malloc");
                self.constants.has(name::GLIBC)
                    && (malloc.is_some_and(|malloc| families::calls(self.elf, malloc, "_int_malloc"))
                        || self.uses_messages_of_glibc())
            }
            name::ZIG => PARTS_OF_ZIG.iter().filter(|part| self.has_function_that_begins(part)).count() > 2,
            _ => {
                let rows = || known::ROWS.iter().filter(|row| row.name == allocator);
                let functions = self.elf.symbols.iter().chain(&self.elf.dynamic_symbols);
                let own =
                    functions.filter(|symbol| symbol.is_defined() && rows().any(|row| row.has_function(symbol.name)));
                rows().any(|row| self.constants.has(row.id)) || own.take(MANY).count() == MANY
            }
        }
    }

    fn has_function_that_begins(&self, start: &[u8]) -> bool {
        self.elf.symbols.iter().any(|symbol| symbol.is_defined() && symbol.name.starts_with(start))
    }

    /// Whether a graft's note is about this file: it has the donor's options, and the note on the bond is in its place.
    pub(super) fn has_donor(&self) -> bool {
        let malloc = self.marks.symbol("malloc").filter(|_| self.marks.has("__libc_malloc"));
        self.kind == Kind::Object
            || has_options(self.elf) && note::is_binding_in_place(self.elf, malloc.map(|malloc| malloc.value))
    }

    /// Whether it has the table of functions that each program of Go has: its section, or its header with the marks in
    /// it (Go src/internal/abi/symtab.go, `PCLnTabMagic`).
    pub(super) fn has_go_tables(&self) -> bool {
        let is_table = |name: &[u8]| name == b".gopclntab" || name == b".data.rel.ro.gopclntab";
        let has_header = || {
            let headers = [0xf0, 0xf1, 0xfa, 0xfb].into_iter().flat_map(|magic| {
                [(1, 8), (4, 8), (1, 4), (4, 4), (2, 8)]
                    .map(|(step, width)| [magic, 0xff, 0xff, 0xff, 0, 0, step, width])
            });
            let loaded = self.elf.loaded();
            headers.into_iter().any(|header| loaded.iter().any(|part| memmem::find(part, &header).is_some()))
        };
        self.constants.has(name::GO)
            && match self.elf.sections.is_empty() {
                true => has_header(),
                false => self.elf.sections.iter().any(|section| is_table(section.name)),
            }
    }

    /// Whether code hands messages of glibc's malloc to one function, as `malloc_printerr` is called.
    pub(super) fn uses_messages_of_glibc(&self) -> bool {
        let row = known::ROWS.iter().find(|row| row.id == name::GLIBC);
        let texts: Vec<Vec<u8>> = row.into_iter().flat_map(|row| row.marks).map(known::Mark::bytes).collect();
        messages::are_used(self.elf, &texts)
    }
}

/// Whether the options of a donor are loaded (docs/options-block.md): each donor has some, and no note has them.
fn has_options(elf: &Elf<'_>) -> bool {
    const MAGIC: [u8; 8] = *b"ARGO\x01\0\0\0";
    let is_block = |bytes: &[u8]| {
        let word = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        word(8).is_some_and(|count| count < 1000) && word(12) == Some(64)
    };
    elf.loaded().iter().any(|part| memmem::find_iter(part, &MAGIC).any(|at| is_block(&part[at..])))
}

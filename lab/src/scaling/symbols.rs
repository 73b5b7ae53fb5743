//! A program's code and its symbols.

use std::collections::BTreeSet;
use std::fs;
use std::ops::Range;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use object::elf::{EM_X86_64, ET_EXEC, FileHeader64, PF_X, PT_INTERP, PT_LOAD};
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader};
use object::{Endianness, Object, ObjectSymbol, SymbolKind};

/// The functions whose work is counted.
const ENTRIES: [&str; 6] = ["malloc", "calloc", "realloc", "aligned_alloc", "posix_memalign", "free"];

/// The symbols of a static program.
#[derive(Debug)]
pub(crate) struct Symbols {
    /// The addresses of its code.
    pub(crate) code: Range<u64>,
    /// The addresses of malloc's family.
    pub(crate) entries: BTreeSet<u64>,
    pub(crate) free: u64,
    functions: Vec<(Range<u64>, String)>,
    data: Vec<(Range<u64>, String)>,
}

impl Symbols {
    /// Reads a program.
    ///
    /// # Errors
    /// It is not a static executable for x86_64 with a fixed address, or has no symbols.
    pub(crate) fn read(program: &Path) -> Result<Symbols> {
        let name = program.display();
        let bytes = fs::read(program).with_context(|| format!("cannot read `{name}`"))?;
        let parsed = FileHeader64::<Endianness>::parse(&*bytes);
        let header = parsed.with_context(|| format!("`{name}` is no ELF file of 64 bits"))?;
        let endian = header.endian()?;
        ensure!(header.e_machine(endian) == EM_X86_64, "`{name}` is not for x86_64");
        let segments = header.program_headers(endian, &*bytes)?;
        if segments.iter().any(|segment| segment.p_type(endian) == PT_INTERP) {
            bail!("`{name}` is dynamic; expected a static program\nhelp: link it with -static");
        }
        if header.e_type(endian) != ET_EXEC {
            bail!("`{name}` has no fixed address\nhelp: link it with -static -no-pie");
        }
        let file = ElfFile64::<Endianness>::parse(&*bytes)?;
        let is_code = |segment: &&object::elf::ProgramHeader64<Endianness>| {
            segment.p_type(endian) == PT_LOAD && segment.p_flags(endian).contains(PF_X)
        };
        let ranges: Vec<Range<u64>> = segments
            .iter()
            .filter(is_code)
            .map(|segment| segment.p_vaddr(endian)..segment.p_vaddr(endian) + segment.p_memsz(endian))
            .collect();
        let begin = ranges.iter().map(|range| range.start).min();
        let end = ranges.iter().map(|range| range.end).max();
        let (mut entries, mut free) = (BTreeSet::new(), None);
        let (mut functions, mut data) = (Vec::new(), Vec::new());
        for symbol in file.symbols().filter(ObjectSymbol::is_definition) {
            let (Ok(name), address) = (symbol.name(), symbol.address()) else { continue };
            let range = address..address.saturating_add(symbol.size().max(1));
            match symbol.kind() {
                SymbolKind::Text => {
                    if ENTRIES.contains(&name) {
                        entries.insert(address);
                    }
                    if name == "free" {
                        free = Some(address);
                    }
                    functions.push((range, name.to_owned()));
                }
                SymbolKind::Data => data.push((range, name.to_owned())),
                _ => {}
            }
        }
        functions.sort_by_key(|(range, name)| (range.start, range.end, name.clone()));
        data.sort_by_key(|(range, name)| (range.start, range.end, name.clone()));
        Ok(Symbols {
            code: begin.zip(end).map(|(begin, end)| begin..end).with_context(|| format!("`{name}` has no code"))?,
            entries,
            free: free.with_context(|| format!("`{name}` has no symbol `free`\nhelp: do not strip it"))?,
            functions,
            data,
        })
    }

    /// Returns the name of the function at an address, or the address.
    pub(crate) fn function(&self, address: u64) -> String {
        find(&self.functions, address).map_or_else(|| format!("{address:#x}"), str::to_owned)
    }

    /// Returns the name of the variable that has part of the line at an address.
    pub(crate) fn data(&self, line: u64) -> Option<String> {
        let end = line + super::caches::LINE;
        let within = self.data.iter().filter(|(range, _)| range.start < end && line < range.end);
        let names: BTreeSet<&str> = within.map(|(_, name)| name.as_str()).collect();
        (!names.is_empty()).then(|| names.into_iter().take(3).collect::<Vec<_>>().join(", "))
    }
}

/// Returns the name of the last range that begins at or before an address, if it contains it.
fn find(ranges: &[(Range<u64>, String)], address: u64) -> Option<&str> {
    let at = ranges.partition_point(|(range, _)| range.start <= address);
    let before = ranges[..at].iter().rev().take(8);
    before.into_iter().find(|(range, _)| range.contains(&address)).map(|(_, name)| name.as_str())
}

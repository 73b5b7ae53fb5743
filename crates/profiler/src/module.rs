//! A file that a process has mapped: its code, the names of its functions, its unwind tables.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use gimli::{BaseAddresses, EhFrame, EndianSlice, LittleEndian, UnwindSection};
use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSegment};

use crate::symbols::{Function, Symbols, section};

/// A file as it lies in a process.
#[derive(Debug)]
pub(crate) struct Module {
    /// The path as the process sees it.
    pub(crate) path: String,
    /// What has to be added to an address in the file.
    pub(crate) bias: u64,
    /// Addresses in memory, from its first mapping to its last.
    pub(crate) range: Range<u64>,
    /// The executable parts: address in the file, and bytes.
    code: Vec<(u64, Vec<u8>)>,
    pub(crate) symbols: Symbols,
    /// The parts that have unwind tables: addresses in the file, sorted.
    tables: Vec<Range<u64>>,
    /// Addresses in the file of the executable parts that hold a donor which was put in after linking.
    pub(crate) donor: Option<Range<u64>>,
    /// The sections that framehop reads.
    pub(crate) unwinding: Option<Tables>,
    /// What the inspector says of the file; `None` for the vdso.
    pub(crate) report: Option<inspector::Report>,
}

/// Sections with unwind tables: the address in the file, and the bytes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tables {
    pub(crate) frame: Option<(u64, Vec<u8>)>,
    pub(crate) header: Option<(u64, Vec<u8>)>,
    pub(crate) got: Option<u64>,
    pub(crate) text: Option<(u64, Vec<u8>)>,
}

/// Why a file cannot be profiled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unfit {
    /// It is no 64-bit ELF file, or a damaged one.
    Malformed,
    /// Its `e_machine` is not this machine's.
    Foreign(String),
}

impl Module {
    /// Reads the bytes of a file that is mapped at `range`; `offset` and `address` are a mapping's.
    pub(crate) fn of(
        path: &str,
        bytes: &[u8],
        range: Range<u64>,
        (offset, address): (u64, u64),
        root: &Path,
        inspected: bool,
    ) -> Result<Module, Unfit> {
        let file = ElfFile64::<Endianness>::parse(bytes).map_err(|_| Unfit::Malformed)?;
        // Linkers may put parts of two segments into one page of the file, and only one of them is code.
        let page = 4095;
        let segment = file.segments().filter(is_code).find(|segment| {
            let (start, size) = segment.file_range();
            (start & !page..start.saturating_add(size)).contains(&offset)
        });
        let base = segment.map_or(0, |segment| {
            let (start, _) = segment.file_range();
            segment.address().wrapping_sub(start)
        });
        let bias = address.wrapping_sub(base.wrapping_add(offset));
        let code: Vec<(u64, Vec<u8>)> = file
            .segments()
            .filter(is_code)
            .filter_map(|segment| Some((segment.address(), segment.data().ok()?.to_vec())))
            .collect();
        let owned = |name: &str| section(&file, name).map(|(address, bytes)| (address, bytes.to_vec()));
        let unwinding = Tables {
            frame: owned(".eh_frame"),
            header: owned(".eh_frame_hdr"),
            got: section(&file, ".got").map(|(address, _)| address),
            text: owned(".text"),
        };
        let mut module = Module {
            path: path.to_owned(),
            bias,
            range,
            code,
            symbols: Symbols::of(&file, Path::new(path), root),
            tables: tables(&unwinding),
            donor: None,
            unwinding: None,
            report: if inspected { inspector::inspect(bytes).ok() } else { None },
        };
        if inspected {
            module.find_functions(bytes);
        }
        let places = module.tables.clone().into_iter();
        module.symbols.complete(places.map(|range| Function { start: range.start, end: range.end, name: None }));
        module.unwinding = Some(unwinding);
        Ok(module)
    }

    /// Finds what symbols do not name: musl's malloc family in a stripped program, and a donor that was put in after
    /// linking.
    fn find_functions(&mut self, bytes: &[u8]) {
        if let Some(inspector::Redirected { donor, functions }) = inspector::redirected(bytes) {
            self.donor = Some(donor);
            let named =
                functions.into_iter().map(|(start, name)| Function { start, end: start, name: Some(name.to_owned()) });
            self.symbols.complete(named);
            return;
        }
        // Otherwise the names are there.
        if self.symbols.has("malloc") || self.symbols.has("free") {
            return;
        }
        let found = transplant::functions(bytes);
        let named =
            found.into_iter().map(|(range, name)| Function { start: range.start, end: range.end, name: Some(name) });
        self.symbols.complete(named);
    }

    /// The bytes of code at an address in the file.
    pub(crate) fn code(&self, address: u64) -> &[u8] {
        let part = self.code.iter().find_map(|(start, bytes)| {
            let at = usize::try_from(address.checked_sub(*start)?).ok()?;
            bytes.get(at..).filter(|rest| !rest.is_empty())
        });
        part.unwrap_or_default()
    }

    /// The bytes of code before an address in the file, at most `most`.
    pub(crate) fn code_before(&self, address: u64, most: usize) -> &[u8] {
        let part = self.code.iter().find_map(|(start, bytes)| {
            let at = usize::try_from(address.checked_sub(*start)?).ok()?;
            (at <= bytes.len()).then(|| &bytes[at.saturating_sub(most)..at])
        });
        part.unwrap_or_default()
    }

    /// Whether unwind tables say how to leave the function at this address in the file.
    pub(crate) fn has_table(&self, address: u64) -> bool {
        let after = self.tables.partition_point(|range| range.start <= address);
        after.checked_sub(1).is_some_and(|at| self.tables[at].contains(&address))
    }
}

/// Whether a segment is executable.
fn is_code<'data>(segment: &impl ObjectSegment<'data>) -> bool {
    matches!(segment.flags(), object::SegmentFlags::Elf { p_flags, .. } if p_flags.0 & object::elf::PF_X.0 != 0)
}

/// The code that `.eh_frame` has tables for.
fn tables(unwinding: &Tables) -> Vec<Range<u64>> {
    let Some((address, bytes)) = &unwinding.frame else { return Vec::new() };
    let frame = EhFrame::from(EndianSlice::new(bytes, LittleEndian));
    let mut bases = BaseAddresses::default().set_eh_frame(*address);
    if let Some((text, _)) = &unwinding.text {
        bases = bases.set_text(*text);
    }
    if let Some(got) = unwinding.got {
        bases = bases.set_got(got);
    }
    let mut found = Vec::new();
    let mut entries = frame.entries(&bases);
    // What comes behind damage is not read.
    while let Ok(Some(entry)) = entries.next() {
        if let gimli::CieOrFde::Fde(partial) = entry
            && let Ok(entry) = partial.parse(|frame, bases, offset| frame.cie_from_offset(bases, offset))
            && entry.len() > 0
        {
            found.push(entry.initial_address()..entry.initial_address().saturating_add(entry.len()));
        }
    }
    found.sort_unstable_by_key(|range| range.start);
    found
}

/// Reads the file behind a mapping: through the process's own root folder, as it may be in a container.
pub(crate) fn read(pid: i32, path: &str) -> Option<Vec<u8>> {
    let direct = PathBuf::from(format!("/proc/{pid}/root{path}"));
    let own = PathBuf::from(format!("/proc/{pid}/exe"));
    let program = crate::proc::program(pid).is_some_and(|program| program.as_os_str() == path);
    let places = if program { [own, direct] } else { [direct, PathBuf::from(path)] };
    places.iter().find_map(|place| fs::read(place).ok())
}

/// Whether this machine runs the program: ELF of 64 bits, little-endian, for this architecture.
pub(crate) fn fits(bytes: &[u8]) -> Result<(), Unfit> {
    let Some(header) = bytes.get(..20).filter(|header| header.starts_with(b"\x7fELF")) else {
        return Err(Unfit::Malformed);
    };
    let machine = u16::from_le_bytes([header[18], header[19]]);
    let own = if cfg!(target_arch = "x86_64") { 62 } else { 183 };
    if header[4] == 2 && header[5] == 1 && machine == own {
        return Ok(());
    }
    let name = match (machine, header[4]) {
        (62, 1) => "x32".to_owned(),
        (62, _) => "x86_64".to_owned(),
        (183, _) => "aarch64".to_owned(),
        (3, _) => "i686".to_owned(),
        (40, _) => "arm".to_owned(),
        (243, _) => "riscv64".to_owned(),
        (other, _) => format!("e_machine {other}"),
    };
    Err(Unfit::Foreign(name))
}

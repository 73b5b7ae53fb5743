//! A file that a process has mapped: its code, the names of its functions, its unwind tables.

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use framehop::ExplicitModuleSectionInfo;
use gimli::{BaseAddresses, EhFrame, EndianSlice, LittleEndian, UnwindSection};
use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSegment, ObjectSymbol, ObjectSymbolTable};

use crate::file;
use crate::lines::Lines;
use crate::proc;
use crate::space;
use crate::symbols::{Function, Symbols, section};

/// A file with code.
#[derive(Debug, Default)]
pub(crate) struct Module {
    /// The path as the process sees it.
    pub(crate) path: String,
    /// The executable parts: address in the file, and bytes.
    code: Vec<(u64, Vec<u8>)>,
    /// Their places in the file: offset, size, address.
    segments: Vec<(u64, u64, u64)>,
    /// The functions of other files that it calls, by the address in the file at which their addresses are kept.
    imports: HashMap<u64, String>,
    pub(crate) symbols: Symbols,
    pub(crate) lines: Lines,
    /// The parts that have unwind tables: addresses in the file, sorted.
    tables: Vec<Range<u64>>,
    /// Addresses in the file of the executable parts that hold a donor which was put in after linking.
    pub(crate) donor: Option<Range<u64>>,
    /// The sections that framehop reads.
    unwinding: Option<Tables>,
    /// The inspector's report on the file; `None` for the vdso.
    pub(crate) report: Option<inspector::Report>,
}

/// Sections with unwind tables: the address in the file, and the bytes, which the processes share.
#[derive(Debug, Default)]
struct Tables {
    frame: Option<(u64, Arc<[u8]>)>,
    header: Option<(u64, Arc<[u8]>)>,
    got: Option<u64>,
    text: Option<(u64, Arc<[u8]>)>,
}

/// The reason why a file cannot be profiled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unfit {
    /// It is not a 64-bit ELF file, or it is damaged.
    Malformed,
    /// Its `e_machine` is not this machine's.
    Foreign(String),
}

impl Module {
    /// Reads the bytes of a file, which are not mapped yet.
    pub(crate) fn parse(path: &str, bytes: &[u8], root: &Path, inspected: bool) -> Result<Module, Unfit> {
        let file = ElfFile64::<Endianness>::parse(bytes).map_err(|_| Unfit::Malformed)?;
        let code: Vec<(u64, Vec<u8>)> = file
            .segments()
            .filter(is_code)
            .filter_map(|segment| Some((segment.address(), segment.data().ok()?.to_vec())))
            .collect();
        let owned = |name: &str| section(&file, name).map(|(address, bytes)| (address, Arc::from(bytes)));
        let unwinding = Tables {
            frame: owned(".eh_frame"),
            header: owned(".eh_frame_hdr"),
            got: section(&file, ".got").map(|(address, _)| address),
            text: owned(".text"),
        };
        let (tables, jumpy) = tables(&unwinding);
        let mut module = Module {
            path: path.to_owned(),
            code,
            segments: file.segments().filter(is_code).map(|segment| place(&segment)).collect(),
            imports: imports(&file),
            symbols: Symbols::read(&file, Path::new(path), root),
            lines: Lines::parse(&file),
            tables,
            donor: None,
            unwinding: None,
            report: if inspected { inspector::inspect(bytes).ok() } else { None },
        };
        if inspected {
            module.find_functions(bytes);
        }
        let places = module.tables.clone().into_iter();
        module.symbols.complete(places.map(|range| Function { start: range.start, end: range.end, name: None }));
        module.unwinding = Some(unwinding).filter(|_| !jumpy);
        Ok(module)
    }

    /// Returns the difference between addresses in a process and in the file, from a mapping of code that begins at
    /// `address` and at `offset` of the file.
    pub(crate) fn bias(&self, offset: u64, address: u64) -> u64 {
        // Linkers may put parts of two segments into one page of the file, and only one of them is code.
        let page = 4095;
        let segment = self
            .segments
            .iter()
            .find(|(start, size, _)| (start & !page..start.saturating_add(*size)).contains(&offset));
        let base = segment.map_or(0, |(start, _, address)| address.wrapping_sub(*start));
        address.wrapping_sub(base.wrapping_add(offset))
    }

    /// Returns the unwinder for its frames when it is mapped at `range`, if it has usable tables.
    pub(crate) fn unwinding(&self, range: Range<u64>, bias: u64) -> Option<framehop::Module<Arc<[u8]>>> {
        let tables = self.unwinding.as_ref()?;
        let span = |part: &Option<(u64, Arc<[u8]>)>| {
            part.as_ref().map(|(address, bytes)| *address..address.saturating_add(bytes.len() as u64))
        };
        let bytes = |part: &Option<(u64, Arc<[u8]>)>| part.as_ref().map(|(_, bytes)| bytes.clone());
        let info = ExplicitModuleSectionInfo {
            base_svma: 0,
            text_svma: span(&tables.text),
            eh_frame_svma: span(&tables.frame),
            eh_frame_hdr_svma: span(&tables.header),
            got_svma: tables.got.map(|got| got..got),
            text: bytes(&tables.text),
            eh_frame: bytes(&tables.frame),
            eh_frame_hdr: bytes(&tables.header),
            ..Default::default()
        };
        Some(framehop::Module::new(self.path.clone(), range, bias, info))
    }

    /// The function of a different file that is called directly before this address in the file: through a table of
    /// addresses, or through a piece of code that jumps through it.
    pub(crate) fn imported(&self, address: u64) -> Option<&str> {
        if self.imports.is_empty() {
            return None;
        }
        let slot = space::slot_called(self.code_before(address, 8), address).or_else(|| {
            let target = space::call_before(self.code_before(address, 8), address)??;
            space::slot_jumped(self.code(target), target)
        })?;
        self.imports.get(&slot).map(String::as_str)
    }

    /// Finds functions that symbols do not name: musl's malloc family in a stripped program, and a donor that was put
    /// in after linking.
    fn find_functions(&mut self, bytes: &[u8]) {
        if let Some(inspector::Redirected { donor, functions }) = inspector::redirected(bytes) {
            self.donor = Some(donor);
            // A jump is there; what is behind it never runs, and may be another function's.
            let named = functions.into_iter().map(|(start, name)| Function {
                start,
                end: start.saturating_add(JUMP),
                name: Some(name.to_owned()),
            });
            self.symbols.complete(named);
            return;
        }
        // Otherwise the symbols have the names.
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

#[cfg(test)]
impl Module {
    /// A file with these functions and no unwind tables. `code`: the address of its code, and the bytes.
    pub(crate) fn of_functions(path: &str, functions: Vec<Function>, code: (u64, Vec<u8>)) -> Module {
        let mut module = Module { path: path.to_owned(), code: vec![code], ..Module::default() };
        module.symbols.complete(functions);
        module
    }
}

/// The location of a segment: offset and size in the file, address.
fn place<'data>(segment: &impl ObjectSegment<'data>) -> (u64, u64, u64) {
    let (start, size) = segment.file_range();
    (start, size, segment.address())
}

/// The names that the dynamic linker resolves, by the addresses of the words where it stores the results.
fn imports(file: &ElfFile64<'_, Endianness>) -> HashMap<u64, String> {
    let (Some(relocations), Some(table)) = (file.dynamic_relocations(), file.dynamic_symbol_table()) else {
        return HashMap::new();
    };
    let named = relocations.filter_map(|(address, relocation)| {
        let object::RelocationTarget::Symbol(symbol) = relocation.target() else { return None };
        let symbol = table.symbol_by_index(symbol).ok().filter(|symbol| symbol.kind() != object::SymbolKind::Data)?;
        let name = symbol.name_bytes().ok().filter(|name| !name.is_empty())?;
        Some((address, String::from_utf8_lossy(name).into_owned()))
    });
    named.collect()
}

/// Whether a segment is executable.
fn is_code<'data>(segment: &impl ObjectSegment<'data>) -> bool {
    matches!(segment.flags(), object::SegmentFlags::Elf { p_flags, .. } if p_flags.0 & object::elf::PF_X.0 != 0)
}

/// The most bytes that a jump to a donor's function takes.
const JUMP: u64 = 16;

/// Bytes of a section.
type Slice<'d> = EndianSlice<'d, LittleEndian>;

/// The code that `.eh_frame` has tables for, and whether an expression in them jumps: framehop would evaluate a loop
/// without an end, and compilers write no jumps.
fn tables(unwinding: &Tables) -> (Vec<Range<u64>>, bool) {
    let Some((address, bytes)) = &unwinding.frame else { return (Vec::new(), false) };
    let frame = EhFrame::from(EndianSlice::new(bytes, LittleEndian));
    let mut bases = BaseAddresses::default().set_eh_frame(*address);
    if let Some((text, _)) = &unwinding.text {
        bases = bases.set_text(*text);
    }
    if let Some(got) = unwinding.got {
        bases = bases.set_got(got);
    }
    let mut found = Vec::new();
    let mut jumpy = false;
    let mut entries = frame.entries(&bases);
    // The rest behind damage is not read.
    while let Ok(Some(entry)) = entries.next() {
        let partial = match entry {
            gimli::CieOrFde::Cie(entry) => {
                jumpy |= jumps(entry.instructions(&frame, &bases), &frame, entry.encoding());
                continue;
            }
            gimli::CieOrFde::Fde(partial) => partial,
        };
        if let Ok(entry) = partial.parse(|frame, bases, offset| frame.cie_from_offset(bases, offset))
            && entry.len() > 0
        {
            jumpy |= jumps(entry.instructions(&frame, &bases), &frame, entry.cie().encoding());
            found.push(entry.initial_address()..entry.initial_address().saturating_add(entry.len()));
        }
    }
    found.sort_unstable_by_key(|range| range.start);
    (found, jumpy)
}

/// Whether an expression among these instructions jumps.
fn jumps(
    mut instructions: gimli::CallFrameInstructionIter<'_, Slice<'_>>,
    frame: &EhFrame<Slice<'_>>,
    encoding: gimli::Encoding,
) -> bool {
    use gimli::{CallFrameInstruction as Rule, Operation};
    // The rest behind damage is not evaluated.
    while let Ok(Some(rule)) = instructions.next() {
        let (Rule::DefCfaExpression { expression }
        | Rule::Expression { expression, .. }
        | Rule::ValExpression { expression, .. }) = rule
        else {
            continue;
        };
        let Ok(expression) = expression.get(frame) else { continue };
        let mut operations = expression.operations(encoding);
        while let Ok(Some(operation)) = operations.next() {
            if matches!(operation, Operation::Skip { .. } | Operation::Bra { .. }) {
                return true;
            }
        }
    }
    false
}

/// Reads the file behind a mapping: through the process's own root folder, since the process may be in a container.
pub(crate) fn read(pid: i32, path: &str) -> Option<Vec<u8>> {
    let alive = proc::alive(pid);
    let direct = PathBuf::from(format!("/proc/{alive}/root{path}"));
    let own = PathBuf::from(format!("/proc/{alive}/exe"));
    let program = proc::program(pid).is_some_and(|program| program.as_os_str() == path);
    let places = if program { [own, direct] } else { [direct, PathBuf::from(path)] };
    places.iter().find_map(|place| file::read(place).ok())
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A table with one function, from 0x1000 on, whose CFA is this expression.
    fn frame(expression: &[u8]) -> Tables {
        // Its id, version 1, no augmentation, alignments 1 and -8, return address in 16; the CFA is rsp + 8.
        let common = [0, 0, 0, 0, 1, 0, 1, 0x78, 16, 0x0c, 7, 8];
        let mut entry = vec![20, 0, 0, 0];
        entry.extend(0x1000_u64.to_le_bytes());
        entry.extend(0x20_u64.to_le_bytes());
        // DW_CFA_def_cfa_expression
        entry.extend([0x0f, u8::try_from(expression.len()).unwrap()]);
        entry.extend(expression);
        entry.resize(entry.len().next_multiple_of(8) + 4, 0);
        let mut bytes = Vec::new();
        for part in [&common[..], &entry] {
            bytes.extend(u32::try_from(part.len()).unwrap().to_le_bytes());
            bytes.extend(part);
        }
        bytes.extend([0; 4]);
        Tables { frame: Some((0x2000, bytes.into())), ..Tables::default() }
    }

    /// An expression that never ends would be evaluated for ever.
    #[test]
    fn tables_with_jumps_are_known() {
        // DW_OP_breg7 8, and then DW_OP_skip to itself.
        let function = Range { start: 0x1000, end: 0x1020 };
        let (found, jumps) = tables(&frame(&[0x77, 8]));
        assert_eq!((found.as_slice(), jumps), ([function.clone()].as_slice(), false));
        let (found, jumps) = tables(&frame(&[0x2f, 0xfd, 0xff]));
        assert_eq!((found.as_slice(), jumps), ([function].as_slice(), true));
    }
}

//! Lines of the source, by address: the line tables of DWARF (6.2), which need nothing else of the debug information.

use std::path::Path;
use std::sync::OnceLock;

use gimli::{AttributeValue, DebugLine, DebugLineOffset, DebugLineStr, EndianSlice, LittleEndian};
use object::read::elf::ElfFile64;
use object::{CompressionFormat, Endianness, Object, ObjectSection};

use crate::symbols::section;

/// The largest line tables that are read, in bytes: those of a program of 100 MB. Rows take about five times as much.
const LARGEST: usize = 8 << 20;

/// The line tables of a file with code. They are decoded for the first question: files are read during the recording,
/// which that would disturb.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    /// `.debug_line` and `.debug_line_str`.
    tables: Vec<u8>,
    strings: Vec<u8>,
    decoded: OnceLock<Decoded>,
}

#[derive(Debug, Default)]
struct Decoded {
    /// Sorted by address.
    rows: Vec<Row>,
    /// The names of source files, without folders.
    files: Vec<String>,
}

/// From this address in the file on, up to the next row, code is of this line. Line 0: it is of none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    address: u64,
    line: u32,
    file: u32,
}

type Slice<'d> = EndianSlice<'d, LittleEndian>;

impl Lines {
    /// Reads the line tables of a file. Empty without debug information, where it is compressed, or where it is larger
    /// than [`LARGEST`].
    pub(crate) fn parse(file: &ElfFile64<'_, Endianness>) -> Lines {
        let bytes = |name| section(file, name).map_or(&[][..], |(_, bytes)| bytes);
        let is_plain = |name| {
            let range = file.section_by_name(name).map(|section| section.compressed_file_range());
            range.is_none_or(|range| range.is_ok_and(|range| range.format == CompressionFormat::None))
        };
        let (tables, strings) = (".debug_line", ".debug_line_str");
        if is_plain(tables) && is_plain(strings) && bytes(tables).len() <= LARGEST {
            Lines::new(bytes(tables), bytes(strings))
        } else {
            Lines::default()
        }
    }

    fn new(tables: &[u8], strings: &[u8]) -> Lines {
        Lines { tables: tables.to_vec(), strings: strings.to_vec(), decoded: OnceLock::new() }
    }

    /// The source file's name and the line at an address in the file.
    pub(crate) fn at(&self, address: u64) -> Option<String> {
        self.decoded.get_or_init(|| Decoded::read(&self.tables, &self.strings)).at(address)
    }
}

impl Decoded {
    fn read(tables: &[u8], strings: &[u8]) -> Decoded {
        let mut lines = Decoded::default();
        let strings = DebugLineStr::from(EndianSlice::new(strings, LittleEndian));
        let section = DebugLine::new(tables, LittleEndian);
        let mut offset = 0;
        // Tables behind damaged ones are not read.
        while offset < tables.len()
            && let Ok(program) = section.program(DebugLineOffset(offset), 8, None, None)
        {
            let length = program.header().unit_length();
            let start = usize::from(program.header().encoding().format.initial_length_size());
            lines.add(program, &strings);
            offset = offset.saturating_add(start).saturating_add(length);
        }
        lines.rows.sort_unstable();
        lines
    }

    /// Adds the rows of one table.
    fn add(&mut self, program: gimli::IncompleteLineProgram<Slice<'_>>, strings: &DebugLineStr<Slice<'_>>) {
        let first = u32::try_from(self.files.len()).unwrap_or(u32::MAX);
        let names = program.header().file_names().iter().map(|file| match file.path_name() {
            AttributeValue::String(name) => bare(name),
            AttributeValue::DebugLineStrRef(at) => strings.get_str(at).map_or_else(|_| String::new(), bare),
            _ => String::new(),
        });
        self.files.extend(names);
        // Files are numbered from 1 before DWARF 5.
        let base = u64::from(program.header().version() <= 4);
        let mut sequence = Vec::new();
        let mut rows = program.rows();
        while let Ok(Some((_, row))) = rows.next_row() {
            let line = row.line().and_then(|line| u32::try_from(line.get()).ok()).filter(|_| !row.end_sequence());
            let number = row.file_index().checked_sub(base).and_then(|number| u32::try_from(number).ok());
            let file = number.and_then(|number| first.checked_add(number)).unwrap_or(u32::MAX);
            sequence.push(Row { address: row.address(), line: line.unwrap_or(0), file });
            if row.end_sequence() {
                // A row at the end has no code: it would name whatever follows.
                let end = row.address();
                sequence.retain(|row: &Row| row.address < end || row.line == 0);
                // Linkers leave the tables of functions that they drop, with address 0.
                let kept = sequence.first().is_some_and(|first| first.address != 0);
                self.rows.extend(sequence.drain(..).filter(|_| kept));
            }
        }
    }

    fn at(&self, address: u64) -> Option<String> {
        let after = self.rows.partition_point(|row| row.address <= address);
        let row = self.rows.get(after.checked_sub(1)?)?;
        let name = self.files.get(row.file as usize).filter(|name| !name.is_empty() && row.line > 0)?;
        Some(format!("{name}:{}", row.line))
    }
}

/// The name of a file without its folders.
fn bare(path: Slice<'_>) -> String {
    let path = path.to_string_lossy();
    Path::new(path.as_ref()).file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table of DWARF 4: `x.c`, whose lines 7 and 9 begin at 0x1000 and 0x1010, and which ends at 0x1020. It has a
    /// row there too, as GNU as writes it. And a sequence of a dropped function, at address 0.
    fn table() -> Vec<u8> {
        let mut header = vec![1, 1, 1, 0xfb, 14, 13, 0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1];
        header.push(0);
        header.extend(b"src/x.c\0\0\0\0\0");
        let set = |address: u64| [&[0, 9, 2][..], &address.to_le_bytes()].concat();
        let mut code = set(0x1000);
        // DW_LNS_advance_line 6, copy; advance_pc 16, advance_line 2, copy; advance_pc 16, copy;
        // DW_LNE_end_sequence.
        code.extend([3, 6, 1, 2, 16, 3, 2, 1, 2, 16, 1, 0, 1, 1]);
        code.extend(set(0));
        code.extend([3, 80, 1, 2, 0x90, 0x40, 0, 1, 1]);
        let length = u32::try_from(header.len()).unwrap().to_le_bytes();
        let rest = [&4u16.to_le_bytes()[..], &length, &header, &code].concat();
        [&u32::try_from(rest.len()).unwrap().to_le_bytes()[..], &rest].concat()
    }

    #[test]
    fn addresses_have_lines() {
        let lines = Lines::new(&[table(), table()].concat(), &[]);
        for (address, line) in [(0xfff, None), (0x1000, Some("x.c:7")), (0x100f, Some("x.c:7"))] {
            assert_eq!(lines.at(address).as_deref(), line, "{address:#x}");
        }
        assert_eq!(lines.at(0x1010).as_deref(), Some("x.c:9"));
        assert_eq!((lines.at(0x1020), lines.at(8)), (None, None));
    }

    /// Damaged tables give fewer lines, or none; none of them panics or takes for ever.
    #[test]
    fn damaged_tables_are_read_as_far_as_they_go() {
        let whole = table();
        for cut in 0..whole.len() {
            let _ = Lines::new(&whole[..cut], &[]).at(0x1000);
            let mut damaged = whole.clone();
            damaged[cut] ^= 0xff;
            let _ = Lines::new(&damaged, &[]).at(0x1000);
        }
    }
}

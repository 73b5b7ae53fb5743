//! The names of a file's functions: from its own symbol table, from a separate debug file, and from the code of
//! stripped programs.

use std::path::{Path, PathBuf};

use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSection, ObjectSymbol, SectionKind, SymbolKind};

use crate::file;

/// A function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Function {
    /// Its address in the file.
    pub(crate) start: u64,
    /// The address behind its last byte; equal to `start` if unknown.
    pub(crate) end: u64,
    /// Its name in the file, mangled. `None` if only its place is known.
    pub(crate) name: Option<String>,
}

/// The functions of a file, by address.
#[derive(Debug, Default)]
pub(crate) struct Symbols {
    functions: Vec<Function>,
    /// Whether the names come from a full symbol table.
    pub(crate) full: bool,
}

/// The largest assumed size of a function without an end.
const LONGEST: u64 = 64 << 10;

impl Symbols {
    /// Reads the functions of a file. `path` is the file's, for debug files beside it; `root` is put in front of the
    /// paths of the system's debug files.
    pub(crate) fn read(file: &ElfFile64<'_, Endianness>, path: &Path, root: &Path) -> Symbols {
        let mut symbols = Symbols::default();
        symbols.add(file);
        if !symbols.full
            && let Some(bytes) = debug_file(file, path, root)
            && let Ok(debug) = ElfFile64::<Endianness>::parse(bytes.as_slice())
        {
            symbols.add(&debug);
        }
        symbols
    }

    fn add(&mut self, file: &ElfFile64<'_, Endianness>) {
        let code_sections: Vec<_> = file
            .sections()
            .filter(|section| section.kind() == SectionKind::Text)
            .map(|section| section.index())
            .collect();
        let mut any = false;
        for symbol in file.symbols().chain(file.dynamic_symbols()) {
            // musl's assembly has names without a type.
            let code = match symbol.kind() {
                SymbolKind::Text => true,
                SymbolKind::Unknown | SymbolKind::Label => {
                    symbol.section_index().is_some_and(|section| code_sections.contains(&section))
                }
                _ => false,
            };
            let Ok(name) = symbol.name_bytes() else { continue };
            // ARM's marks of code and data; an assembler's own labels, which stay in files for RISC-V.
            let is_mark = name.starts_with(b"$") || name.starts_with(b".L");
            if !code || !symbol.is_definition() || name.is_empty() || is_mark {
                continue;
            }
            any = true;
            let start = symbol.address();
            let name = Some(String::from_utf8_lossy(name).into_owned());
            self.functions.push(Function { start, end: start.saturating_add(symbol.size()), name });
        }
        self.full |= any && file.symbols().any(|symbol| symbol.kind() == SymbolKind::Text && symbol.is_definition());
        self.sort();
    }

    /// Adds functions from other sources. Known functions keep their names.
    pub(crate) fn complete(&mut self, found: impl IntoIterator<Item = Function>) {
        let fresh: Vec<Function> = found.into_iter().filter(|function| !self.starts_at(function.start)).collect();
        self.functions.extend(fresh);
        self.sort();
    }

    fn starts_at(&self, address: u64) -> bool {
        self.functions.binary_search_by_key(&address, |function| function.start).is_ok()
    }

    /// Sorts by address; if one address has several names, the shortest without leading underscores comes first.
    fn sort(&mut self) {
        let plain = |name: &Option<String>| {
            name.as_ref().map_or((true, usize::MAX, String::new()), |name| {
                (name.starts_with('_') && !name.starts_with("_Z"), name.len(), name.clone())
            })
        };
        self.functions.sort_by_cached_key(|function| (function.start, plain(&function.name)));
        self.functions.dedup_by(|later, first| {
            let same = later.start == first.start;
            if same {
                first.end = first.end.max(later.end);
            }
            same
        });
    }

    /// The function that holds this address.
    pub(crate) fn function_at(&self, address: u64) -> Option<&Function> {
        let after = self.functions.partition_point(|function| function.start <= address);
        let function = self.functions.get(after.checked_sub(1)?)?;
        let end = match function.end > function.start {
            true => function.end,
            false => self
                .functions
                .get(after)
                .map_or(u64::MAX, |next| next.start)
                .min(function.start.saturating_add(LONGEST)),
        };
        (address < end).then_some(function)
    }

    /// Whether a function has that name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.functions.iter().any(|function| function.name.as_deref() == Some(name))
    }
}

/// Reads the separate debug file: by build id, or by name and checksum (GDB, "Debugging Information in Separate
/// Files").
fn debug_file(elf: &ElfFile64<'_, Endianness>, path: &Path, root: &Path) -> Option<Vec<u8>> {
    let system = Path::new("usr/lib/debug");
    if let Ok(Some(id)) = elf.build_id()
        && let [first, rest @ ..] = id
    {
        let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
        let name = format!("{first:02x}/{rest}.debug");
        let by_id = system.join(".build-id").join(name);
        for place in [root.join(&by_id), Path::new("/").join(&by_id)] {
            if let Ok(bytes) = file::read(&place) {
                return Some(bytes);
            }
        }
    }
    let (name, checksum) = elf.gnu_debuglink().ok()??;
    let name = Path::new(bare(name)?);
    let folder = path.parent()?;
    let below = folder.strip_prefix("/").unwrap_or(folder);
    let places: [PathBuf; 3] =
        [folder.join(name), folder.join(".debug").join(name), Path::new("/").join(system).join(below).join(name)];
    places.iter().filter_map(|place| file::read(place).ok()).find(|bytes| {
        let mut crc = flate2::Crc::new();
        crc.update(bytes);
        crc.sum() == checksum
    })
}

/// The name of a debug link, if it is a file's name and not a path: it is searched in certain folders only.
fn bare(name: &[u8]) -> Option<&str> {
    let name = std::str::from_utf8(name).ok()?;
    (!name.is_empty() && !name.contains('/') && ![".", ".."].contains(&name)).then_some(name)
}

/// The demangled name of Rust and C++ functions, without the hash that Rust adds.
pub(crate) fn demangled(name: &str) -> String {
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        return format!("{rust:#}");
    }
    if name.starts_with("_Z")
        && let Ok(symbol) = cpp_demangle::BorrowedSymbol::new(name.as_bytes())
        && let Ok(text) = symbol.demangle_with_options(&cpp_demangle::DemangleOptions::new().no_params())
    {
        return text;
    }
    // A version: memcpy@@GLIBC_2.14.
    name.split('@').next().unwrap_or(name).to_owned()
}

/// The address and the bytes of a section.
pub(crate) fn section<'d>(file: &ElfFile64<'d, Endianness>, name: &str) -> Option<(u64, &'d [u8])> {
    let section = file.section_by_name(name)?;
    Some((section.address(), section.data().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(start: u64, end: u64, name: &str) -> Function {
        Function { start, end, name: Some(name.to_owned()) }
    }

    #[test]
    fn addresses_have_the_functions_around_them() {
        let mut symbols = Symbols::default();
        symbols.complete([function(10, 20, "__one"), function(10, 20, "one"), function(40, 40, "two")]);
        assert_eq!(symbols.function_at(19).unwrap().name.as_deref(), Some("one"));
        assert_eq!(symbols.function_at(20), None);
        assert_eq!(symbols.function_at(90).unwrap().name.as_deref(), Some("two"));
        assert_eq!(symbols.function_at(40 + LONGEST), None);
        symbols.complete([function(10, 30, "other")]);
        assert_eq!(symbols.function_at(10).unwrap().name.as_deref(), Some("one"));
    }

    #[test]
    fn debug_links_are_bare_names() {
        assert_eq!(bare(b"program.debug"), Some("program.debug"));
        for path in [&b"/dev/zero"[..], b"../program", b"", b"..", b"\xff"] {
            assert_eq!(bare(path), None);
        }
    }

    #[test]
    fn names_for_people() {
        assert_eq!(demangled("_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE"), "core::fmt::Write::write_fmt");
        assert_eq!(demangled("_ZN3one3twoEi"), "one::two");
        assert_eq!(demangled("memcpy@@GLIBC_2.14"), "memcpy");
    }
}

//! Names the code of a heap profile: by what the profile says itself, or by the files that it names, whose build ids
//! have to be those of the profile.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSegment, SegmentFlags};

use super::error::HeapError;
use super::reader::{HeapProfile, Mapping};
use crate::file;
use crate::module::{self, Module};
use crate::roles::{Role, is_passed_through, role};
use crate::space;
use crate::symbols::demangled;

/// A function.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Function {
    /// The demangled name; for a function without one, its file and address.
    pub(crate) name: Rc<str>,
    /// The file's name, without folders.
    pub(crate) module: Rc<str>,
}

/// A function, and the facts that follow from its name.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) function: Function,
    pub(crate) role: Role,
    /// Whether it only passes on what it allocates, as the allocator and a language's containers do.
    pub(crate) passes: bool,
}

/// The names of a profile's locations.
#[derive(Default)]
pub(crate) struct Names {
    pub(crate) functions: Vec<Known>,
    numbers: HashMap<Function, u32>,
    /// The functions of each location, the innermost first.
    pub(crate) at: Vec<Vec<u32>>,
    /// The files that give names, by their mappings' files and build ids.
    modules: HashMap<(Rc<str>, Rc<str>), Option<Located>>,
    pub(crate) warnings: Vec<String>,
}

/// A file, and where the process had each of its mappings.
struct Located {
    module: Module,
    /// By mapping: what an address in the process is more than the one in the file.
    biases: HashMap<u32, u64>,
}

impl Names {
    /// Names the locations of a profile. `program`: where the program's file is now, if not at the path that the
    /// profile names.
    ///
    /// # Errors
    /// The file at `program` cannot be read, or is another program's.
    pub(crate) fn new(profile: &HeapProfile, program: Option<&Path>) -> Result<Names, HeapError> {
        let mut names = Names::default();
        names.read_files(profile, program)?;
        for at in 0..profile.locations.len() {
            let functions = names.functions_at(profile, at);
            names.at.push(functions);
        }
        Ok(names)
    }

    fn read_files(&mut self, profile: &HeapProfile, program: Option<&Path>) -> Result<(), HeapError> {
        let used: HashSet<u32> = profile.rows.iter().flat_map(|row| row.stack.iter().copied()).collect();
        let mut addresses: HashMap<u32, Vec<u64>> = HashMap::new();
        for location in used.iter().map(|number| &profile.locations[*number as usize]) {
            if let Some(mapping) = location.mapping.filter(|_| location.lines.is_empty()) {
                addresses.entry(mapping).or_default().push(location.address);
            }
        }
        let main = profile.mappings.first();
        let mut wanted: Vec<u32> = addresses.keys().copied().collect();
        wanted.sort_unstable();
        for number in wanted {
            let mapping = &profile.mappings[number as usize];
            let key = (mapping.file.clone(), mapping.build_id.clone());
            let is_program = main.is_some_and(|main| main.file == mapping.file && main.build_id == mapping.build_id);
            if mapping.file.starts_with('[') || mapping.file.is_empty() && !(is_program && program.is_some()) {
                continue;
            }
            if !self.modules.contains_key(&key) {
                let parts: Vec<(u32, &Mapping, &[u64])> = addresses
                    .iter()
                    .map(|(number, addresses)| (*number, &profile.mappings[*number as usize], addresses.as_slice()))
                    .filter(|(_, other, _)| other.file == mapping.file && other.build_id == mapping.build_id)
                    .collect();
                let named = program.filter(|_| is_program);
                let path = named.map_or_else(|| PathBuf::from(&*mapping.file), Path::to_owned);
                let located = match located(&path, &parts, is_program) {
                    Ok(located) => Some(located),
                    Err(reason) if named.is_some() => {
                        return Err(HeapError::Program(path.display().to_string(), reason));
                    }
                    Err(reason) => {
                        self.warnings.push(format!("`{}` gives no names to its functions: {reason}", path.display()));
                        None
                    }
                };
                self.modules.insert(key, located);
            }
        }
        Ok(())
    }

    /// The module of a location, and the address in its file.
    fn place(&self, profile: &HeapProfile, at: usize) -> Option<(&Module, u64)> {
        let location = &profile.locations[at];
        let number = location.mapping?;
        let mapping = &profile.mappings[number as usize];
        let located = self.modules.get(&(mapping.file.clone(), mapping.build_id.clone()))?.as_ref()?;
        Some((&located.module, location.address.wrapping_sub(*located.biases.get(&number)?)))
    }

    fn functions_at(&mut self, profile: &HeapProfile, at: usize) -> Vec<u32> {
        let location = &profile.locations[at];
        let mapping = location.mapping.map(|number| &profile.mappings[number as usize]);
        let module: Rc<str> = mapping.map_or("[unknown]", |mapping| bare(&mapping.file)).into();
        if !location.lines.is_empty() {
            let functions = location.lines.iter().map(|line| {
                let name = if line.function.is_empty() { &module } else { &line.function };
                Function { name: name.clone(), module: module.clone() }
            });
            return functions.collect::<Vec<_>>().into_iter().map(|function| self.number(function, false)).collect();
        }
        let (name, is_donor) = match self.place(profile, at) {
            // The donor's functions are in no symbol table: the one before them would name them.
            Some((code, address)) if code.donor.as_ref().is_some_and(|donor| donor.contains(&address)) => {
                ("[donor]".to_owned(), true)
            }
            Some((code, address)) => {
                let name = match code.symbols.function_at(address) {
                    Some(function) => match &function.name {
                        Some(name) => demangled(name),
                        None => format!("{module}+{:#x}", function.start),
                    },
                    None => format!("{module}+{address:#x}"),
                };
                (name, false)
            }
            // The address in the file, as far as the mapping tells it: it is the same in every run.
            None => match mapping {
                Some(mapping) => {
                    let address = location.address.wrapping_sub(mapping.start).wrapping_add(mapping.offset);
                    (format!("{module}+{address:#x}"), false)
                }
                None => (format!("[{:#x}]", location.address), false),
            },
        };
        vec![self.number(Function { name: name.into(), module }, is_donor)]
    }

    /// The number of a function, which is kept once.
    fn number(&mut self, function: Function, is_donor: bool) -> u32 {
        let next = u32::try_from(self.functions.len()).unwrap_or(u32::MAX);
        let number = *self.numbers.entry(function.clone()).or_insert(next);
        if number == next {
            let role = if is_donor { Role::Allocator } else { role(&function.name) };
            let passes = role == Role::Allocator || is_passed_through(&function.name);
            self.functions.push(Known { function, role, passes });
        }
        number
    }

    /// The line of the source at a location, such as `server.c:12`, of its function with this number.
    pub(crate) fn line(&self, profile: &HeapProfile, at: usize, function: u32) -> Option<String> {
        let inline = self.at[at].iter().position(|number| *number == function)?;
        if let Some(line) = profile.locations[at].lines.get(inline) {
            return (line.line > 0 && !line.file.is_empty()).then(|| format!("{}:{}", bare(&line.file), line.line));
        }
        let (module, address) = self.place(profile, at)?;
        module.lines.at(address)
    }
}

fn bare(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Reads the file of some mappings, each with the addresses in it that need names. The error is a clause that says why
/// it is not used.
fn located(path: &Path, parts: &[(u32, &Mapping, &[u64])], is_program: bool) -> Result<Located, String> {
    let bytes = file::read(path).map_err(|error| format!("it cannot be read ({error})"))?;
    let elf = ElfFile64::<Endianness>::parse(bytes.as_slice()).map_err(|_| "it is not a 64-bit ELF file".to_owned())?;
    let own = elf.build_id().ok().flatten().map(hexadecimal);
    let expected = parts.first().map(|(_, mapping, _)| mapping.build_id.to_lowercase());
    // Go writes an id of its own there, which is not in hexadecimal.
    let expected = expected.filter(|id| id.len() >= 8 && id.bytes().all(|digit| digit.is_ascii_hexdigit()));
    let same = match (&own, &expected) {
        (Some(own), Some(expected)) if own != expected => {
            return Err(format!("its build id is {own}, that of the profile {expected}"));
        }
        (own, expected) => own.is_some() && own == expected,
    };
    let module = Module::parse(&path.to_string_lossy(), &bytes, Path::new("/"), is_program)
        .map_err(|_| "it is damaged".to_owned())?;
    let native = module::fits(&bytes).is_ok();
    let mut biases = HashMap::new();
    let (mut all, mut good) = (0, 0);
    for (number, mapping, addresses) in parts {
        let bias = bias(&elf, &module, mapping, addresses);
        biases.insert(*number, bias);
        all += addresses.len();
        good += addresses.iter().filter(|it| is_return(&module, it.wrapping_sub(bias), native)).count();
    }
    // Without ids, the code itself says whether it was called from there.
    if !same && good * 4 < all * 3 {
        return Err(format!("it is another build: {} of {all} return addresses do not follow a call", all - good));
    }
    Ok(Located { module, biases })
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether an address in the file, which is one less than a return address, is in code, behind or in a call.
fn is_return(module: &Module, address: u64, native: bool) -> bool {
    let next = address.wrapping_add(1);
    let is_call = || space::call_before(module.code_before(next, 8), next).is_some();
    !module.code(address).is_empty() && (!native || is_call())
}

/// What addresses in a mapping are more than those in the file: by the segment that the mapping's offset is in. Linkers
/// may put parts of two segments into one page; the right one has the addresses in code.
fn bias(elf: &ElfFile64<'_, Endianness>, module: &Module, mapping: &Mapping, addresses: &[u64]) -> u64 {
    let page = 4095;
    let candidates = elf.segments().filter_map(|segment| {
        let (start, size) = segment.file_range();
        let is_code =
            matches!(segment.flags(), SegmentFlags::Elf { p_flags, .. } if p_flags.0 & object::elf::PF_X.0 != 0);
        let range = start & !page..start.saturating_add(size);
        let address = segment.address().wrapping_sub(start).wrapping_add(mapping.offset);
        range.contains(&mapping.offset).then(|| (is_code, mapping.start.wrapping_sub(address)))
    });
    let in_code = |bias: u64| addresses.iter().filter(|it| !module.code(it.wrapping_sub(bias)).is_empty()).count();
    // A profile without mappings of its own has the addresses of the file.
    let candidates = candidates.chain([(false, 0)]);
    candidates.max_by_key(|(is_code, bias)| (in_code(*bias), *is_code)).map_or(0, |(_, bias)| bias)
}

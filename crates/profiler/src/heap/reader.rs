//! Reads a heap profile: a protocol buffer of pprof (github.com/google/pprof, proto/profile.proto), packed by gzip or
//! not.
//!
//! A file may be damaged, or made to harm its reader. So everything that is kept has a limit, and its parts are checked
//! before they are named by others.

use std::collections::HashMap;
use std::io::Read;
use std::path::Path;
use std::rc::Rc;

use flate2::read::MultiGzDecoder;

use super::error::HeapError;
use crate::file;
use crate::protobuf::{Damage, Fields, numbers};

/// The largest profile that is read, packed or unpacked, in bytes. A hundred thousand stacks take some 20 MB.
const LARGEST: u64 = 64 << 20;
/// The most samples, locations, functions and texts that are read, of each.
const MOST: usize = 500_000;
/// The most mappings that are read.
const MOST_MAPPINGS: usize = 10_000;
/// The most frames that are read, of all samples together.
const MOST_FRAMES: usize = 8_000_000;
/// The frames that are kept of a stack, from the innermost on.
const DEEPEST: usize = 512;

/// How long freed blocks lived, by the label `lifetime`, shortest first. `live` is the label of blocks in use.
pub(crate) const LIFETIMES: [&str; 6] =
    ["under 1 ms", "under 10 ms", "under 100 ms", "under 1 s", "under 10 s", "10 s or longer"];

/// A heap profile, as written in its file.
#[derive(Debug, Default)]
pub struct HeapProfile {
    pub(crate) rows: Vec<Row>,
    pub(crate) locations: Vec<Location>,
    pub(crate) mappings: Vec<Mapping>,
    /// Whether the file has values of live blocks.
    pub(crate) has_live: bool,
    /// A block is sampled each time that so many bytes have been allocated. 0: unknown.
    pub(crate) period: u64,
    /// When it was written, in nanoseconds since 1970. 0: unknown.
    pub(crate) time: u64,
    /// Nanoseconds since the program's start, in profiles of grafted programs. 0: unknown.
    pub(crate) duration: u64,
    /// The figures that the program added, by name.
    pub(crate) facts: HashMap<String, String>,
}

/// Blocks that were allocated from one stack, and had one fate.
#[derive(Debug, Default)]
pub(crate) struct Row {
    /// Numbers of locations, the innermost first.
    pub(crate) stack: Vec<u32>,
    /// Whether the stack has more frames than are kept.
    pub(crate) cut: bool,
    pub(crate) allocated: Amount,
    pub(crate) live: Amount,
    /// Of blocks that were freed: their lifetime's place in [`LIFETIMES`].
    pub(crate) lifetime: Option<usize>,
    /// How many sampled blocks the estimate is made of.
    pub(crate) sampled: Option<u64>,
}

/// Blocks and their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct Amount {
    /// Bytes.
    pub bytes: u64,
    /// Blocks.
    pub objects: u64,
}

impl Amount {
    pub(crate) fn add(&mut self, other: Amount) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.objects = self.objects.saturating_add(other.objects);
    }
}

/// An address of code.
#[derive(Debug)]
pub(crate) struct Location {
    /// The number of its mapping.
    pub(crate) mapping: Option<u32>,
    pub(crate) address: u64,
    /// The functions there, with their lines, if the file has them: the innermost first, where others are inlined.
    pub(crate) lines: Vec<Line>,
}

/// A function's name, and the place in its source.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) function: Rc<str>,
    pub(crate) file: Rc<str>,
    pub(crate) line: u64,
}

/// A part of a file, where the process had it.
#[derive(Debug, Clone)]
pub(crate) struct Mapping {
    pub(crate) start: u64,
    pub(crate) limit: u64,
    pub(crate) offset: u64,
    pub(crate) file: Rc<str>,
    /// In hexadecimal.
    pub(crate) build_id: Rc<str>,
}

impl HeapProfile {
    /// Reads the profile in a file.
    ///
    /// # Errors
    /// The file cannot be read, or is not a heap profile.
    pub fn read(path: &Path) -> Result<HeapProfile, HeapError> {
        HeapProfile::parse(&file::head(path, LARGEST + 1).map_err(HeapError::Io)?)
    }

    /// Reads a profile, packed or not.
    ///
    /// # Errors
    /// It is not a heap profile.
    pub fn parse(bytes: &[u8]) -> Result<HeapProfile, HeapError> {
        if !bytes.starts_with(&[0x1f, 0x8b]) {
            return within(bytes);
        }
        let mut unpacked = Vec::new();
        MultiGzDecoder::new(bytes).take(LARGEST + 1).read_to_end(&mut unpacked).map_err(HeapError::Packed)?;
        within(&unpacked)
    }
}

impl HeapProfile {
    /// Forgets which files the profile names, so that none is read for names.
    pub fn forget_files(&mut self) {
        self.mappings.iter_mut().for_each(|mapping| mapping.file = "".into());
    }

    /// All live and all allocated blocks, estimated from samples.
    pub fn totals(&self) -> (Amount, Amount) {
        let (mut live, mut allocated) = (Amount::default(), Amount::default());
        for row in &self.rows {
            live.add(row.live);
            allocated.add(row.allocated);
        }
        (live, allocated)
    }
}

fn within(bytes: &[u8]) -> Result<HeapProfile, HeapError> {
    if bytes.len() as u64 > LARGEST {
        return Err(HeapError::TooMany("bytes"));
    }
    if bytes.starts_with(b"\x7fELF") {
        return Err(HeapError::IsProgram);
    }
    for (start, form) in [
        (&b"heap profile:"[..], "it is a text of gperftools: `pprof -proto PROGRAM FILE` makes one of it"),
        (b"heap_v2/", "it is a text of jemalloc: `jeprof --raw`, then `pprof -proto`, make one of it"),
        (b"", "it is empty"),
    ] {
        if bytes == start || !start.is_empty() && bytes.starts_with(start) {
            return Err(HeapError::Malformed(form));
        }
    }
    Parts::parse(bytes)?.profile()
}

/// A list that has no more than `limit` items.
fn push<T>(list: &mut Vec<T>, item: T, limit: usize, what: &'static str) -> Result<(), HeapError> {
    if list.len() >= limit {
        return Err(HeapError::TooMany(what));
    }
    list.push(item);
    Ok(())
}

impl From<Damage> for HeapError {
    fn from(_: Damage) -> HeapError {
        HeapError::Malformed("a field of it ends behind its message, or has no known wire type")
    }
}

/// The messages of a profile, of which some precede what they name.
#[derive(Default)]
struct Parts<'m> {
    kinds: Vec<&'m [u8]>,
    samples: Vec<&'m [u8]>,
    mappings: Vec<&'m [u8]>,
    locations: Vec<&'m [u8]>,
    functions: Vec<&'m [u8]>,
    texts: Vec<Rc<str>>,
    comments: Vec<u64>,
    time: u64,
    duration: u64,
    period: u64,
}

impl<'m> Parts<'m> {
    fn parse(bytes: &'m [u8]) -> Result<Parts<'m>, HeapError> {
        let mut parts = Parts::default();
        for field in Fields(bytes) {
            let (number, value) = field?;
            match number {
                1 => push(&mut parts.kinds, value.bytes(), 64, "types of samples")?,
                2 => push(&mut parts.samples, value.bytes(), MOST, "samples")?,
                3 => push(&mut parts.mappings, value.bytes(), MOST_MAPPINGS, "mappings")?,
                4 => push(&mut parts.locations, value.bytes(), MOST, "locations")?,
                5 => push(&mut parts.functions, value.bytes(), MOST, "functions")?,
                6 => push(&mut parts.texts, String::from_utf8_lossy(value.bytes()).into(), MOST, "texts")?,
                9 => parts.time = value.number(),
                10 => parts.duration = value.number(),
                12 => parts.period = value.number(),
                13 => {
                    for comment in value.numbers() {
                        push(&mut parts.comments, comment?, 1000, "comments")?;
                    }
                }
                _ => {}
            }
        }
        Ok(parts)
    }

    fn text(&self, at: u64) -> Result<Rc<str>, HeapError> {
        match usize::try_from(at).ok().and_then(|at| self.texts.get(at)) {
            Some(text) => Ok(text.clone()),
            // Index 0 is the empty text, also where there is no table.
            None if at == 0 => Ok("".into()),
            None => Err(HeapError::Missing("text", at)),
        }
    }

    fn profile(self) -> Result<HeapProfile, HeapError> {
        let columns = self.columns()?;
        let (mappings, mapping_numbers) = self.all(&self.mappings, |part| self.mapping(part))?;
        let (functions, function_numbers) = self.all(&self.functions, |part| self.function(part))?;
        let mut lines = 0;
        let (mut locations, location_numbers) = self.all(&self.locations, |part| {
            let (id, location) = location(part, &mapping_numbers, &function_numbers, &functions)?;
            lines += location.lines.len();
            match lines {
                lines if lines > 2 * MOST => Err(HeapError::TooMany("lines")),
                _ => Ok((id, location)),
            }
        })?;
        let mut by_start: Vec<u32> = (0..).take(mappings.len()).collect();
        by_start.sort_by_key(|number| mappings[*number as usize].start);
        for location in locations.iter_mut().filter(|location| location.mapping.is_none()) {
            let after = by_start.partition_point(|number| mappings[*number as usize].start <= location.address);
            let before = after.checked_sub(1).map(|at| by_start[at]);
            location.mapping = before.filter(|number| location.address < mappings[*number as usize].limit);
        }
        let mut frames = 0;
        let mut rows = Vec::new();
        for part in &self.samples {
            let row = self.row(part, &columns, (&locations, &location_numbers), &mut frames)?;
            if row.allocated != Amount::default() || row.live != Amount::default() {
                rows.push(row);
            }
        }
        let comments = self.comments.iter().map(|comment| self.text(*comment)).collect::<Result<Vec<_>, _>>()?;
        let fact = |comment: &Rc<str>| {
            let (name, value) = comment.strip_prefix("allograft: ")?.split_once('=')?;
            Some((name.to_owned(), value.to_owned()))
        };
        let facts = comments.iter().filter_map(fact).collect();
        let (time, duration, period, has_live) = (self.time, self.duration, self.period, columns.live != [None; 2]);
        Ok(HeapProfile { rows, locations, mappings, has_live, period, time, duration, facts })
    }

    /// Finds the columns of the values. Go, jemalloc's and tcmalloc's profiles have these names as well; `space` and
    /// `objects` alone are those of blocks in use.
    fn columns(&self) -> Result<Columns, HeapError> {
        let names = self.kinds.iter().map(|part| self.text(numbers(part, [1])?[0])).collect::<Result<Vec<_>, _>>()?;
        let at = |wanted: [&str; 2]| names.iter().position(|name| wanted.contains(&&**name));
        let allocated = [at(["alloc_space"; 2]), at(["alloc_objects"; 2])];
        let live = [at(["inuse_space", "space"]), at(["inuse_objects", "objects"])];
        match (allocated[0].or(live[0]), names.is_empty()) {
            (Some(_), _) => Ok(Columns { allocated, live }),
            (None, true) => Err(HeapError::Malformed("it has no types of samples")),
            (None, false) => {
                let found = names.iter().take(4).map(|name| name.chars().take(40).collect::<String>());
                Err(HeapError::Foreign(found.collect::<Vec<_>>().join(", ")))
            }
        }
    }

    /// Reads the messages of one kind. Returns them, and their places by their numbers in the file.
    fn all<T>(
        &self,
        parts: &[&'m [u8]],
        mut read: impl FnMut(&'m [u8]) -> Result<(u64, T), HeapError>,
    ) -> Result<(Vec<T>, Numbers), HeapError> {
        let (mut all, mut numbers) = (Vec::with_capacity(parts.len()), Numbers::new());
        for part in parts {
            let (id, item) = read(part)?;
            numbers.insert(id, u32::try_from(all.len()).unwrap_or(u32::MAX));
            all.push(item);
        }
        Ok((all, numbers))
    }

    fn mapping(&self, part: &[u8]) -> Result<(u64, Mapping), HeapError> {
        let [id, start, limit, offset, file, build_id] = numbers(part, [1, 2, 3, 4, 5, 6])?;
        Ok((id, Mapping { start, limit, offset, file: self.text(file)?, build_id: self.text(build_id)? }))
    }

    /// A function's number, and its name and file.
    fn function(&self, part: &[u8]) -> Result<(u64, Line), HeapError> {
        let [id, name, own_name, file] = numbers(part, [1, 2, 3, 4])?;
        let function = self.text(if name == 0 { own_name } else { name })?;
        Ok((id, Line { function, file: self.text(file)?, line: 0 }))
    }

    fn row(
        &self,
        part: &[u8],
        columns: &Columns,
        (locations, location_numbers): (&[Location], &Numbers),
        frames: &mut usize,
    ) -> Result<Row, HeapError> {
        let (mut row, mut values) = (Row::default(), Vec::new());
        for field in Fields(part) {
            match field? {
                (1, value) => {
                    for id in value.numbers() {
                        let id = id?;
                        let number = *location_numbers.get(&id).ok_or(HeapError::Missing("location", id))?;
                        // Inlined functions are frames, too.
                        *frames += locations[number as usize].lines.len().max(1);
                        if *frames > MOST_FRAMES {
                            return Err(HeapError::TooMany("frames"));
                        }
                        row.cut |= row.stack.len() >= DEEPEST;
                        if !row.cut {
                            row.stack.push(number);
                        }
                    }
                }
                (2, value) => {
                    for number in value.numbers() {
                        push(&mut values, number?, 64, "values in a sample")?;
                    }
                }
                (3, value) => {
                    let [name, text, number] = numbers(value.bytes(), [1, 2, 3])?;
                    match (&*self.text(name)?, self.text(text)?) {
                        ("lifetime", text) => row.lifetime = LIFETIMES.iter().position(|known| *known == &*text),
                        ("sampled", _) => row.sampled = Some(number),
                        _ => {}
                    }
                }
                _ => {}
            }
        }
        if values.iter().any(|value| value.cast_signed() < 0) {
            return Err(HeapError::Difference);
        }
        let amount = |[bytes, objects]: [Option<usize>; 2]| {
            let value = |at: Option<usize>| at.and_then(|at| values.get(at)).copied().unwrap_or(0);
            Amount { bytes: value(bytes), objects: value(objects) }
        };
        Ok(Row { allocated: amount(columns.allocated), live: amount(columns.live), ..row })
    }
}

/// Places in a list, by the numbers that the file gives.
type Numbers = HashMap<u64, u32>;

/// The places of values: bytes, blocks.
struct Columns {
    allocated: [Option<usize>; 2],
    live: [Option<usize>; 2],
}

fn location(part: &[u8], maps: &Numbers, functions: &Numbers, all: &[Line]) -> Result<(u64, Location), HeapError> {
    let [id, mapping, address] = numbers(part, [1, 2, 3])?;
    let mut lines = Vec::new();
    for field in Fields(part) {
        if let (4, value) = field? {
            let [function, line] = numbers(value.bytes(), [1, 2])?;
            let known = functions.get(&function).and_then(|at| all.get(*at as usize));
            let known = known.ok_or(HeapError::Missing("function", function))?;
            push(&mut lines, Line { line, ..known.clone() }, 1000, "lines in a location")?;
        }
    }
    let mapping = match mapping {
        0 => None,
        id => Some(*maps.get(&id).ok_or(HeapError::Missing("mapping", id))?),
    };
    Ok((id, Location { mapping, address, lines }))
}

//! Verifies a dynamic program that loads its donor as a shared object: the object comes first among its needed
//! libraries, everything else of the program is unchanged, and the object is the one that the program names.

use super::check::{Check, parse};
use super::digest::sha256;
use super::file::PT_PHDR;
use super::merged::{self, segments, unchanged};
use crate::bytes::printable;
use crate::elf::{Elf, PT_DYNAMIC, PT_LOAD, PT_NOTE};
use crate::error::InspectError;
use crate::note::{self, DESCRIPTION_SIZE, GraftNote};
use crate::tables::Tables;

/// The note's type (docs/note.md), and its section.
const KIND: u32 = 6;
pub(crate) const SECTION: &str = ".note.allograft.needed";
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
const DT_STRSZ: u64 = 10;

/// A program's note on the shared object that it loads.
pub(crate) struct Needed<'a> {
    /// The object's name, as the loader gets it.
    pub(crate) library: Vec<u8>,
    /// The object's SHA-256, in hexadecimal.
    pub(crate) sha256: String,
    /// The text of the donor's note in it, with its trailing NULs.
    text: &'a [u8],
    /// The address where the new parts begin: the note's.
    start: u64,
}

impl<'a> Needed<'a> {
    /// Reads the note. `None` if the program has none.
    pub(crate) fn parse(elf: &Elf<'a>) -> Option<Result<Needed<'a>, String>> {
        elf.interpreter()?;
        let mut found = elf.segments.iter().filter(|it| it.kind == PT_NOTE).filter_map(|segment| {
            let notes = note::split(&elf.bytes.over(segment.data?), segment.align);
            let first = notes.first().filter(|note| note.owner == note::OWNER && note.kind == KIND)?;
            Some((segment.address, first.description))
        });
        let (start, description) = found.next()?;
        if found.next().is_some() {
            return Some(Err("there are several notes on a shared object".to_owned()));
        }
        let format = elf.bytes.over(description).u64(0);
        if description.len() != 8 + 32 + DESCRIPTION_SIZE || format != Some(1) {
            return Some(Err("the note on the shared object has another format".to_owned()));
        }
        let Some(library) = elf.dynamic.needed.first().map(|name| name.to_vec()) else {
            return Some(Err("it has a note on a shared object, and needs none".to_owned()));
        };
        let sha256 = description[8..40].iter().map(|byte| format!("{byte:02x}")).collect();
        Some(Ok(Needed { library, sha256, text: &description[40..], start }))
    }

    /// Parses the copy of the donor's note.
    pub(crate) fn note(&self) -> Result<GraftNote, String> {
        GraftNote::parse(self.text)
    }

    /// Compares the file that the loader takes with the one that the program was grafted with.
    ///
    /// # Errors
    /// The difference.
    pub(crate) fn compare(&self, library: &[u8]) -> Result<(), String> {
        let found = sha256(library);
        if found != self.sha256 {
            return Err(format!("it has sha256 {found}, expected {}", self.sha256));
        }
        let [texts, _] = note::texts(library).map_err(|error| error.to_string())?;
        let text = self.text.split(|byte| *byte == 0).next().unwrap_or_default();
        match texts.as_slice() {
            [one] if one.as_bytes() == text => Ok(()),
            _ => Err("its own note is not the one that the program has".to_owned()),
        }
    }
}

/// Whether it has the note of a dynamic program that loads its donor as a shared object, well formed or not.
pub(super) fn has_note(elf: &Elf<'_>) -> bool {
    Needed::parse(elf).is_some()
}

/// Returns the static checks of a dynamic program that loads its donor; with its stock file also that nothing else
/// changed.
///
/// # Errors
/// A file is not an ELF file, or too damaged to be read.
pub fn needed(graft: &[u8], stock: Option<&[u8]>) -> Result<Vec<Check>, InspectError> {
    let (elf, stock) = (parse(graft)?, stock.map(parse).transpose()?);
    Ok(checks(&elf, stock.as_ref()))
}

fn checks(elf: &Elf<'_>, stock: Option<&Elf<'_>>) -> Vec<Check> {
    let needed = match found(elf) {
        Ok(needed) => needed,
        Err(check) => return vec![check],
    };
    let mut checks = vec![segments(elf, needed.start, &(0..0)), named(&needed)];
    if let Some(stock) = stock {
        checks.push(unchanged(elf, stock, needed.start, &(0..0)));
        checks.push(headers(elf, stock));
        checks.push(dynamic(&Tables::new(elf), &Tables::new(stock), &needed));
    }
    checks
}

/// Returns all checks of such a program before it was stripped or changed: those of [`needed`], that it loads this
/// shared object by this name, and that the rest of the file is stock's.
pub(super) fn complete(elf: &Elf<'_>, stock: &Elf<'_>, name: &[u8], library: &[u8]) -> Vec<Check> {
    let mut checks = checks(elf, Some(stock));
    if let Ok(needed) = found(elf) {
        checks.push(merged::file(elf, stock, None, needed.start));
        let (found, wanted) = (printable(&needed.library), printable(name));
        checks.push(Check::new("name", needed.library == name, format!("it loads `{found}`, expected `{wanted}`")));
    }
    checks.push(check_library(elf, &printable(name), library));
    checks
}

/// Checks that the library that the loader would take (`path` in messages) is the one that this graft was made for.
///
/// # Errors
/// As for [`needed`].
pub fn needed_library(graft: &[u8], path: &str, library: &[u8]) -> Result<Check, InspectError> {
    Ok(check_library(&parse(graft)?, path, library))
}

fn check_library(elf: &Elf<'_>, path: &str, library: &[u8]) -> Check {
    match found(elf) {
        Err(check) => check,
        Ok(needed) => match needed.compare(library) {
            Ok(()) => Check::new("library", true, format!("`{path}` is the file that it was grafted with")),
            Err(problem) => Check::new("library", false, format!("`{path}` is a different file: {problem}")),
        },
    }
}

fn found<'a>(elf: &Elf<'a>) -> Result<Needed<'a>, Check> {
    let found = Needed::parse(elf).unwrap_or_else(|| Err("there is no note on a shared object".to_owned()));
    found.map_err(|problem| Check::new("needed", false, problem))
}

fn named(needed: &Needed<'_>) -> Check {
    let end = needed.text.iter().position(|byte| *byte == 0).unwrap_or(needed.text.len());
    if needed.text[end..].iter().any(|byte| *byte != 0) {
        return Check::new("needed", false, "the note on the shared object has something behind its text");
    }
    match needed.note() {
        Ok(note) => {
            let detail = format!("it loads `{}` first: {} {}", printable(&needed.library), note.donor, note.version);
            Check::new("needed", true, detail)
        }
        Err(problem) => Check::new("needed", false, format!("the note on the shared object: {problem}")),
    }
}

/// Checks that the program headers are stock's, but for what is loaded and where the new parts are.
fn headers(graft: &Elf<'_>, stock: &Elf<'_>) -> Check {
    let kept = |elf: &Elf<'_>| {
        let own = elf.segments.iter().filter(|it| ![PT_LOAD, PT_NOTE, PT_DYNAMIC, PT_PHDR].contains(&it.kind));
        own.map(|it| (it.kind, it.flags, it.address, it.memory, it.align)).collect::<Vec<_>>()
    };
    let same = kept(graft) == kept(stock);
    let detail = if same { "the program headers are stock's" } else { "a program header is not stock's" };
    Check::new("headers", same, detail)
}

/// Checks that the dynamic section has the same entries as stock's behind the shared object's name, and that all names
/// keep their places among its strings.
fn dynamic(graft: &Tables<'_, '_>, stock: &Tables<'_, '_>, needed: &Needed<'_>) -> Check {
    let mut complaints = Vec::new();
    let kept = |entries: &[(u64, u64)]| -> Vec<(u64, u64)> {
        entries.iter().filter(|(tag, _)| ![DT_STRTAB, DT_STRSZ].contains(tag)).copied().collect()
    };
    let own = match graft.entries.split_first() {
        Some(((DT_NEEDED, _), rest)) => rest,
        _ => {
            complaints.push("the dynamic section does not begin with the shared object".to_owned());
            graft.entries.as_slice()
        }
    };
    if kept(own) != kept(&stock.entries) {
        complaints.push("the dynamic section differs from stock's".to_owned());
    }
    let strings = |tables: &Tables<'_, '_>| {
        let size = usize::try_from(tables.value(DT_STRSZ)?).ok()?;
        tables.bytes_at(tables.value(DT_STRTAB)?, size).map(<[u8]>::to_vec)
    };
    let behind = graft
        .value(DT_STRTAB)
        .zip(graft.value(DT_STRSZ))
        .and_then(|(at, size)| graft.elf.at_address(at.checked_add(size)?));
    if behind.is_some_and(|behind| behind.iter().any(|byte| *byte != 0)) {
        complaints.push("there are bytes behind the names".to_owned());
    }
    match (strings(graft), strings(stock)) {
        (Some(now), Some(before)) => match now.strip_prefix(before.as_slice()) {
            Some(rest)
                if rest.strip_prefix(needed.library.as_slice()).is_some_and(|it| it.iter().all(|&it| it == 0)) => {}
            _ => complaints.push("the names are not stock's with the shared object's behind them".to_owned()),
        },
        _ => complaints.push("the names are outside the file".to_owned()),
    }
    Check::unless("dynamic", complaints, || "the dynamic section is stock's behind the shared object".to_owned())
}

/// Returns the evidence that the note gives, once it is known which file the loader binds `malloc` to.
pub(crate) fn evidence(elf: &Elf<'_>, bound: Option<&[u8]>) -> Option<String> {
    let needed = match Needed::parse(elf)? {
        Ok(needed) => needed,
        Err(problem) => return Some(problem),
    };
    let library = printable(&needed.library);
    let said = match needed.note() {
        Ok(note) => format!("{} of `{library}`", note.summary(SECTION)),
        Err(problem) => format!("the note `{SECTION}` on `{library}` is damaged: {problem}"),
    };
    Some(match bound.map(|file| needed.compare(file)) {
        None => format!("{said}, and it is not known which file that is now"),
        Some(Ok(())) => format!("{said}, and this is that file"),
        Some(Err(problem)) => format!("{said}, and this is a different file: {problem}"),
    })
}

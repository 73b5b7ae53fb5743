//! What a grafted executable should hold: a donor of this allograft's, and this allograft's graft of its stock file.

use std::path::Path;

use surgery::Arch;
use surgery::donor::Note;

use crate::error::Error;
use crate::executable::{Insert, Inserts, insert};
use crate::graft::ALLOGRAFT;

/// A donor of this allograft's that a grafted executable may hold, with the options that the executable's note names.
pub struct Candidate {
    insert: Insert,
    /// What the executable's notes say.
    named: Option<Inserts>,
    /// Whether they say what this donor's would, to the last byte.
    exact: bool,
}

/// What the executable at `path`, whose bytes are `graft`, may hold: first the donor that its note names, then all others that
/// can go into an executable. `path` is for messages.
pub fn candidates(path: &Path, graft: &[u8]) -> Vec<Candidate> {
    let texts = transplant::notes(graft);
    let [malloc, strings] = texts.map(|text| text.and_then(|text| Note::parse(text).ok()));
    let with_strings = texts[1].is_some();
    let settings = malloc.as_ref().and_then(|note| settings(&note.options)).unwrap_or_default();
    let named = malloc.map(|malloc| Inserts { malloc, strings });
    let allograft = named.as_ref().map_or(ALLOGRAFT, |named| named.malloc.allograft.as_str());
    let arch = transplant::arch(graft).unwrap_or(Arch::X86_64);
    let is_named = |donor: &donors::Donor| named.as_ref().is_some_and(|named| named.malloc.donor == donor.name);
    let mut donors: Vec<_> = donors::all().iter().filter(|donor| donor.blob(arch).is_some()).collect();
    donors.sort_by_key(|donor| !is_named(donor));
    let ways = donors.into_iter().flat_map(|donor| [with_strings, !with_strings].map(|strings| (donor, strings)));
    let inserts = ways.filter_map(|(donor, strings)| {
        // Options that only another donor has are no options of this one.
        let settings = if is_named(donor) { settings.as_slice() } else { &[] };
        insert(path, arch, donor, settings, strings, allograft).ok()
    });
    let exact = |inserts: &Inserts| {
        let notes = [Some(&inserts.malloc), inserts.strings.as_ref()];
        notes.iter().zip(texts).all(|(note, text)| note.and_then(|note| note.encode().ok()).as_deref() == text)
    };
    inserts.map(|insert| Candidate { exact: exact(&insert.inserts), insert, named: named.clone() }).collect()
}

impl Candidate {
    /// The donor as it was linked, before options and notes were filled in.
    pub fn linked(&self) -> &'static [u8] {
        self.insert.linked
    }

    /// Whether the executable's notes say exactly what this donor's would say; else what they say, as a clause.
    ///
    /// # Errors
    /// What they say.
    pub fn is_named(&self) -> Result<(), String> {
        match &self.named {
            _ if self.exact => Ok(()),
            Some(named) => {
                Err(format!("its notes name what this allograft ({ALLOGRAFT}) does not have: {}", described(named)))
            }
            None => Err("it has no note that can be read".to_owned()),
        }
    }

    /// The version of allograft that the executable's note names, if it is not this one: it may have laid out a graft in another way.
    pub fn other_allograft(&self) -> Option<&str> {
        self.named
            .as_ref()
            .map(|named| named.malloc.allograft.as_str())
            .filter(|version| *version != ALLOGRAFT && !version.is_empty())
    }

    /// Grafts the bytes `stock` with this donor. Nothing is run or written. `path` is for messages.
    ///
    /// # Errors
    /// What speaks against a graft of `stock`.
    pub fn graft(&self, path: &Path, stock: &[u8]) -> Result<Vec<u8>, Error> {
        let unfit = |source| Error::Blob { donor: self.insert.inserts.malloc.donor.clone(), source };
        match transplant::plan(stock, &self.insert.blob, false).map_err(unfit)? {
            Ok(plan) => Ok(plan.graft),
            Err(refusal) => Err(Error::Executable { path: path.to_owned(), refusal }),
        }
    }
}

fn described(named: &Inserts) -> String {
    let note = |Note { donor, version, options, object, allograft }: &Note| {
        let options = if options.is_empty() { String::new() } else { format!(" with {options}") };
        format!("{donor} {version}{options} by allograft {allograft} ({object})")
    };
    let strings = named.strings.as_ref().map(|strings| format!(" and {}", note(strings)));
    note(&named.malloc) + &strings.unwrap_or_default()
}

/// The options of a note, as names and values; `None` if they are not written so.
fn settings(options: &str) -> Option<Vec<(String, i64)>> {
    let setting = |option: &str| {
        let (name, value) = option.split_once('=')?;
        Some((name.to_owned(), value.parse().ok()?))
    };
    options.split_whitespace().map(setting).collect()
}

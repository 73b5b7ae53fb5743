//! The donors that a grafted executable may hold, for `verify` to compare it with. Its note alone does not decide,
//! since a note can be wrong: the donor that it names is only the first to be compared.

use std::path::Path;

use format::{Linked, Note};
use transplant::Executable;

use crate::VERSION;
use crate::error::Error;
use crate::host::tuned_donor::{Recipient, TunedDonor};

/// One of this allograft's donors that a grafted executable may hold, with the options that the executable's note
/// names.
pub struct DonorCandidate {
    tuned_donor: TunedDonor,
    /// The executable's notes on the allocator and on the string functions.
    named: Option<(Note, Option<Note>)>,
    /// Whether they equal this donor's notes, byte for byte.
    exact: bool,
    /// The name by which the executable loads it.
    needed: Option<Vec<u8>>,
}

/// All that a graft with a donor depends on, beside the stock file: the donor's own notes, and the name by which it is
/// loaded.
pub(crate) type DonorKey = (Note, Option<Note>, Option<Vec<u8>>);

/// The donors that a grafted executable may hold: first the one that its note names, then all others that can go into
/// such an executable. The iterator is lazy, since the first nearly always matches. `path` is for messages.
pub fn donor_candidates<'a>(path: &'a Path, graft: &Executable<'_>) -> impl Iterator<Item = DonorCandidate> + 'a {
    let texts = transplant::notes(graft.bytes());
    let [malloc, strings] = texts.each_ref().map(|text| text.as_ref().and_then(|text| Note::parse(text).ok()));
    let (kind, arch, needed) = (graft.kind(), graft.arch(), graft.loads());
    let settings = malloc.as_ref().and_then(|note| settings(&note.options)).unwrap_or_default();
    let named = malloc.map(|malloc| (malloc, strings));
    let is_named = |named: &Option<(Note, Option<Note>)>, donor: &donors::Donor| {
        named.as_ref().is_some_and(|(malloc, _)| malloc.donor == donor.name)
    };
    // First with string functions if its notes name them, else without; then the opposite.
    let with_strings = texts[1].is_some();
    let ways = [with_strings, !with_strings].into_iter().filter(move |strings| kind != Linked::Dynamic || !strings);
    let mut donors: Vec<_> = donors::all().iter().filter(|donor| donor.goes_into(kind, arch)).collect();
    donors.sort_by_key(|donor| !is_named(&named, donor));
    donors.into_iter().flat_map(move |donor| ways.clone().map(move |strings| (donor, strings))).filter_map(
        move |(donor, strings)| {
            // The note's options are for the donor that it names; other donors get none.
            let settings = if is_named(&named, donor) { settings.as_slice() } else { &[] };
            let allograft = named.as_ref().map_or(VERSION, |(malloc, _)| malloc.allograft.as_str());
            let recipient = Recipient { path, kind, arch, strings };
            let tuned_donor = TunedDonor::new(recipient, donor, settings, allograft).ok()?;
            let tuned_donor = match &needed {
                Some(name) => tuned_donor.needed(name.clone()),
                None => tuned_donor,
            };
            let notes = [Some(&tuned_donor.malloc), tuned_donor.strings.as_ref()];
            let says = |note: Option<&Note>| note.and_then(|note| note.encode().ok());
            let exact = notes.into_iter().zip(&texts).all(|(note, text)| says(note) == *text);
            Some(DonorCandidate { tuned_donor, named: named.clone(), exact, needed: needed.clone() })
        },
    )
}

impl DonorCandidate {
    /// The linked donor, before options and notes were filled in.
    pub fn linked(&self) -> &'static [u8] {
        self.tuned_donor.linked
    }

    /// Returns what a graft with this donor depends on.
    pub fn key(&self) -> DonorKey {
        (self.tuned_donor.malloc.clone(), self.tuned_donor.strings.clone(), self.needed.clone())
    }

    /// The shared object that the executable loads, if it was grafted so.
    pub fn library(&self) -> Option<&[u8]> {
        self.tuned_donor.library().map(|(library, _)| library)
    }

    /// Checks that the executable's notes say exactly what this donor's would say.
    ///
    /// # Errors
    /// A description of the notes, as a clause.
    pub fn is_named(&self) -> Result<(), String> {
        match &self.named {
            _ if self.exact => Ok(()),
            Some(named) => Err(format!(
                "its notes name a donor that this allograft ({VERSION}) does not have: {}",
                described(named)
            )),
            None => Err("it has no note that can be read".to_owned()),
        }
    }

    /// The version of allograft that the executable's note names, if it is not this one: a different version may lay
    /// out a graft differently.
    pub fn other_allograft(&self) -> Option<&str> {
        self.named
            .as_ref()
            .map(|(malloc, _)| malloc.allograft.as_str())
            .filter(|version| *version != VERSION && !version.is_empty())
    }

    /// Grafts the bytes `stock` with this donor, without running or writing anything. `path` is for messages.
    ///
    /// # Errors
    /// `stock` cannot be grafted.
    pub fn graft(&self, path: &Path, stock: &[u8]) -> Result<Vec<u8>, Error> {
        let stock = Executable::read(stock).map_err(|refusal| Error::Executable { path: path.to_owned(), refusal })?;
        self.tuned_donor.graft(path, &stock).map(|(_, bytes)| bytes)
    }
}

/// Judges an executable that matches none of this allograft's donors, by its notes. Returns the reason why it may be
/// sound all the same, although it cannot be compared here.
///
/// # Errors
/// A description of the fault: its notes cannot be read, or name a donor that this allograft would have found.
pub fn unmatched(graft: &Executable<'_>) -> Result<String, String> {
    let [malloc, strings] = transplant::notes(graft.bytes()).map(|text| text.and_then(|text| Note::parse(&text).ok()));
    let Some(malloc) = malloc else { return Err("it has no note on its allocator that can be read".to_owned()) };
    let named = (malloc, strings);
    let (malloc, text) = (&named.0, described(&named));
    if !malloc.allograft.is_empty() && malloc.allograft != VERSION {
        return Ok(format!("its notes name a donor that this allograft ({VERSION}) does not have: {text}"));
    }
    let (arch, donor) = (graft.arch(), donors::all().iter().find(|donor| donor.name == malloc.donor));
    match donor.is_some_and(|donor| donor.supports(arch) && !donor.is_built_for(arch)) {
        true => Ok(format!("this build of allograft leaves out {} for {arch}", malloc.donor)),
        false => {
            Err(format!("its notes name this allograft ({VERSION}), but its bytes hold none of its donors: {text}"))
        }
    }
}

fn described((malloc, strings): &(Note, Option<Note>)) -> String {
    let note = |Note { donor, version, options, object, allograft }: &Note| {
        let options = if options.is_empty() { String::new() } else { format!(" with {options}") };
        format!("{donor} {version}{options} by allograft {allograft} ({object})")
    };
    let strings = strings.as_ref().map(|strings| format!(" and {}", note(strings)));
    note(malloc) + &strings.unwrap_or_default()
}

/// The options of a note, as names and values; `None` if they are malformed.
pub(crate) fn settings(options: &str) -> Option<Vec<(String, i64)>> {
    let setting = |option: &str| {
        let (name, value) = option.split_once('=')?;
        Some((name.to_owned(), value.parse().ok()?))
    };
    options.split_whitespace().map(setting).collect()
}

//! The donors that a grafted executable may hold, for `verify` to compare it with.

use std::path::Path;

use format::{Linked, Note};
use transplant::Executable;

use crate::VERSION;
use crate::error::Error;
use crate::host::linked_donor::{LinkedDonor, Recipient};

/// A donor of this allograft's that a grafted executable may hold, with the options that the executable's note names.
pub struct PossibleDonor {
    linked_donor: LinkedDonor,
    /// The executable's notes, of the allocator and of the string functions.
    named: Option<(Note, Option<Note>)>,
    /// Whether they are this donor's notes, byte for byte.
    exact: bool,
}

/// What a grafted executable may hold: first the donor that its note names, then all others that can go into such an
/// executable. Each is made when it is asked for, as the first is nearly always the one. `path` is for messages.
pub fn possible_donors<'a>(path: &'a Path, graft: &Executable<'_>) -> impl Iterator<Item = PossibleDonor> + 'a {
    let texts = transplant::notes(graft.bytes());
    let [malloc, strings] = texts.each_ref().map(|text| text.as_ref().and_then(|text| Note::parse(text).ok()));
    let (kind, arch, needed) = (graft.kind(), graft.arch(), graft.loads());
    let settings = malloc.as_ref().and_then(|note| settings(&note.options)).unwrap_or_default();
    let named = malloc.map(|malloc| (malloc, strings));
    let is_named = |named: &Option<(Note, Option<Note>)>, donor: &donors::Donor| {
        named.as_ref().is_some_and(|(malloc, _)| malloc.donor == donor.name)
    };
    // With string functions or without, as its notes say; then in the other way.
    let with_strings = texts[1].is_some();
    let ways = [with_strings, !with_strings].into_iter().filter(move |strings| kind != Linked::Dynamic || !strings);
    let mut donors: Vec<_> = donors::all().iter().filter(|donor| donor.goes_into(kind, arch)).collect();
    donors.sort_by_key(|donor| !is_named(&named, donor));
    donors.into_iter().flat_map(move |donor| ways.clone().map(move |strings| (donor, strings))).filter_map(
        move |(donor, strings)| {
            // Options that only another donor has are no options of this one.
            let settings = if is_named(&named, donor) { settings.as_slice() } else { &[] };
            let allograft = named.as_ref().map_or(VERSION, |(malloc, _)| malloc.allograft.as_str());
            let recipient = Recipient { path, kind, arch, strings };
            let linked_donor = LinkedDonor::new(recipient, donor, settings, allograft).ok()?;
            let linked_donor = match &needed {
                Some(name) => linked_donor.needed(name.clone()),
                None => linked_donor,
            };
            let notes = [Some(&linked_donor.malloc), linked_donor.strings.as_ref()];
            let says = |note: Option<&Note>| note.and_then(|note| note.encode().ok());
            let exact = notes.into_iter().zip(&texts).all(|(note, text)| says(note) == *text);
            Some(PossibleDonor { linked_donor, named: named.clone(), exact })
        },
    )
}

impl PossibleDonor {
    /// The donor as it was linked, before options and notes were filled in.
    pub fn linked(&self) -> &'static [u8] {
        self.linked_donor.linked
    }

    /// The shared object that the executable loads, if it was grafted so.
    pub fn library(&self) -> Option<&[u8]> {
        self.linked_donor.library().map(|(library, _)| library)
    }

    /// Whether the executable's notes say exactly what this donor's would say; else what they say, as a clause.
    ///
    /// # Errors
    /// A description of the notes.
    pub fn is_named(&self) -> Result<(), String> {
        match &self.named {
            _ if self.exact => Ok(()),
            Some(named) => {
                Err(format!("its notes name what this allograft ({VERSION}) does not have: {}", described(named)))
            }
            None => Err("it has no note that can be read".to_owned()),
        }
    }

    /// The version of allograft that the executable's note names, if it is not this one: it may have laid out a graft
    /// in another way.
    pub fn other_allograft(&self) -> Option<&str> {
        self.named
            .as_ref()
            .map(|(malloc, _)| malloc.allograft.as_str())
            .filter(|version| *version != VERSION && !version.is_empty())
    }

    /// Grafts the bytes `stock` with this donor. Nothing is run or written. `path` is for messages.
    ///
    /// # Errors
    /// `stock` cannot be grafted.
    pub fn graft(&self, path: &Path, stock: &[u8]) -> Result<Vec<u8>, Error> {
        let stock = Executable::read(stock).map_err(|refusal| Error::Executable { path: path.to_owned(), refusal })?;
        self.linked_donor.graft(path, &stock).map(|(_, bytes)| bytes)
    }
}

/// Judges an executable whose bytes hold none of this allograft's donors, by its notes. Returns the reason why it may
/// be whole all the same, and cannot be compared here.
///
/// # Errors
/// A description of the fault: its notes cannot be read, or name a donor that this allograft would have found.
pub fn unmatched(graft: &Executable<'_>) -> Result<String, String> {
    let [malloc, strings] = transplant::notes(graft.bytes()).map(|text| text.and_then(|text| Note::parse(&text).ok()));
    let Some(malloc) = malloc else { return Err("it has no note on its allocator that can be read".to_owned()) };
    let named = (malloc, strings);
    let (malloc, text) = (&named.0, described(&named));
    if !malloc.allograft.is_empty() && malloc.allograft != VERSION {
        return Ok(format!("its notes name what this allograft ({VERSION}) does not have: {text}"));
    }
    let (arch, donor) = (graft.arch(), donors::all().iter().find(|donor| donor.name == malloc.donor));
    match donor.is_some_and(|donor| donor.supports(arch) && !donor.is_built_for(arch)) {
        true => Ok(format!("this build of allograft leaves out {} for {arch}", malloc.donor)),
        false => Err(format!("its notes name this allograft's own work, and that is not in it: {text}")),
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

/// The options of a note, as names and values; `None` if they are not written so.
fn settings(options: &str) -> Option<Vec<(String, i64)>> {
    let setting = |option: &str| {
        let (name, value) = option.split_once('=')?;
        Some((name.to_owned(), value.parse().ok()?))
    };
    options.split_whitespace().map(setting).collect()
}

//! A request: the host, the donors and the destination.

pub(crate) mod donor;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use donors::Donor;

use crate::VERSION;
use crate::error::Error;
use crate::request::donor::tuned;

/// An allocator that may be grafted, and the options of it to bake in.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// The allocator.
    pub donor: &'static Donor,
    /// Options: name and value.
    pub settings: Vec<(String, i64)>,
}

impl Candidate {
    /// The donor as it is.
    pub fn new(donor: &'static Donor) -> Candidate {
        Candidate { donor, settings: Vec::new() }
    }

    /// Returns the first candidate whose donor `fits`; if there is none, the first, so that a message can name it.
    pub fn choose(candidates: &[Candidate], fits: impl Fn(&Donor) -> bool) -> Option<&Candidate> {
        candidates.iter().find(|one| fits(one.donor)).or(candidates.first())
    }
}

/// The donors to graft, the destination, and the ways of doing it.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// The allocator: the first of these that there is for the host's architecture. Empty: the host keeps its own.
    pub candidates: Vec<Candidate>,
    /// Whether the string functions are grafted. `None`: into archives, where an allocator still is if they cannot be,
    /// and not into executables.
    pub strings: Option<bool>,
    /// Where to write, leaving the target untouched; `None`: in place, with a backup.
    pub out: Option<PathBuf>,
    /// Plan and verify only.
    pub dry_run: bool,
    /// Replace a foreign allocator in a `libc.a`.
    pub force: bool,
    /// Stock archives to take members from that such a `libc.a` has lost, or folders that hold them.
    pub stock: Vec<PathBuf>,
    /// The root folder of an image in which the target lies: symbolic links in a folder start there.
    pub root: Option<PathBuf>,
    /// For executables: the arguments with which stock and graft are run and compared before anything is placed.
    pub arguments: Option<Vec<OsString>>,
    /// For dynamic programs: load the donor from an existing shared object instead of merging it. The object's name as
    /// the loader gets it, a path or a name to search for; without one, the path of
    /// `liballograft.so` beside the program.
    pub needed: Option<Option<OsString>>,
    /// Replace the dynamic loader of the running system: every program that starts later has the graft. Or graft a
    /// program that has other rights than its callers: set-id bits or capabilities.
    pub live: bool,
    /// For executables of another architecture: graft although the self-test cannot run here.
    pub untested: bool,
    /// The processor time that an executable's self-test may take.
    pub patience: Patience,
}

impl Request {
    /// A request for this donor.
    pub fn of(donor: &'static Donor) -> Request {
        Request { candidates: vec![Candidate::new(donor)], ..Request::default() }
    }

    /// Checks what is independent of the host, so that it can be reported before anything is read: that there is
    /// something to graft, and that an allocator which the user named has such options.
    ///
    /// # Errors
    /// Nothing would be grafted, or the allocator has no such option.
    pub fn check(&self) -> Result<(), Error> {
        match self.candidates.as_slice() {
            [] if self.strings == Some(false) => Err(Error::NothingToGraft),
            [one] => {
                // Options and their ranges are the same for every architecture.
                let object = one.donor.arches().next().and_then(|arch| one.donor.object(arch));
                object.map_or(Ok(()), |object| tuned(one.donor, object, &one.settings, VERSION).map(drop))
            }
            _ => Ok(()),
        }
    }
}

/// The processor time that a test may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience(pub Duration);

impl Default for Patience {
    /// A minute: a test takes milliseconds, and under an emulator seconds.
    fn default() -> Patience {
        Patience(Duration::from_secs(60))
    }
}

//! A request: the donors, the destination, and the user's confirmations.

pub(crate) mod donor;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use donors::Donor;

use crate::VERSION;
use crate::error::Error;
use crate::request::donor::tuned;

/// An allocator that may be grafted, with the options to set in it.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// The allocator.
    pub donor: &'static Donor,
    /// Options: name and value.
    pub settings: Vec<(String, i64)>,
}

impl Candidate {
    /// The donor with its default options.
    pub fn new(donor: &'static Donor) -> Candidate {
        Candidate { donor, settings: Vec::new() }
    }

    /// Returns the first candidate whose donor `fits`; if no donor fits, the first candidate, so that a message can
    /// name it.
    pub fn choose(candidates: &[Candidate], fits: impl Fn(&Donor) -> bool) -> Option<&Candidate> {
        candidates.iter().find(|one| fits(one.donor)).or(candidates.first())
    }
}

/// The donors to graft, the destination, and the user's confirmations.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// The allocators in order of preference: the first that exists for the host's architecture is grafted. If empty,
    /// the host keeps its own.
    pub candidates: Vec<Candidate>,
    /// Whether to graft string functions. `None`: into archives if possible (if not, the allocator alone), not into
    /// executables.
    pub strings: Option<bool>,
    /// Where to write, leaving the target untouched; `None`: in place, with a backup.
    pub out: Option<PathBuf>,
    /// Plan and verify only.
    pub dry_run: bool,
    /// Replace a foreign allocator in a `libc.a`.
    pub force: bool,
    /// Stock archives, or folders that hold them: the source of members that such a `libc.a` has lost.
    pub stock: Vec<PathBuf>,
    /// The root folder of an image that contains the target: symbolic links are resolved in it.
    pub root: Option<PathBuf>,
    /// For executables: the arguments with which stock and graft are run and compared before anything is placed.
    pub arguments: Option<Vec<OsString>>,
    /// For dynamic programs: load the donor from an existing shared object instead of merging it. The inner value is
    /// the object's name for the loader, a path or a name to search for; if it is `None`, the path of `liballograft.so`
    /// beside the program.
    pub needed: Option<Option<OsString>>,
    /// The confirmation to replace the dynamic loader of the running system, which every program that starts later will
    /// use; or to graft a program with set-id bits or capabilities.
    pub live: bool,
    /// For executables of a different architecture: graft although the self-test cannot run here.
    pub untested: bool,
    /// The processor time that an executable's self-test may take.
    pub patience: Patience,
}

impl Request {
    /// A request for `donor`, with all else at its default.
    pub fn new(donor: &'static Donor) -> Request {
        Request { candidates: vec![Candidate::new(donor)], ..Request::default() }
    }

    /// Checks the parts that do not depend on the host, so that faults are reported before any file is read: the
    /// request names something to graft, and an allocator that the user named has these options.
    ///
    /// # Errors
    /// Neither an allocator nor string functions are requested, or the allocator has no such option.
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

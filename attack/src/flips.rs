//! Grafts with one byte changed, as a bad disk or a hand may leave them: does `verify` notice?
//!
//! The checks are called in this process, not as a program: a million runs of a program would take a day. They are the
//! ones that `allograft verify --static-only` makes, with the stock file, and they execute nothing of the graft.

use std::collections::BTreeMap;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use donors::Donor;
use fixtures::Arch;
use format::Linked;
use hosts::{Examiner, Request};
use inspector::verify::{Check, Comparison, NotRun, StockArchive};

use crate::flows::{Making, archive, dynamic, loader, program, program_anywhere};
use crate::interference::{Finding, Outcome, Share};
use crate::places::{NOT_LOADED, Places, VERSION};

/// A kind of graft that is changed.
#[derive(Debug)]
pub struct Kind {
    /// Its name.
    pub name: &'static str,
    prepare: Making,
    /// The host, in the folder.
    host: &'static str,
    /// What kind of linked file it is. `None` for an archive.
    linked: Option<Linked>,
    /// Whether the graft loads its donor, a shared object beside it.
    loads: bool,
}

const PROGRAM: Option<Linked> = Some(Linked::Program);
const DYNAMIC: Option<Linked> = Some(Linked::Dynamic);

/// All of them.
pub static KINDS: &[Kind] = &[
    Kind { name: "archive", prepare: archive, host: "libc.a", linked: None, loads: false },
    Kind { name: "program", prepare: program, host: "program", linked: PROGRAM, loads: false },
    Kind {
        name: "program, position-independent",
        prepare: program_anywhere,
        host: "program",
        linked: PROGRAM,
        loads: false,
    },
    Kind { name: "dynamic program", prepare: dynamic, host: "program", linked: DYNAMIC, loads: false },
    Kind {
        name: "dynamic program that loads its donor",
        prepare: dynamic,
        host: "program",
        linked: DYNAMIC,
        loads: true,
    },
    Kind {
        name: "loader",
        prepare: loader,
        host: "lib/ld-musl-x86_64.so.1",
        linked: Some(Linked::Loader),
        loads: false,
    },
];

/// Changed bytes that `verify` accepts, and why they do no harm.
#[derive(Debug)]
pub struct Harmless {
    /// The kinds of graft with this in their names.
    pub kind: &'static str,
    /// The place of the byte.
    pub place: &'static str,
    /// Why it does no harm.
    pub reason: &'static str,
}

/// All of them.
pub static HARMLESS: &[Harmless] = &[
    Harmless {
        kind: "",
        place: NOT_LOADED,
        reason: "Neither the kernel nor a loader reads it: symbols, debug information, section headers, and gaps. A graft \
                 may be stripped, so `bytes` passes, and says that the file was changed there.",
    },
    Harmless {
        kind: "",
        place: VERSION,
        reason: "It only says which allograft made the graft. `verify` compares the rest with what that version writes, \
                 or says that it cannot, and `bytes` was not run.",
    },
];

/// A graft of one donor, with what it was made from.
#[derive(Debug)]
pub struct Graft {
    kind: &'static Kind,
    /// The folder, which the loader of a program that loads its donor looks into.
    _folder: tempfile::TempDir,
    /// Its path.
    host: PathBuf,
    stock: Vec<u8>,
    graft: Vec<u8>,
}

/// The checks of a graft's copies.
enum Judge<'g> {
    Archive(Box<StockArchive<'g>>),
    Executable(Box<Examiner<'g>>),
}

impl Judge<'_> {
    fn verdict(&self, changed: &[u8]) -> Result<Verdict> {
        let checked = match self {
            Judge::Archive(stock) => stock.compare(changed).map(|Comparison { mut checks, donors, .. }| {
                let compared: Result<Vec<Check>, NotRun> = donors.iter().map(hosts::compare_donor).collect();
                let complete = compared.is_ok();
                checks.extend(compared.unwrap_or_default());
                (checks, complete)
            }),
            Judge::Executable(examiner) => {
                examiner.examine(changed).map(|examined| (examined.checks, examined.complete))
            }
        };
        let Ok((checks, complete)) = checked else { return Ok(Verdict::Refused) };
        ensure!(!checks.is_empty(), "no check was made");
        Ok(match (checks.iter().all(|check| check.ok), complete) {
            (false, _) => Verdict::Refused,
            (true, true) => Verdict::Accepted,
            (true, false) => Verdict::LeftOpen,
        })
    }
}

/// The result of the checks of a graft.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Refused,
    Accepted,
    /// No check failed, and the one that compares every byte says that it was not made.
    LeftOpen,
}

impl Graft {
    /// Makes the graft of a kind with a donor. `None` if the donor does not go into programs that are linked already.
    ///
    /// # Errors
    /// The graft fails, or is not sound.
    pub fn new(kind: &'static Kind, donor: &'static Donor) -> Result<Option<Graft>> {
        let folder = tempfile::tempdir()?;
        (kind.prepare)(folder.path());
        let host = folder.path().join(kind.host);
        let stock = fs::read(&host)?;
        if kind.linked.is_some_and(|linked| !donor.goes_into(linked, Arch::X86_64)) {
            return Ok(None);
        }
        let mut request = Request { untested: kind.linked.is_some(), ..Request::new(donor) };
        if kind.loads {
            let library = donor.library(Arch::X86_64).with_context(|| format!("{} has no library", donor.name))?;
            let library = surgery::donor::DonorObject::parse_library(library)?.tuned(&[], hosts::VERSION)?;
            fs::write(host.with_file_name("liballograft.so"), library)?;
            request.needed = Some(None);
        }
        hosts::graft(&host, &request).with_context(|| format!("{} with {}", kind.name, donor.name))?;
        let graft = Graft { kind, stock, graft: fs::read(&host)?, host, _folder: folder };
        let verdict = graft.verdict(&graft.graft)?;
        ensure!(
            verdict == Verdict::Accepted,
            "{} with {}: the graft as it was made: {verdict:?}",
            kind.name,
            donor.name
        );
        Ok(Some(graft))
    }

    /// Reads what all checks need, once.
    fn judge(&self) -> Result<Judge<'_>> {
        Ok(match self.kind.linked {
            None => Judge::Archive(Box::new(StockArchive::read(&self.stock)?)),
            Some(_) => Judge::Executable(Box::new(Examiner::new(&self.host, None, Some(&self.stock)))),
        })
    }

    fn verdict(&self, graft: &[u8]) -> Result<Verdict> {
        self.judge()?.verdict(graft)
    }
    /// Changes a share of the bytes, one at a time.
    ///
    /// # Errors
    /// The places of the graft cannot be read, or a changed graft got no check at all.
    pub fn flip(&self, share: Share) -> Result<Outcome> {
        self.flip_but(share, HARMLESS)
    }

    /// Changes bytes as [`Graft::flip`] does; a change that is `harmless` is not a finding.
    fn flip_but(&self, share: Share, harmless: &[Harmless]) -> Result<Outcome> {
        let (places, judge) = (Places::read(&self.graft)?, self.judge()?);
        let (mut changed, mut outcome) = (self.graft.clone(), Outcome::default());
        let mut missed: BTreeMap<(String, &str), Vec<usize>> = BTreeMap::new();
        for at in (share.rest..changed.len()).step_by(share.step) {
            changed[at] ^= other(at);
            // A check that panics is a finding as well, and the others have to go on.
            let verdict = catch_unwind(AssertUnwindSafe(|| judge.verdict(&changed)));
            changed[at] = self.graft[at];
            outcome.done += 1;
            let what = match verdict {
                Ok(Ok(Verdict::Refused)) => continue,
                Ok(Ok(Verdict::Accepted)) => "accepted",
                Ok(Ok(Verdict::LeftOpen)) => "no check failed, and not all bytes were compared",
                Ok(Err(error)) => return Err(error),
                Err(_) => "a check panicked",
            };
            let place = places.of(at);
            let known = |harmless: &Harmless| self.kind.name.contains(harmless.kind) && harmless.place == place;
            if what == "a check panicked" || !harmless.iter().any(known) {
                missed.entry((place, what)).or_default().push(at);
            }
        }
        outcome.findings = missed.iter().map(|((place, what), at)| finding(place, what, at)).collect();
        Ok(outcome)
    }
}

/// The bits that are changed in a byte: different ones at each place, at least one.
fn other(at: usize) -> u8 {
    (at.wrapping_mul(0x9e37_79b9) >> 16) as u8 | 1 << (at % 8)
}

fn finding(place: &str, what: &str, at: &[usize]) -> Finding {
    let shown: Vec<String> = at.iter().take(8).map(|at| format!("{at:#x}")).collect();
    let more = if at.len() > shown.len() { ", ..." } else { "" };
    Finding { at: format!("{place}, {} bytes: {}{more}", at.len(), shown.join(", ")), wrong: what.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graft(kind: &'static Kind) -> Graft {
        Graft::new(kind, donors::default_for(Arch::X86_64)).unwrap().expect("the default donor goes into all of them")
    }

    /// Changes about so many bytes.
    fn flipped(graft: &Graft, times: usize, harmless: &[Harmless]) -> Outcome {
        let step = graft.graft.len() / times;
        graft.flip_but(Share { step, rest: step / 3 }, harmless).unwrap()
    }

    #[test]
    fn a_sample_of_each_kind() {
        for kind in KINDS {
            let outcome = flipped(&graft(kind), 20, HARMLESS);
            assert!(outcome.findings.is_empty() && outcome.done >= 20, "{}: {:?}", kind.name, outcome.findings);
        }
    }

    /// `verify` accepts a stripped graft, so there are bytes whose change is found if nothing counts as harmless.
    #[test]
    fn a_change_that_is_accepted_is_found() {
        let program = &KINDS[1];
        let outcome = flipped(&graft(program), 100, &[]);
        assert!(outcome.findings.iter().all(|finding| finding.wrong == "accepted"), "{:?}", outcome.findings);
        assert!(outcome.findings.iter().any(|finding| finding.at.contains(NOT_LOADED)), "{:?}", outcome.findings);
    }

    #[test]
    #[ignore = "minutes: a thousand bytes of each kind with each donor"]
    fn each_kind_with_each_donor() {
        for (kind, donor) in KINDS.iter().flat_map(|kind| donors::all().iter().map(move |donor| (kind, donor))) {
            let Some(graft) = Graft::new(kind, donor).unwrap() else { continue };
            let outcome = flipped(&graft, 1000, HARMLESS);
            assert!(outcome.findings.is_empty(), "{} with {}: {:?}", kind.name, donor.name, outcome.findings);
        }
    }
}

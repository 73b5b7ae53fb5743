//! Examination of grafts long after they were made. It is here and not in `inspector`, since it has the donors of this
//! allograft: it compares an archive's donors with them, and makes the graft of an executable again, to compare every
//! byte.

pub(crate) mod archive;
mod needed;

use std::cell::RefCell;
use std::path::Path;

use inspector::InspectError;
use inspector::verify::{Check, GraftKind, NotRun};
use transplant::Executable;

use crate::error::Error;
use crate::host::donor_candidate::{DonorCandidate, DonorKey, donor_candidates, unmatched};
use crate::prove::self_test::self_test;
use crate::request::Patience;

/// The checks of an executable that was grafted earlier.
#[derive(Debug)]
pub struct Examined {
    /// The checks that were made.
    pub checks: Vec<Check>,
    /// Those that were not, each with the reason.
    pub not_run: Vec<NotRun>,
    /// Whether every loaded byte was compared with the graft that this allograft makes of the stock file.
    pub complete: bool,
}

/// Checks the executable at `path`, whose bytes are `graft`, and executes nothing. A program that loads its donor loads
/// it from the folder `root`. The check is complete only with the bytes of its stock file.
///
/// # Errors
/// The file is not an ELF file.
pub fn examine(path: &Path, root: Option<&Path>, graft: &[u8], stock: Option<&[u8]>) -> Result<Examined, InspectError> {
    Examiner::new(path, root, stock).examine(graft)
}

/// Checks copies of one graft. The graft that is compared with them is made once.
#[derive(Debug)]
pub struct Examiner<'a> {
    path: &'a Path,
    root: Option<&'a Path>,
    stock: Option<&'a [u8]>,
    /// The graft that was made last.
    remade: RefCell<Option<Remade>>,
}

/// A graft that was made again of the stock file.
#[derive(Debug)]
struct Remade {
    donor: DonorKey,
    /// Its bytes, or the reason why it cannot be made.
    bytes: Result<Vec<u8>, String>,
}

impl<'a> Examiner<'a> {
    /// Returns the examiner of copies of the executable at `path`. The others are as for [`examine`].
    pub fn new(path: &'a Path, root: Option<&'a Path>, stock: Option<&'a [u8]>) -> Examiner<'a> {
        Examiner { path, root, stock, remade: RefCell::new(None) }
    }

    /// Checks a copy as [`examine`] does.
    ///
    /// # Errors
    /// It is not an ELF file.
    pub fn examine(&self, graft: &[u8]) -> Result<Examined, InspectError> {
        match GraftKind::recognise(graft)? {
            GraftKind::Needed => needed::read(self, graft),
            way @ (GraftKind::Redirected | GraftKind::Merged) => read(self, way, graft),
        }
    }

    /// Compares a copy with the graft of the stock file with this donor, which is made unless it was made last.
    fn compared_with_remade(&self, ours: &DonorCandidate, graft: &[u8], stock: &[u8]) -> Result<Check, InspectError> {
        let donor = ours.key();
        let mut last = self.remade.borrow_mut();
        let remade = match last.take().filter(|remade| remade.donor == donor) {
            Some(remade) => remade,
            None => Remade { donor, bytes: ours.graft(self.path, stock).map_err(|error| error.to_string()) },
        };
        let check = match &remade.bytes {
            Ok(expected) => inspector::verify::same_image(graft, expected, stock),
            Err(error) => Ok(Check::new("bytes", false, error.clone())),
        };
        *last = Some(remade);
        check
    }
}

/// Checks as [`examine`] does. Only if every check passes and is complete, the self-test runs, since it executes code
/// of the file.
///
/// # Errors
/// The file is not an ELF file.
pub fn examine_and_run(
    path: &Path,
    root: Option<&Path>,
    graft: &[u8],
    stock: Option<&[u8]>,
) -> Result<Examined, InspectError> {
    let mut examined = examine(path, root, graft, stock)?;
    let Examined { checks, not_run, complete } = &mut examined;
    let mut left_out = |reason: &str| not_run.push(self::not_run("self-test", reason));
    match (checks.iter().all(|check| check.ok), *complete) {
        (false, _) => left_out("a check before it failed"),
        (_, false) => left_out("what it would execute has not been compared"),
        (true, true) => match self_test(path, root, graft, Patience::default()) {
            Ok(detail) => checks.push(Check::new("self-test", true, detail)),
            Err(error @ (Error::Untested { .. } | Error::TooSlow { .. })) => left_out(&error.to_string()),
            Err(error) => checks.push(Check::new("self-test", false, error.to_string())),
        },
    }
    Ok(examined)
}

fn not_run(name: &str, reason: &str) -> NotRun {
    NotRun { name: name.to_owned(), reason: reason.to_owned() }
}

/// Makes the checks that execute nothing.
fn read(examiner: &Examiner<'_>, way: GraftKind, graft: &[u8]) -> Result<Examined, InspectError> {
    let (path, stock) = (examiner.path, examiner.stock);
    let mut checks = match way {
        GraftKind::Merged => inspector::verify::merged(graft, stock)?,
        GraftKind::Redirected | GraftKind::Needed => inspector::verify::executable(graft, stock)?,
    };
    let donor = match_donor(path, way, graft, stock)?;
    match &donor {
        DonorMatch::Ours(_, check) | DonorMatch::Broken(check) => checks.push(check.clone()),
        DonorMatch::Another(_) => {}
    }
    let (mut left_out, mut complete) = (Vec::new(), false);
    match (&donor, stock) {
        (DonorMatch::Ours(ours, _), Some(stock)) => {
            if way == GraftKind::Redirected {
                checks.push(inspector::verify::redirections(graft, ours.linked(), stock)?);
            }
            match rebuild(examiner, ours, graft, stock)? {
                Ok(bytes) => {
                    checks.push(bytes);
                    complete = true;
                }
                Err(left) => left_out.push(left),
            }
        }
        (DonorMatch::Ours(ours, _), None) => {
            let note = ours.is_named();
            checks.push(Check::new(
                "note",
                note.is_ok(),
                note.err().unwrap_or_else(|| "it names what is there".to_owned()),
            ));
            left_out.push(not_run("bytes", WITHOUT_STOCK));
        }
        (DonorMatch::Broken(_), _) => left_out.push(not_run("bytes", "a check before it failed")),
        (DonorMatch::Another(reason), _) => {
            left_out.extend(["donor", "bytes"].map(|name| not_run(name, reason)));
        }
    }
    Ok(Examined { checks, not_run: left_out, complete })
}

const WITHOUT_STOCK: &str = "there is no stock file to make the graft of again: `--stock FILE`";

/// Makes the graft of the stock file again, and compares every byte that is loaded; or says why that shows nothing.
fn rebuild(
    examiner: &Examiner<'_>,
    ours: &DonorCandidate,
    graft: &[u8],
    stock: &[u8],
) -> Result<Result<Check, NotRun>, InspectError> {
    let bytes = examiner.compared_with_remade(ours, graft, stock)?;
    Ok(match ours.other_allograft() {
        Some(version) if !bytes.ok => {
            let reason = format!("it was grafted by allograft {version}, which makes it in another way");
            Err(not_run("bytes", &reason))
        }
        _ => Ok(bytes),
    })
}

/// The contents of the donor's segments in an executable.
enum DonorMatch {
    /// One of this allograft's donors.
    Ours(Box<DonorCandidate>, Check),
    /// Bytes that differ from every donor of this allograft, whose notes are this allograft's or cannot be read.
    Broken(Check),
    /// A donor that this allograft does not have, and the reason.
    Another(String),
}

/// Compares the donor's segments of the executable `graft` with every donor that they may hold. The bytes decide, not
/// the note: a damaged note does not make another donor.
fn match_donor(path: &Path, way: GraftKind, graft: &[u8], stock: Option<&[u8]>) -> Result<DonorMatch, InspectError> {
    let executable = match Executable::read(graft) {
        Ok(executable) => executable,
        Err(refusal) => return Ok(DonorMatch::Broken(Check::new("donor", false, refusal.to_string()))),
    };
    for candidate in donor_candidates(path, &executable) {
        let check = match way {
            GraftKind::Merged => inspector::verify::merged_donor(graft, candidate.linked(), stock)?,
            GraftKind::Redirected | GraftKind::Needed => {
                inspector::verify::donor_image(graft, candidate.linked(), stock)?
            }
        };
        match (check.ok, candidate.is_named()) {
            (true, _) => return Ok(DonorMatch::Ours(Box::new(candidate), check)),
            // If the notes are right to the last byte, no other donor is possible.
            (false, Ok(())) => return Ok(DonorMatch::Broken(check)),
            (false, Err(_)) => {}
        }
    }
    Ok(match unmatched(&executable) {
        Ok(reason) => DonorMatch::Another(reason),
        Err(fault) => DonorMatch::Broken(Check::new("donor", false, fault)),
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::ops::Range;
    use std::sync::LazyLock;

    use fixtures::program::Build;
    use format::Arch;

    use super::*;

    struct Pair {
        stock: Vec<u8>,
        graft: Vec<u8>,
    }

    impl Pair {
        /// A small static-pie program with thread-local storage, and its graft with a donor.
        fn of(donor: &'static donors::Donor) -> Pair {
            let folder = tempfile::tempdir().unwrap();
            let source = "#include <stdlib.h>\nstatic int number;\n__thread int *own = &number;\n\
                          int main(void) { free(realloc(malloc(10), 1000)); return own != &number; }\n";
            let build = Build { position_independent: true, link: &["-s"], ..Build::PLAIN };
            let program = build.program(folder.path(), "program", source);
            let out = folder.path().join("graft");
            let request = crate::request::Request { out: Some(out.clone()), ..crate::request::Request::new(donor) };
            crate::graft::graft(&program, &request).unwrap();
            Pair { stock: fs::read(program).unwrap(), graft: fs::read(out).unwrap() }
        }

        /// A dynamic program, and its graft with the default donor merged into it.
        fn merged() -> Pair {
            let folder = tempfile::tempdir().unwrap();
            let path = |name: &str| folder.path().join(name);
            fs::write(path("main.c"), "#include <stdlib.h>\nint main(void) { free(malloc(10)); return 0; }\n").unwrap();
            let made = fixtures::cc().arg("-o").args([path("program"), path("main.c")]).status().unwrap();
            assert!(made.success());
            let donor = donors::default_for(Arch::X86_64);
            let request = crate::request::Request { out: Some(path("graft")), ..crate::request::Request::new(donor) };
            crate::graft::graft(&path("program"), &request).unwrap();
            Pair { stock: fs::read(path("program")).unwrap(), graft: fs::read(path("graft")).unwrap() }
        }

        /// The donor that the graft names.
        fn named(&self) -> DonorCandidate {
            donor_candidates(Path::new("program"), &Executable::read(&self.graft).unwrap()).next().unwrap()
        }

        /// The places of the donor's three segments in the file: the last loaded ones (gABI, "Program Header").
        fn donors(&self) -> Vec<usize> {
            let word = |at: usize| self.word(at);
            let headers = self.headers().into_iter().map(|header| header.start);
            let parts: Vec<Range<usize>> = headers.map(|at| word(at + 8)..word(at + 8) + word(at + 32)).collect();
            parts[parts.len() - 3..].iter().cloned().flatten().collect()
        }

        fn word(&self, at: usize) -> usize {
            u64::from_le_bytes(*self.graft[at..].first_chunk().unwrap()) as usize
        }

        /// The places of the headers of what is loaded.
        fn headers(&self) -> Vec<Range<usize>> {
            let count = usize::from(self.graft[56]) + 256 * usize::from(self.graft[57]);
            let headers = (0..count).map(|index| self.word(32) + 56 * index);
            headers.filter(|at| self.graft[*at..*at + 4] == [1, 0, 0, 0]).map(|at| at..at + 56).collect()
        }

        /// Changes each byte behind the program: the donor's three segments and their padding.
        fn assert_that_every_byte_counts(&self) {
            let expected = self.named().graft(Path::new("program"), &self.stock);
            let (expected, mut graft) = (expected.unwrap(), self.graft.clone());
            for at in self.donors() {
                graft[at] ^= 1 << (at % 8);
                let bytes = inspector::verify::same_image(&graft, &expected, &self.stock).unwrap();
                assert!(!bytes.ok, "the byte at {at:#x} does not count");
                graft[at] = self.graft[at];
            }
        }

        /// Without the stock file, only the places of the program's functions and the values of options are not
        /// checked: 1.3 KB, which is 1.2 % of the smallest donor.
        fn assert_that_most_bytes_count_without_stock(&self) {
            let (named, donors) = (self.named(), self.donors());
            let (mut graft, mut unnoticed) = (self.graft.clone(), Vec::new());
            for at in donors.iter().copied().step_by(31) {
                graft[at] ^= 1 << (at % 8);
                if inspector::verify::donor_image(&graft, named.linked(), None).unwrap().ok {
                    unnoticed.push(at);
                }
                graft[at] = self.graft[at];
            }
            assert!(unnoticed.len() * 50 < donors.len() / 31, "{} bytes: {unnoticed:x?}", unnoticed.len());
        }
    }

    /// The graft with the default donor.
    static PAIR: LazyLock<Pair> = LazyLock::new(|| Pair::of(donors::default_for(Arch::X86_64)));

    /// Every donor that goes into such a program.
    fn fitting() -> impl Iterator<Item = &'static donors::Donor> {
        donors::all().iter().filter(|donor| donor.has_blob(Arch::X86_64))
    }

    fn judged(graft: &[u8], stock: Option<&[u8]>) -> Examined {
        let examiner = Examiner::new(Path::new("program"), None, stock);
        read(&examiner, GraftKind::Redirected, graft).unwrap()
    }

    fn is_sound(judged: &Examined) -> bool {
        judged.complete && judged.checks.iter().all(|check| check.ok)
    }

    #[test]
    fn a_graft_is_sound() {
        for pair in fitting().map(Pair::of) {
            let whole = judged(&pair.graft, Some(&pair.stock));
            assert!(is_sound(&whole) && whole.not_run.is_empty(), "{:?}", whole.checks);
            let alone = judged(&pair.graft, None);
            assert!(!alone.complete && alone.checks.iter().all(|check| check.ok), "{:?}", alone.checks);
        }
    }

    /// Each copy is compared with a graft of its own donor.
    #[test]
    fn copies_with_other_donors_are_compared_with_grafts_of_their_own() {
        let pairs: Vec<Pair> = fitting().take(3).map(Pair::of).collect();
        let examiner = Examiner::new(Path::new("program"), None, Some(&pairs[0].stock));
        for _ in 0..2 {
            for pair in &pairs {
                assert_eq!(pair.stock, pairs[0].stock);
                assert!(is_sound(&examiner.examine(&pair.graft).unwrap()));
                let mut graft = pair.graft.clone();
                graft[pair.donors()[0]] ^= 1;
                assert!(!is_sound(&examiner.examine(&graft).unwrap()));
            }
        }
    }

    #[test]
    fn every_byte_of_the_donor_counts() {
        PAIR.assert_that_every_byte_counts();
    }

    #[test]
    fn most_bytes_count_without_the_stock_file() {
        PAIR.assert_that_most_bytes_count_without_stock();
    }

    #[test]
    #[ignore = "minutes: the same two for every other donor"]
    fn so_do_those_of_other_donors() {
        for pair in fitting().filter(|donor| donor.name != donors::default_for(Arch::X86_64).name).map(Pair::of) {
            pair.assert_that_every_byte_counts();
            pair.assert_that_most_bytes_count_without_stock();
        }
    }

    /// The kernel reads the program headers before anything else. A flipped bit may also change what kind of program
    /// this seems to be, and so which donors fit.
    #[test]
    fn every_bit_of_a_donors_program_header_counts() {
        let merged = Pair::merged();
        for pair in [&*PAIR, &merged] {
            let header = pair.headers().pop().unwrap();
            for at in header.clone() {
                for bit in (0..8).filter(|bit| (at + bit) % 3 == 0) {
                    let mut graft = pair.graft.clone();
                    graft[at] ^= 1 << bit;
                    let judged = GraftKind::recognise(&graft).and_then(|way| {
                        read(&Examiner::new(Path::new("program"), None, Some(&pair.stock)), way, &graft)
                    });
                    let fails = judged.is_ok_and(|judged| judged.checks.iter().all(|check| check.ok));
                    assert!(!fails, "bit {bit} of the byte {} of the header", at - header.start);
                }
            }
        }
    }

    /// The notes are compared as well: no change of a note makes the bytes another donor's. The version of allograft is
    /// the exception. A different version may lay out a graft differently, so `verify` then reports that the bytes were
    /// not compared.
    #[test]
    fn a_changed_note_is_noticed() {
        let named = format!("donor={}\n", donors::default_for(Arch::X86_64).name);
        let note = PAIR.graft.windows(named.len()).position(|window| window == named.as_bytes()).unwrap();
        let version = PAIR.graft[note..].windows(10).position(|window| window == b"allograft=").unwrap() + note + 10;
        let version = version..=version + env!("CARGO_PKG_VERSION").len();
        for at in (note..note + 220).step_by(3).filter(|at| !version.contains(at)) {
            let mut graft = PAIR.graft.clone();
            graft[at] ^= 1;
            for stock in [Some(PAIR.stock.as_slice()), None] {
                assert!(
                    judged(&graft, stock).checks.iter().any(|check| !check.ok),
                    "{:?}",
                    graft[at..].first_chunk::<8>()
                );
            }
        }
    }

    #[test]
    fn a_moved_entry_point_and_an_overwritten_start_are_noticed() {
        let entry = u64::from_le_bytes(*PAIR.graft[24..].first_chunk().unwrap());
        let (mut moved, mut overwritten) = (PAIR.graft.clone(), PAIR.graft.clone());
        moved[24..32].copy_from_slice(&PAIR.stock[24..32]);
        // Addresses in a static-pie program are offsets in the file, for the donor as well.
        overwritten[entry as usize..entry as usize + 2].copy_from_slice(b"\xeb\xfe");
        for broken in [moved, overwritten] {
            for stock in [Some(PAIR.stock.as_slice()), None] {
                let judged = judged(&broken, stock);
                let donor = judged.checks.iter().find(|check| check.name == "donor").unwrap();
                assert!(!donor.ok, "{donor:?}");
                // The self-test, which would execute it, is not run.
                let examined = examine_and_run(Path::new("program"), None, &broken, stock).unwrap();
                let Examined { checks, not_run, .. } = examined;
                assert!(checks.iter().all(|check| check.name != "self-test"));
                assert!(not_run.iter().any(|left| left.name == "self-test" && left.reason.contains("failed")));
            }
        }
    }
}

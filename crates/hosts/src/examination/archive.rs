//! Examination of grafted archives: the donors in them are compared with those of this allograft. The checksum in a
//! donor's note leaves out the options block and the note itself.

use donors::Donor;
use format::{DonorKind, Note};
use inspector::InspectError;
use inspector::verify::{Check, Comparison, Difference, DonorMember, NotRun, first_difference};
use surgery::donor::DonorObject;

use super::not_run;
use crate::VERSION;
use crate::host::donor_candidate::settings;
use crate::request::donor::tuned;

/// The checks of an archive that was grafted earlier.
#[derive(Debug)]
pub struct ExaminedArchive {
    /// The checks that were made.
    pub checks: Vec<Check>,
    /// Those that were not, each with the reason.
    pub not_run: Vec<NotRun>,
    /// Every symbol whose definition differs from stock's. Empty without stock.
    pub differences: Vec<Difference>,
}

/// Checks a grafted archive; with the stock archive that it was made from, completely. Nothing is linked or run.
///
/// # Errors
/// One of the archives cannot be read.
pub fn examine_archive(graft: &[u8], stock: Option<&[u8]>) -> Result<ExaminedArchive, InspectError> {
    let Comparison { mut checks, differences, donors } = inspector::verify::explain(graft, stock)?;
    let mut not_run = Vec::new();
    for donor in &donors {
        match compare_donor(donor) {
            Ok(check) => checks.push(check),
            Err(left) => not_run.push(left),
        }
    }
    Ok(ExaminedArchive { checks, not_run, differences })
}

/// Compares a donor's member, byte for byte, with the donor that its note names, with the options that the note names.
///
/// # Errors
/// This allograft does not have that donor, although a different one may.
pub fn compare_donor(member: &DonorMember<'_>) -> Result<Check, NotRun> {
    let DonorMember { label, bytes } = member;
    let object = match DonorObject::parse(bytes) {
        Ok(object) => object,
        Err(error) => return Ok(Check::new("donor", false, format!("member {label}: {error}"))),
    };
    let (kind, arch, note) = (object.kind(), object.arch(), object.note());
    let name = match kind {
        DonorKind::Malloc => "donor",
        DonorKind::Strings => "strings-donor",
    };
    let Note { donor: named, version, options, allograft, .. } = &note;
    let donor = match kind {
        DonorKind::Malloc => donors::find(named),
        DonorKind::Strings => Some(donors::strings()).filter(|strings| strings.name == named),
    };
    let expected = donor.and_then(|donor| {
        let object = donor.object(arch)?;
        tuned(donor, object, &settings(options)?, allograft).ok()
    });
    if expected.as_deref() == Some(*bytes) {
        let options = if options.is_empty() { String::new() } else { format!(" with {options}") };
        return Ok(Check::new(name, true, format!("{named} {version}{options}, byte for byte as allograft has it")));
    }
    if !allograft.is_empty() && allograft != VERSION {
        let reason = format!("allograft {allograft} made the graft, and its {named} is not this one's ({VERSION})");
        return Err(not_run(name, &reason));
    }
    if donor.is_some_and(|donor: &Donor| donor.supports(arch) && !donor.is_built_for(arch)) {
        return Err(not_run(name, &format!("this build of allograft leaves out {named} for {arch}")));
    }
    let detail = match expected {
        Some(expected) => format!("member {label}: {}", described(bytes, &expected)),
        None => format!("member {label}: its note names this allograft ({VERSION}), which has no {named} like that"),
    };
    Ok(Check::new(name, false, detail))
}

/// Describes the first difference of two donors that differ.
fn described(found: &[u8], expected: &[u8]) -> String {
    let at = first_difference(found, expected).unwrap_or(found.len());
    match (found.get(at), expected.get(at)) {
        (Some(found), Some(expected)) => {
            format!("byte {at:#x} of the donor is {found:#04x}, and {expected:#04x} in this allograft's")
        }
        _ => format!("the donor has {} bytes, and this allograft's {}", found.len(), expected.len()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::LazyLock;

    use fixtures::Arch;
    use fixtures::sample;

    use super::*;
    use crate::request::{Candidate, Request};

    /// A stock archive, and its graft with the default donor, one of whose options is set.
    static PAIR: LazyLock<[Vec<u8>; 2]> = LazyLock::new(|| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("libc.a");
        fs::write(&path, sample::stock(Arch::X86_64)).unwrap();
        let donor = donors::default_for(Arch::X86_64);
        let option = DonorObject::parse(donor.object(Arch::X86_64).unwrap()).unwrap().options()[0].clone();
        let value = if option.value < option.max { option.value + 1 } else { option.value - 1 };
        let candidate = Candidate { settings: vec![(option.name, value)], ..Candidate::new(donor) };
        let request = Request { candidates: vec![candidate], ..Request::new(donor) };
        crate::graft::graft(&path, &request).unwrap();
        [sample::stock(Arch::X86_64), fs::read(path).unwrap()]
    });

    fn examined(graft: &[u8]) -> ExaminedArchive {
        examine_archive(graft, Some(&PAIR[0])).unwrap()
    }

    fn is_sound(examined: &ExaminedArchive) -> bool {
        examined.checks.iter().all(|check| check.ok) && examined.not_run.is_empty()
    }

    /// The first place of a text.
    fn place(bytes: &[u8], text: &[u8]) -> Option<usize> {
        bytes.windows(text.len()).position(|window| window == text)
    }

    #[test]
    fn a_graft_is_compared_with_the_donors() {
        let examined = examined(&PAIR[1]);
        assert!(is_sound(&examined), "{examined:?}");
        for name in ["donor", "strings-donor"] {
            assert!(examined.checks.iter().any(|check| check.name == name), "{name}: {examined:?}");
        }
    }

    /// The checksum in the note leaves out the options block and the note.
    #[test]
    fn each_byte_of_a_donor_counts() {
        let donors = inspector::verify::explain(&PAIR[1], None).unwrap().donors;
        assert_eq!(donors.len(), 2);
        for DonorMember { label, bytes } in donors {
            let (mut changed, note) = (bytes.to_vec(), place(bytes, b"donor=").unwrap());
            let block = place(bytes, b"ARGO").map(|block| {
                let entries = u32::from_le_bytes(*bytes[block + 8..].first_chunk().unwrap()) as usize;
                block..block + 16 + 64 * entries
            });
            let others = (0..bytes.len()).step_by(997);
            for at in (note..note + 512).chain(block.into_iter().flatten()).chain(others) {
                changed[at] ^= 1 << (at % 8);
                let member = DonorMember { label: label.clone(), bytes: &changed };
                let is_equal = compare_donor(&member).is_ok_and(|check| check.ok);
                assert!(!is_equal || is_version(bytes, at), "{label}: byte {at:#x}");
                changed[at] = bytes[at];
            }
        }
    }

    /// Whether a byte is in the version of allograft in a note, which says nothing about the donor.
    fn is_version(bytes: &[u8], at: usize) -> bool {
        let line = bytes[..at].rsplit(|byte| *byte == b'\n').next().unwrap();
        line.starts_with(b"allograft=")
    }

    #[test]
    fn a_donor_of_another_allograft_is_not_compared() {
        let mut graft = PAIR[1].clone();
        let version = place(&graft, format!("\nallograft={VERSION}\n").as_bytes()).unwrap() + "\nallograft=".len();
        graft[version] = b'9';
        assert!(is_sound(&examined(&graft)));
        // The range of an option that was not set.
        let block = place(&graft, b"ARGO").unwrap();
        let unset = (0..).map(|entry| block + 16 + 64 * entry).find(|entry| graft[entry + 56] == 0).unwrap();
        graft[unset + 55] ^= 1 << 6;
        let examined = examined(&graft);
        assert!(examined.checks.iter().all(|check| check.ok), "{examined:?}");
        let [left] = examined.not_run.as_slice() else { panic!("{examined:?}") };
        assert!(left.name == "donor" && left.reason.starts_with("allograft 9"), "{left:?}");
    }
}

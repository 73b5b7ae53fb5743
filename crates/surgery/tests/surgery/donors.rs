//! Donors: their notes and options.

use format::{Arch, Note, NoteError};
use sha2::{Digest, Sha256};
use surgery::donor::{DonorError, DonorObject};

use crate::samples;

fn untuned() -> Vec<u8> {
    let options = samples::options(&[("purge_delay", 10, -1, 1000), ("large_pages", 0, 0, 1)]);
    samples::donor_of(Arch::Aarch64, samples::DONOR, &samples::note("mimalloc", "2.5.2"), &options)
}

fn setting(name: &str, value: i64) -> (String, i64) {
    (name.to_owned(), value)
}

#[test]
fn options_and_note_are_filled_in_and_nothing_else() {
    let stock = untuned();
    let donor = DonorObject::parse(&stock).expect("a donor");
    assert_eq!(donor.arch(), Arch::Aarch64);
    let tuned = donor.tuned(&[setting("large_pages", 1), setting("purge_delay", 0)], "0.2.0").expect("tuned");
    let again = DonorObject::parse(&tuned).expect("a donor");
    assert_eq!(again.checksum(), donor.checksum());
    let hash: String = donor.checksum().iter().map(|byte| format!("{byte:02x}")).collect();
    let note = Note {
        donor: "mimalloc".to_owned(),
        version: "2.5.2".to_owned(),
        options: "purge_delay=0 large_pages=1".to_owned(),
        object: format!("sha256:{hash}"),
        allograft: "0.2.0".to_owned(),
    };
    assert_eq!(again.note(), note);
    let values: Vec<_> = again.options().into_iter().map(|option| (option.value, option.set)).collect();
    assert_eq!(values, [(0, true), (1, true)]);

    // All differences are in the note's description or in the table of options.
    let find = |part: &[u8]| stock.windows(part.len()).position(|window| window == part).expect("there");
    let (description, table) = (find(b"donor="), find(b"ARGO"));
    for (at, (before, after)) in stock.iter().zip(&tuned).enumerate() {
        let inside = (description..description + 512).contains(&at) || (table..table + 16 + 128).contains(&at);
        assert!(before == after || inside, "byte {at}");
    }
    // The checksum, computed once more.
    let mut zeroed = stock.clone();
    zeroed[description..description + 512].fill(0);
    zeroed[table..table + 16 + 128].fill(0);
    assert_eq!(donor.checksum()[..], Sha256::digest(&zeroed)[..]);
}

#[test]
fn tuning_is_the_same_in_any_order_and_twice() {
    let stock = untuned();
    let donor = DonorObject::parse(&stock).expect("a donor");
    let settings = [setting("purge_delay", 5), setting("large_pages", 1), setting("purge_delay", 7)];
    let tuned = donor.tuned(&settings, "1").expect("tuned");
    let other = [setting("large_pages", 1), setting("purge_delay", 7)];
    assert_eq!(donor.tuned(&other, "1").expect("tuned"), tuned);
    assert_eq!(DonorObject::parse(&tuned).expect("a donor").tuned(&settings, "1").expect("tuned"), tuned);
    let none = donor.tuned(&[], "1").expect("tuned");
    assert_eq!(DonorObject::parse(&none).expect("a donor").note().options, "");
}

#[test]
fn settings_that_do_not_fit_are_explained() {
    let stock = untuned();
    let donor = DonorObject::parse(&stock).expect("a donor");
    let message = |name, value| donor.tuned(&[setting(name, value)], "1").expect_err("an error").to_string();
    assert_eq!(message("purge_dely", 1), "unknown option `purge_dely`; known: purge_delay, large_pages");
    assert_eq!(message("purge_delay", 1001), "option `purge_delay` cannot be 1001: it takes -1 to 1000");
    assert_eq!(
        message("large_pages", i64::MIN),
        format!("option `large_pages` cannot be {}: it takes 0 to 1", i64::MIN)
    );
    let long = donor.tuned(&[], &"9".repeat(500)).expect_err("an error");
    assert!(matches!(long, DonorError::Note(NoteError::Room { room: 512, .. })), "{long}");
}

#[test]
fn what_is_no_donor_is_explained() {
    let (note, options) = (samples::note("a", "1"), samples::options(&[("x", 1, 0, 2)]));
    let message = |note: &[u8], options: &[u8]| {
        let object = samples::donor_of(Arch::X86_64, samples::DONOR, note, options);
        DonorObject::parse(&object).expect_err("an error").to_string()
    };
    let changed = |bytes: &[u8], at: usize, to: u8| {
        let mut bytes = bytes.to_vec();
        bytes[at] = to;
        bytes
    };
    assert_eq!(message(&[], &options), "the donor's object has no sections `.note.allograft`, expected 1");
    assert_eq!(message(&note, &[]), "the donor's object has no sections `.rodata.allograft.options`, expected 1");
    assert!(message(&note[..500], &options).contains("a size of 500, expected 536"));
    assert!(message(&changed(&note, 0, 9), &options).contains("a name size of 9, expected 10"));
    assert!(message(&changed(&note, 8, 2), &options).contains("the type 2, expected 1"));
    assert!(message(&note, &changed(&options, 0, b'a')).contains("the magic aRGO, expected ARGO"));
    assert!(message(&note, &changed(&options, 4, 2)).contains("the format 2, expected 1"));
    assert!(message(&note, &changed(&options, 8, 2)).contains("a size of 80, expected room for 2 entries"));
    assert!(message(&note, &changed(&options, 12, 32)).contains("entries of 32, expected 64"));
    assert!(message(&note, &changed(&options, 16, 0)).contains("in entry 0 the name"));
    assert!(message(&note, &changed(&options, 16 + 32, 3)).contains("in entry 0 the value 3, expected 0 to 2"));
    let doubled = samples::options(&[("x", 1, 0, 2), ("x", 1, 0, 2)]);
    assert!(message(&note, &doubled).contains("in entry 1 the name x, expected one that occurs once"));
    assert_eq!(DonorObject::parse(b"").expect_err("an error"), DonorError::Empty);
    let text = DonorObject::parse(b"hello").expect_err("an error").to_string();
    assert_eq!(text, "the donor's object: not a relocatable ELF object");
}

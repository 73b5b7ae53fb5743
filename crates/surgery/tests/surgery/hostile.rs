//! Broken input gives an answer or an error, never a panic.

use fixtures::objects;
use std::collections::BTreeSet;

use format::Arch;
use proptest::prelude::*;
use surgery::archive::{Archive, HEADER, MAGIC};
use surgery::donor::DonorObject;
use surgery::plan::{plan, survey};

use crate::samples;

/// Calls every operation on an archive.
fn operate(bytes: &[u8], donor: &[u8]) {
    let Ok(archive) = Archive::parse(bytes) else { return };
    assert_eq!(archive.edit(&BTreeSet::new(), None), bytes);
    let _ = survey(&archive);
    for member in archive.members() {
        let _ = relocatable::localise(member.data, &|name| name.len() % 2 == 0);
    }
    if let Ok(plan) = plan(&archive, donor) {
        let graft = plan.apply(&archive);
        Archive::parse(&graft).expect("a graft is an archive");
    }
}

/// A small archive of real objects, with an index and long names.
fn real_in_small() -> Vec<u8> {
    let stock = samples::bytes(&fixtures::debian_musl(fixtures::Arch::X86_64).libc);
    let archive = Archive::parse(&stock).expect("an archive");
    let mut names: Vec<(String, Vec<u8>)> = Vec::new();
    let wanted = ["libc.lo", "lite_malloc.lo", "free.lo", "fork.lo", "__init_tls.lo", "syscall_ret.lo", "replaced.lo"];
    for member in archive.members() {
        if wanted.contains(&member.display_name().as_str()) {
            names.push((format!("a/longer/path/{}", member.display_name()), member.data.to_vec()));
        }
    }
    let members: Vec<(&str, Vec<u8>)> = names.iter().map(|(name, data)| (name.as_str(), data.clone())).collect();
    assert!(members.len() >= 8);
    samples::archive(&members, true)
}

/// The offsets of the headers of the symbol index and of all members.
fn headers(archive: &[u8]) -> Vec<usize> {
    let archive = Archive::parse(archive).expect("an archive");
    [MAGIC.len()].into_iter().chain(archive.members().iter().map(|member| member.offset)).collect()
}

#[test]
fn an_archive_cut_anywhere() {
    let bytes = real_in_small();
    let donor = samples::donor(Arch::X86_64, "test");
    let (front, rest) = (bytes.len().min(4096), bytes.len().saturating_sub(4096));
    let places = (0..front).chain((0..1000).map(|step| front + rest * step / 1000));
    let mut refused = 0;
    for end in places {
        refused += usize::from(Archive::parse(&bytes[..end]).is_err());
        operate(&bytes[..end], &donor);
    }
    assert!(refused > 4000, "{refused}");
}

#[test]
fn every_field_of_every_header_at_its_extremes() {
    let bytes = real_in_small();
    let donor = samples::donor(Arch::X86_64, "test");
    let fields = [(0, 16), (16, 12), (28, 6), (34, 6), (40, 8), (48, 10), (58, 2)];
    let fills: [&[u8]; 10] = [b"0", b"9", b"\0", b"\xff", b" ", b"-1", b"/", b"//", b"/9", b"1 "];
    for header in headers(&bytes) {
        for (start, length) in fields {
            for fill in fills {
                let mut broken = bytes.clone();
                let value: Vec<u8> = fill.iter().copied().cycle().take(length).collect();
                broken[header + start..header + start + length].copy_from_slice(&value);
                operate(&broken, &donor);
            }
        }
    }
}

#[test]
fn every_byte_of_an_objects_headers_at_its_extremes() {
    let object =
        samples::donor_of(Arch::X86_64, samples::DONOR, &samples::note("a", "1"), &samples::options(&[("x", 1, 0, 2)]));
    let sections = u64::from_le_bytes(object[40..48].try_into().expect("e_shoff")) as usize;
    for at in (0..64).chain(sections..object.len()) {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut broken = object.clone();
            broken[at] = value;
            let _ = relocatable::symbols(&broken);
            let _ = relocatable::localise(&broken, &|_| false);
            let _ = relocatable::merge(&broken, &object);
            let _ = relocatable::merge(&objects::object("one needs:two"), &broken);
            if let Ok(donor) = DonorObject::parse(&broken) {
                let _ = donor.checksum();
                let _ = donor.tuned(&[("x".to_owned(), 2)], "1");
            }
        }
    }
}

/// The verifier reads all sections of all members.
#[test]
fn a_member_with_a_section_outside_of_it_is_refused() {
    let mut archive = samples::musl_with(&[]);
    let at = Archive::parse(&archive).expect("an archive").members()[4].offset + HEADER;
    let headers = at + u64::from_le_bytes(archive[at + 40..at + 48].try_into().expect("8 bytes")) as usize;
    // The first section behind the empty one is code.
    archive[headers + 64 + 24..headers + 64 + 32].copy_from_slice(&(1_u64 << 40).to_le_bytes());
    let refusal = plan(&Archive::parse(&archive).expect("an archive"), &samples::donor(Arch::X86_64, "test"));
    assert!(matches!(refusal, Err(surgery::plan::Refusal::Member { .. })), "{refusal:?}");
}

/// So it is with an empty section: its place is outside.
#[test]
fn a_member_with_an_empty_section_outside_of_it_is_refused() {
    let stock = samples::musl_with(&[]);
    let donor = samples::donor(Arch::X86_64, "test");
    let at = Archive::parse(&stock).expect("an archive").members()[4].offset + HEADER;
    let word = |at: usize| u64::from_le_bytes(stock[at..at + 8].try_into().expect("8 bytes")) as usize;
    let (headers, count) = (at + word(at + 40), usize::from(stock[at + 60]));
    assert!(plan(&Archive::parse(&stock).expect("an archive"), &donor).is_ok());
    for header in (1..count).map(|number| headers + 64 * number) {
        let mut archive = stock.clone();
        archive[header + 24..header + 32].copy_from_slice(&(1_u64 << 41).to_le_bytes());
        archive[header + 32..header + 40].fill(0);
        let refusal = plan(&Archive::parse(&archive).expect("an archive"), &donor).expect_err("damage");
        assert!(refusal.is_damage() && refusal.to_string().contains("`strdup.lo`"), "{refusal}");
    }
}

/// The verifier reads ELF files that are not objects, too.
#[test]
fn a_member_whose_header_is_damaged_is_refused() {
    let stock = samples::musl_with(&[]);
    let at = Archive::parse(&stock).expect("an archive").members()[4].offset + HEADER;
    let mut refused = 0;
    for byte in [4, 5, 6, 16, 17, 18, 20] {
        let mut archive = stock.clone();
        archive[at + byte] ^= 3;
        let plan = plan(&Archive::parse(&archive).expect("an archive"), &samples::donor(Arch::X86_64, "test"));
        refused += usize::from(plan.is_err());
    }
    assert!(refused >= 5, "{refused}");
}

#[test]
fn every_byte_of_every_header_as_another_blank_digit_or_sign() {
    let bytes = real_in_small();
    let donor = samples::donor(Arch::X86_64, "test");
    for at in headers(&bytes).into_iter().flat_map(|header| header..header + HEADER) {
        for value in *b"\t\n\r\0 0159/-\xff" {
            let mut broken = bytes.clone();
            broken[at] = value;
            operate(&broken, &donor);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn bytes_changed_anywhere(changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)) {
        let donor = samples::donor(Arch::X86_64, "test");
        let mut bytes = samples::musl_with(&[]);
        for (at, value) in &changes {
            let at = at.index(bytes.len());
            bytes[at] = *value;
        }
        operate(&bytes, &donor);
    }

    #[test]
    fn bytes_of_a_donor_changed_anywhere(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut donor = samples::donor(Arch::X86_64, "test");
        for (at, value) in &changes {
            let at = at.index(donor.len());
            donor[at] = *value;
        }
        operate(&samples::musl_with(&[]), &donor);
        let _ = relocatable::localise(&donor, &|name| name.starts_with(b"_"));
        let _ = relocatable::merge(&objects::object("weak:malloc needs:free"), &donor);
    }
}

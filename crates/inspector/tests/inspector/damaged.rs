//! Files that are cut short or lie about themselves: an answer or an error, soon, and no panic.

use fixtures::sample::{self, Recipe};
use std::time::Duration;

use inspector::{inspect, verify};
use zigcc::Arch;

use crate::programs::{self, Mode, NORMAL};

/// Generous for a debug build; a file that sends a reader round in circles takes far longer.
const LONG: Duration = Duration::from_secs(20);

fn look(bytes: &[u8], what: impl Fn() -> String) {
    let begin = fixtures::processor_time();
    // The content of the report does not matter here.
    let _ = inspect(bytes);
    let took = fixtures::processor_time() - begin;
    assert!(took < LONG, "{} took {took:?}", what());
}

fn samples() -> Vec<(&'static str, Vec<u8>)> {
    let libc = fixtures::debian_musl(Arch::X86_64).libc;
    let mut samples = vec![
        ("static", programs::musl_program(Arch::X86_64, NORMAL, &libc, Mode::Static, false)),
        ("stripped", programs::musl_program(Arch::X86_64, NORMAL, &libc, Mode::StaticPie, true)),
        ("dynamic", programs::native(NORMAL, &["-O1"])),
        ("object", sample::donor(Arch::Aarch64, &Recipe::default())),
    ];
    // Compiler support functions, which libc does not contain, are built with the conformance programs.
    if conformance::is_built_for(Arch::Aarch64) {
        let libc = fixtures::debian_musl(Arch::Aarch64).libc;
        samples.push(("arm", programs::musl_program(Arch::Aarch64, NORMAL, &libc, Mode::Static, true)));
    }
    samples
}

#[test]
fn cut_at_a_thousand_places() {
    let archive = sample::graft(Arch::X86_64, &Recipe::default());
    for (name, whole) in samples().into_iter().chain([("archive", archive)]) {
        for step in 0..1000 {
            let cut = whole.len() * step / 1000;
            look(&whole[..cut], || format!("{name} cut at {cut}"));
        }
    }
}

/// A part of a file that consists of numbers: where it starts and how wide each is.
fn fields(file: &[u8]) -> Vec<(usize, usize)> {
    let word = |at: usize| u64::from_le_bytes(file[at..at + 8].try_into().unwrap()) as usize;
    let half = |at: usize| u16::from_le_bytes(file[at..at + 2].try_into().unwrap()) as usize;
    let mut fields: Vec<(usize, usize)> = (4..16).map(|at| (at, 1)).collect();
    fields.extend([(16, 2), (18, 2), (20, 4), (24, 8), (32, 8), (40, 8), (48, 4)]);
    fields.extend((52..64).step_by(2).map(|at| (at, 2)));
    for header in 0..half(56) {
        let at = word(32) + header * 56;
        fields.extend([(at, 4), (at + 4, 4)]);
        fields.extend((8..56).step_by(8).map(|inside| (at + inside, 8)));
    }
    for header in 0..half(60) {
        let at = word(40) + header * 64;
        fields.extend([(at, 4), (at + 4, 4), (at + 40, 4), (at + 44, 4)]);
        fields.extend([8, 16, 24, 32, 48, 56].map(|inside| (at + inside, 8)));
    }
    fields
}

#[test]
fn every_field_of_every_header_at_its_extremes() {
    for (name, whole) in samples() {
        let size = whole.len() as u64;
        for (at, width) in fields(&whole) {
            for value in [0, 1, size, i64::MAX as u64, u64::MAX] {
                let mut file = whole.clone();
                file[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
                look(&file, || format!("{name} with {value:#x} at {at}"));
            }
        }
    }
}

#[test]
fn every_byte_of_an_archives_headers_and_index_at_its_extremes() {
    let whole = sample::donor_alone(Arch::X86_64);
    let header = whole.windows(12).position(|window| window == b"allograft.o/").unwrap();
    // The magic, the index's header and its numbers, the member's header.
    for at in (0..8 + 60 + 4 * 18).chain(header..header + 60) {
        for value in [0u8, b' ', b'/', b'0', b'9', b'-', 0x7f, 0xff] {
            let mut file = whole.clone();
            file[at] = value;
            look(&file, || format!("archive with {value} at {at}"));
            // Either it cannot be read, or there is something to say.
            assert!(verify::compare(&file, Some(&whole)).map_or(true, |checks| !checks.is_empty()));
        }
    }
}

#[test]
fn headers_that_all_name_the_same_bytes_take_no_longer() {
    // 60,000 program headers, each a note or a segment of the whole file.
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(64 + 60_000 * 56, 0);
    file[16..20].copy_from_slice(&[2, 0, 62, 0]);
    file[32] = 64;
    file[54] = 56;
    file[56..58].copy_from_slice(&60_000u16.to_le_bytes());
    let size = file.len() as u64;
    for header in 0..60_000 {
        let at = 64 + header * 56;
        file[at] = if header % 2 == 0 { 1 } else { 4 };
        file[at + 8..at + 16].copy_from_slice(&(header as u64).to_le_bytes());
        file[at + 32..at + 40].copy_from_slice(&(size - header as u64).to_le_bytes());
    }
    look(&file, || "60,000 program headers".to_owned());
}

#[test]
fn code_that_looks_like_free_everywhere_takes_no_longer() {
    let libc = fixtures::debian_musl(Arch::X86_64).libc;
    let sound = programs::musl_program(Arch::X86_64, NORMAL, &libc, Mode::Static, true);
    // Its first segment with code is followed by a larger one, of marks and of jumps to them.
    let word = |at: usize| u64::from_le_bytes(sound[at..at + 8].try_into().unwrap());
    let header = (0..usize::from(sound[56]))
        .map(|number| word(32) as usize + number * 56)
        .find(|&at| sound[at] == 1 && sound[at + 4] & 1 == 1)
        .unwrap();
    for piece in [
        // jmp to the start of the piece; mov byte [rdi-3], 0xff; mov word [rdi-2], 0; ret
        &b"\xe9\x00\x00\x00\x00\xc6\x47\xfd\xff\x66\xc7\x47\xfe\x00\x00\xc3"[..],
        // call and jump to what comes next
        b"\xe8\x00\x00\x00\x00\xe9\x00\x00\x00\x00\xc6\x47\xfd\xff\x66\xc7\x47\xfe\x00\x00",
        b"\xe9",
        b"\xc6\x47\xfd\xff",
    ] {
        let mut file = sound.clone();
        let offset = file.len() as u64;
        file.extend(piece.iter().cycle().take(8 << 20));
        file[header + 8..header + 16].copy_from_slice(&offset.to_le_bytes());
        for at in [32, 40] {
            file[header + at..header + at + 8].copy_from_slice(&(8u64 << 20).to_le_bytes());
        }
        look(&file, || format!("code of {piece:x?}"));
        assert_ne!(inspect(&file).unwrap().malloc.name, "mallocng", "{piece:x?}");
    }
}

#[test]
fn an_archive_that_is_cut_is_an_error_and_no_failed_check() {
    let whole = sample::graft(Arch::X86_64, &Recipe::default());
    let error = verify::compare(&whole[..whole.len() - 101], None).unwrap_err().to_string();
    assert!(error.contains("malformed at byte"), "{error}");
}

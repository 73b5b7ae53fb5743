//! Programs for aarch64, linked with stock musl by lld, and their grafts. They are run in tests/casebook.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use format::{Arch, Role};
use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSection, ObjectSymbol};
use proptest::prelude::*;
use surgery::donor::DonorObject;
use transplant::{Blob, BlobError, Executable, Graft, Plan, Refusal};

/// The graft of a program with these bytes.
fn graft(program: &[u8], blob: &Blob, as_if_stripped: bool) -> Result<Result<Graft, Refusal>, BlobError> {
    Executable::read(program).map_or_else(|refusal| Ok(Err(refusal)), |program| program.redirect(blob, as_if_stripped))
}

/// The default donor's blob.
static BLOB: LazyLock<Blob> = LazyLock::new(|| blob(donors::default_for(Arch::Aarch64).name));

fn blob(name: &str) -> Blob {
    let donor = donors::find(name).unwrap();
    let tuned = DonorObject::parse(donor.object(Arch::Aarch64).unwrap()).unwrap().tuned(&[], "0").unwrap();
    let tuned = DonorObject::parse(&tuned).unwrap();
    Blob::parse(donor.blob(Arch::Aarch64).unwrap(), &tuned.note(), &tuned.options()).unwrap()
}

/// A conformance program, linked with Debian's musl.
fn linked(name: &str, flags: &[&str]) -> Vec<u8> {
    linked_with(name, flags, "")
}

/// Links a program with some assembly of its own.
fn linked_with(name: &str, flags: &[&str], assembly: &str) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let (source, more) = (folder.path().join("more.s"), folder.path().join("more.o"));
    fs::write(&source, assembly).unwrap();
    let mut assemble = fixtures::zig().command();
    assemble.args(["cc", "-target", "aarch64-linux-musl", "-c", "-o"]).args([&more, &source]);
    assert!(assemble.status().unwrap().success());
    let musl = fixtures::debian_musl(Arch::Aarch64);
    let put = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    let object = put("program.o", conformance::find(name).unwrap().object(Arch::Aarch64));
    let runtime = put("runtime.a", conformance::runtime_library(Arch::Aarch64));
    let program = folder.path().join("program");
    let mut linker = fixtures::link::lld();
    linker.args(flags);
    let mut link = musl.link(flags.contains(&"-pie")).line(linker, [object, more], [runtime], &program);
    assert!(link.output().unwrap().status.success());
    fs::read(Path::new(&program)).unwrap()
}

static FAMILY: LazyLock<Vec<u8>> = LazyLock::new(|| linked("family", &[]));

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*bytes[at..].first_chunk().unwrap())
}

/// PT_TLS: address, size in the file, size in memory, alignment.
fn thread_storage(bytes: &[u8]) -> Option<[u64; 4]> {
    let table = word(bytes, 32) as usize;
    let count = usize::from(u16::from_le_bytes([bytes[56], bytes[57]]));
    let header = (0..count).map(|index| &bytes[table + 56 * index..]).find(|header| header[..4] == [7, 0, 0, 0])?;
    Some([16, 32, 40, 48].map(|at| word(header, at)))
}

#[test]
#[ignore = "aarch64: links a program with that architecture's conformance objects"]
fn code_says_the_same_as_symbols() {
    for flags in [[].as_slice(), &["-pie", "--no-dynamic-linker", "-z", "text"]] {
        let bytes = linked("family", flags);
        let with = graft(&bytes, &BLOB, false).unwrap().unwrap().plan;
        let without = graft(&bytes, &BLOB, true).unwrap().unwrap().plan;
        assert!(with.symbols && !without.symbols);
        assert_eq!(with.position_independent, !flags.is_empty());
        for role in [Role::Malloc, Role::Free, Role::Realloc, Role::AlignedAlloc, Role::UsableSize] {
            // Of functions that only lead there, names tell more than code.
            let last =
                |plan: &Plan| plan.entries.iter().filter(|entry| entry.role == role).map(|entry| entry.address).max();
            assert!(last(&with).is_some(), "{role}");
            assert_eq!(last(&with), last(&without), "{role}");
        }
    }
}

/// vfork makes the system call of fork and has no hook: a program with nothing else is grafted without its names, too.
/// One with fork has the hook.
#[test]
#[ignore = "aarch64: links a program with that architecture's conformance objects"]
fn a_vfork_is_no_fork() {
    for (name, hook) in [("spawn", false), ("fork_owners", true)] {
        let without = graft(&linked(name, &[]), &BLOB, true).unwrap().unwrap().plan;
        assert_eq!(without.fork_hook, hook, "{name}");
    }
    // Whatever does more may be a fork: `mov x29, sp` becomes `str x0, [x1]`.
    let mut bytes = linked("spawn", &[]);
    let words = [0xd280_1b88u32, 0xd280_0220, 0x9100_03fd, 0xd280_0001, 0xd400_0001];
    let vfork: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let at = bytes.windows(vfork.len()).position(|window| window == vfork).unwrap();
    bytes[at + 8..at + 12].copy_from_slice(&0xf900_0020u32.to_le_bytes());
    assert!(matches!(graft(&bytes, &BLOB, true).unwrap(), Err(Refusal::ForkHook)));
}

/// GHC's initLinker ends like this: the last call does not return, and the function behind it jumps back. So it reads
/// as a loop that takes more of the stack each time around, with one of musl's pages in it.
#[test]
#[ignore = "aarch64: links a program with that architecture's conformance objects"]
fn a_call_that_does_not_return_makes_no_loop() {
    const ENDLESS: &str = ".text
.balign 16
.globl first
.type first, %function
first:
        stp x19, x20, [sp, #-48]!
        adrp x20, neighbour
        str x30, [sp, #40]
        ldr w1, [x20, :lo12:neighbour]
        cbz w1, 1f
        ldr x30, [sp, #40]
        ldp x19, x20, [sp], #48
        ret
1:      bl ends
        nop
        nop
.balign 16
.globl second
.type second, %function
second:
        mov w0, #1
        b first
.globl ends
.type ends, %function
ends:
        adrp x1, neighbour
        ldr x1, [x1, :lo12:neighbour]
        br x1
.data
.balign 8
        .quad first, second
.bss
.balign 8
neighbour:
        .skip 8
";
    let bytes = linked_with("family", &[], ENDLESS);
    for as_if_stripped in [false, true] {
        graft(&bytes, &BLOB, as_if_stripped).unwrap().unwrap();
    }
    // A value that one round of the loop leaves in the stack, and the 70th after it takes, is still found.
    let state = ENDLESS.replace(
        "        cbz w1, 1f\n",
        "        ldr x3, [sp, #3368]\n        ldr w4, [x3, :lo12:__malloc_context]\n        cbz w1, 1f\n",
    );
    let state = state.replace("adrp x20, neighbour", "adrp x20, __malloc_context");
    let refusal = graft(&linked_with("family", &[], &state), &BLOB, false).unwrap().map(|graft| graft.plan.references);
    assert!(matches!(refusal, Err(Refusal::StateElsewhere { .. })), "{refusal:?}");
}

#[test]
#[ignore = "aarch64: links a program with that architecture's conformance objects"]
fn storage_of_threads_keeps_its_distance() {
    let bytes = linked("threads", &[]);
    let made = graft(&bytes, &BLOB, false).unwrap().unwrap().bytes;
    // Variant I: 16 bytes behind the thread pointer, and as the address lies to the alignment.
    let distance = |[address, _, _, align]: [u64; 4]| 16 + (address.wrapping_sub(16) & (align.max(1) - 1));
    let stock = thread_storage(&bytes);
    let now = thread_storage(&made).unwrap();
    assert_eq!(distance(now), stock.map_or(16, distance));
    assert!(now[2] > stock.map_or(0, |stock| stock[2]));
}

#[test]
#[ignore = "aarch64: links a program with that architecture's conformance objects"]
fn the_program_stays_in_place() {
    let made = graft(&FAMILY, &BLOB, false).unwrap().unwrap();
    let changed: Vec<usize> = (64..FAMILY.len()).filter(|at| made.bytes[*at] != FAMILY[*at]).collect();
    // A word for each function, for the end of threads and for the start; symbols of threads' variables.
    let words: std::collections::BTreeSet<usize> = changed.iter().map(|at| at / 4).collect();
    assert!(words.len() <= made.plan.entries.len() + 2, "{}", words.len());
    assert!(matches!(graft(&made.bytes, &BLOB, false).unwrap(), Err(Refusal::Grafted { .. })));
}

#[test]
#[ignore = "aarch64: links a program with that architecture's conformance objects"]
fn what_is_not_certain_is_refused() {
    let interposer = linked("interposer", &[]);
    for as_if_stripped in [false, true] {
        assert!(graft(&interposer, &BLOB, as_if_stripped).unwrap().is_err());
    }
    // Guarded pages would be the donor's, too.
    let guarded = linked("family", &["-z", "force-bti"]);
    assert_eq!(graft(&guarded, &BLOB, false).unwrap().unwrap_err(), Refusal::Guarded);
    // Without the byte that marks a freed block, no function is free: `sturb wT, [xN, #-3]` becomes one at -5.
    let mut bytes = FAMILY.clone();
    for at in (0..bytes.len() / 4).map(|index| 4 * index) {
        let word = u32::from_le_bytes(*bytes[at..].first_chunk().unwrap());
        if word & 0xffff_fc00 == 0x381f_d000 {
            bytes[at..at + 4].copy_from_slice(&(word & !0x001f_f000 | 0x001f_b000).to_le_bytes());
        }
    }
    for as_if_stripped in [false, true] {
        let refusal = graft(&bytes, &BLOB, as_if_stripped).unwrap().unwrap_err();
        assert!(matches!(refusal, Refusal::Missing(Role::Free) | Refusal::Ambiguous { .. }), "{refusal}");
    }
}

/// A program with constants in the same segment as its code, as GNU ld lays it out.
static ONE_SEGMENT: LazyLock<Vec<u8>> = LazyLock::new(|| linked("family", &["--no-rosegment"]));

/// Words of its own at the end of its constants; `as_code`: the section headers say that these may be executed.
fn among_constants(words: &[u32], as_code: bool) -> Vec<u8> {
    let mut bytes = ONE_SEGMENT.clone();
    let file = ElfFile64::<Endianness>::parse(ONE_SEGMENT.as_slice()).unwrap();
    let section = file.section_by_name(".rodata").unwrap();
    let (start, size) = section.file_range().unwrap();
    let at = ((start + size) & !3) as usize - 4 * words.len();
    bytes[at..at + 4 * words.len()]
        .copy_from_slice(&words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>());
    if as_code {
        bytes[word(&ONE_SEGMENT, 40) as usize + 64 * section.index().0 + 8] |= 4; // sh_flags, SHF_EXECINSTR
    }
    bytes
}

/// `adrp x0, __malloc_context` for the first of so many words there, and what of the address is not in the page.
fn page_of_context(words: u64) -> (u32, u32) {
    let file = ElfFile64::<Endianness>::parse(ONE_SEGMENT.as_slice()).unwrap();
    let context = file.symbols().find(|symbol| symbol.name() == Ok("__malloc_context")).unwrap().address();
    let section = file.section_by_name(".rodata").unwrap();
    let site = ((section.address() + section.size()) & !3) - 4 * words;
    let pages = (context >> 12).wrapping_sub(site >> 12) as u32;
    (0x9000_0000 | (pages & 3) << 29 | (pages >> 2 & 0x7_ffff) << 5, (context & 0xfff) as u32)
}

/// Whether code that refers to the allocator's state was found outside of it.
fn state_elsewhere(program: &[u8], as_if_stripped: bool) -> bool {
    match graft(program, &BLOB, as_if_stripped).unwrap() {
        Ok(_) => false,
        Err(Refusal::StateElsewhere { .. }) => true,
        Err(other) => panic!("{other}"),
    }
}

#[test]
#[ignore = "aarch64: links a program with that architecture's conformance objects"]
fn constants_beside_the_code_are_no_code() {
    let (page, offset) = page_of_context(3);
    // `adrp x0, __malloc_context; ldrb w0, [x0, #..]; ret`
    let words = [page, 0x3940_0000 | offset << 10, 0xd65f_03c0];
    for as_if_stripped in [false, true] {
        assert!(!state_elsewhere(&ONE_SEGMENT, as_if_stripped));
        assert!(!state_elsewhere(&among_constants(&[], true), as_if_stripped));
        assert!(!state_elsewhere(&among_constants(&words, false), as_if_stripped));
        assert!(state_elsewhere(&among_constants(&words, true), as_if_stripped));
    }
    // Sections that have the entry point among the data are not believed.
    let mut program = among_constants(&words, false);
    let headers = word(&program, 40) as usize;
    for index in 0..usize::from(u16::from_le_bytes([program[60], program[61]])) {
        program[headers + 64 * index + 8] &= !4;
    }
    assert!(state_elsewhere(&program, true));
}

/// gcc puts a page on the stack when it is short of registers, and makes an address of it after reloading it. A
/// released hadolint has such code.
#[test]
#[ignore = "aarch64: links a program with that architecture's conformance objects"]
fn a_page_is_followed_to_the_stack_and_back() {
    let (page, offset) = page_of_context(8);
    let found = |between: u32, back: u32| {
        // mov x1, x0; str x1, [sp, #16]; mov x0, #0; what comes in between; what takes it back into x2; ldrb w1, [x2];
        // ret
        let load = 0x3940_0041 | offset << 10;
        let words = [page, 0xaa00_03e1, 0xf900_0be1, 0xd280_0000, between, back, load, 0xd65f_03c0];
        state_elsewhere(&among_constants(&words, true), true)
    };
    const NOP: u32 = 0xd503_201f;
    assert!(found(NOP, 0xf940_0be2), "ldr x2, [sp, #16]");
    assert!(found(NOP, 0xa940_8be3), "ldp x3, x2, [sp, #8]");
    assert!(found(0xd100_43ff, 0xf940_13e2), "sub sp, sp, #16; ldr x2, [sp, #32]");
    assert!(found(NOP, 0x9a81_0002), "csel x2, x0, x1, eq");
    assert!(!found(NOP, 0xf940_0fe2), "ldr x2, [sp, #24]");
    assert!(!found(0xd100_43ff, 0xf940_0be2), "sub sp, sp, #16; ldr x2, [sp, #16]");
    assert!(!found(0xf900_0bff, 0xf940_0be2), "str xzr, [sp, #16]; ldr x2, [sp, #16]");
    assert!(!found(NOP, 0xaa00_03e2), "mov x2, x0");
}

#[test]
#[ignore = "aarch64: links a program with that architecture's conformance objects"]
fn a_blob_for_another_architecture_is_not_taken() {
    let donor = donors::default_for(Arch::Aarch64);
    let object = DonorObject::parse(donor.object(Arch::X86_64).unwrap()).unwrap();
    let other = Blob::parse(donor.blob(Arch::X86_64).unwrap(), &object.note(), &object.options()).unwrap();
    assert!(graft(&FAMILY, &other, false).is_err());
    donors::all().iter().filter(|donor| donor.has_blob(Arch::Aarch64)).for_each(|donor| drop(blob(donor.name)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    #[ignore = "aarch64: links a program with that architecture's conformance objects"]
    fn damage_is_an_answer_and_no_panic(
        cut in 0usize..400_000,
        bytes in prop::collection::vec((0usize..1024, any::<u8>()), 1..6),
        code in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..64),
    ) {
        let mut damaged = FAMILY.clone();
        for (at, byte) in bytes {
            damaged[at] = byte;
        }
        for (at, byte) in code {
            let at = at.index(damaged.len());
            damaged[at] = byte;
        }
        if cut < damaged.len() / 2 {
            damaged.truncate(damaged.len() - cut);
        }
        let _ = graft(&damaged, &BLOB, false).unwrap();
    }
}

/// A program with a word of its own at the symbol `word`, and its address; and the targets inside `functions` of their
/// own branches and calls.
fn with_word(assembly: &str, functions: &[&str]) -> (Vec<u8>, u64, usize, BTreeSet<u64>) {
    let bytes = linked_with("family", &[], assembly);
    let file = ElfFile64::<Endianness>::parse(bytes.as_slice()).unwrap();
    let symbol = |name: &str| file.symbols().find(|symbol| symbol.name() == Ok(name)).unwrap();
    let offset = |address: u64| {
        let holds = |section: &object::read::elf::ElfSection64<'_, '_, Endianness>| {
            (section.address()..section.address() + section.size()).contains(&address)
        };
        let section = file.sections().find(holds).unwrap();
        (section.file_range().unwrap().0 + address - section.address()) as usize
    };
    let mut places = BTreeSet::new();
    for function in functions.iter().map(|name| symbol(name)) {
        let inside = function.address() + 4..function.address() + function.size();
        for address in inside.clone().step_by(4) {
            let word = u32::from_le_bytes(*bytes[offset(address)..].first_chunk().unwrap());
            // B.cond, CBZ and CBNZ; what is behind BL; B.
            let target = match word >> 24 {
                0x34 | 0x35 | 0x54 | 0xb4 | 0xb5 => {
                    address.wrapping_add_signed(i64::from((word as i32) << 8 >> 13) * 4)
                }
                0x94..=0x97 => address + 4,
                0x14..=0x17 => address.wrapping_add_signed(i64::from((word as i32) << 6 >> 6) * 4),
                _ => continue,
            };
            places.extend(inside.contains(&target).then_some(target));
        }
    }
    let site = symbol("word").address();
    let at = offset(site);
    drop(file);
    (bytes, site, at, places)
}

/// B and BL
const BRANCHES: [u32; 2] = [0x1400_0000, 0x9400_0000];

fn branch(opcode: u32, site: u64, target: u64) -> [u8; 4] {
    (opcode | (target.wrapping_sub(site) >> 2) as u32 & 0x3ff_ffff).to_le_bytes()
}

/// Constants among the code read as branches at times, and may lead anywhere: to places amid the family's functions,
/// too.
#[test]
#[ignore = "aarch64: links a program with that architecture's conformance objects"]
fn bytes_that_read_as_branches_make_no_functions() {
    const CONSTANTS: &str = ".text
.balign 16
        ret
.globl word
word:   .word 0
        .skip 16384
";
    let functions = ["__libc_free", "__libc_realloc", "malloc_usable_size"];
    let (mut bytes, site, at, places) = with_word(CONSTANTS, &functions);
    assert!(places.len() > 40, "{places:x?}");
    let stock = graft(&bytes, &BLOB, true).unwrap().unwrap().plan.entries;
    for (target, opcode) in places.into_iter().flat_map(|target| BRANCHES.map(|opcode| (target, opcode))) {
        bytes[at..at + 4].copy_from_slice(&branch(opcode, site, target));
        let found = graft(&bytes, &BLOB, true).unwrap().map(|graft| graft.plan.entries);
        assert_eq!(found.as_ref(), Ok(&stock), "{opcode:#x} to {target:#x}");
    }
}

/// Code that really calls such a place uses the allocator's state.
#[test]
#[ignore = "aarch64: links a program with that architecture's conformance objects"]
fn a_call_of_a_place_amid_the_family_is_refused() {
    const INTRUDER: &str = ".text
.balign 16
.globl intruder
intruder:
        stp x29, x30, [sp, #-16]!
.globl word
word:   .word 0
        ldp x29, x30, [sp], #16
        ret
        .skip 16384
        ret
.balign 16
.globl caller
caller: stp x29, x30, [sp, #-16]!
        bl intruder
        ldp x29, x30, [sp], #16
        ret
.data
.balign 8
        .quad caller
";
    let (mut bytes, site, at, places) = with_word(INTRUDER, &["malloc_usable_size"]);
    for target in places {
        bytes[at..at + 4].copy_from_slice(&branch(BRANCHES[1], site, target));
        let found = graft(&bytes, &BLOB, true).unwrap().map(|graft| graft.plan.entries);
        assert!(
            matches!(found, Err(Refusal::InsideCalled { .. } | Refusal::StateElsewhere { .. })),
            "{target:#x}: {found:?}"
        );
    }
}

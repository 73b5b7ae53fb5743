//! Archives that must not be grafted, and the messages about them.

use fixtures::objects;
use format::Arch;
use object::{Architecture, Endianness};
use surgery::archive::Archive;
use surgery::plan::{Libc, Plan, PlanKind, Reason, Refusal, Remedy, plan, survey};

use crate::samples::{self, musl_with};

fn planned(bytes: &[u8]) -> Result<Plan, Refusal> {
    plan(&Archive::parse(bytes).expect("an archive"), &samples::donor(Arch::X86_64, "test"))
}

/// The message of the refusal, after making sure that there is help with it.
fn refused(bytes: &[u8]) -> String {
    let refusal = planned(bytes).expect_err("a refusal");
    assert!(!matches!(refusal.remedy(), Remedy::Advice(advice) if advice.len() <= 20), "{refusal}");
    refusal.to_string()
}

fn names(plan: &Plan) -> Vec<&str> {
    plan.removed.iter().map(|member| member.name.as_str()).collect()
}

#[test]
fn a_small_musl_is_planned_as_a_large_one() {
    let plan = planned(&musl_with(&[])).expect("a plan");
    assert_eq!(names(&plan), ["lite_malloc.lo", "free.lo", "free.lo", "realloc.lo", "malloc.lo", "calloc.lo"]);
    assert_eq!((plan.insert_before, plan.fork_hook), (6, true));
}

#[test]
fn names_of_members_play_no_part() {
    let named = [("malloc.lo", "isalpha"), ("x", "weak:malloc free hidden:__libc_malloc")];
    let musl = [samples::MUSL[0], samples::MUSL[1], samples::MUSL[2], samples::MUSL[3], samples::MUSL[7]];
    let members: Vec<_> = musl.iter().chain(&named).map(|(name, words)| (*name, objects::object(words))).collect();
    let plan = planned(&samples::archive(&members, true)).expect("a plan");
    assert_eq!((names(&plan), plan.fork_hook), (vec!["x"], false));
}

#[test]
fn old_musls_helpers_go_with_the_allocator() {
    // musl 1.2.0 and older: expand_heap.c, which nothing but malloc.c refers to.
    let plan = planned(&musl_with(&[
        ("malloc.lo", "hidden:__libc_malloc_impl hidden:__malloc_context __malloc_atfork hidden:__libc_realloc needs:__expand_heap"),
        ("expand_heap.lo", "hidden:__expand_heap needs:__deeper"),
        ("deeper.lo", "hidden:__deeper"),
    ]))
    .expect("a plan");
    let orphans: Vec<_> = plan.removed.iter().filter(|member| member.reason == Reason::Orphan).collect();
    assert_eq!(orphans.iter().map(|member| member.name.as_str()).collect::<Vec<_>>(), ["expand_heap.lo", "deeper.lo"]);
}

#[test]
fn what_others_refer_to_is_no_orphan() {
    let malloc = "hidden:__libc_malloc_impl hidden:__malloc_context __malloc_atfork hidden:__libc_realloc needs:__mine";
    for other in ["other needs:__mine", "other weak:hidden:__mine"] {
        let bytes = musl_with(&[("malloc.lo", malloc), ("mine.lo", "hidden:__mine"), ("other.lo", leak(other))]);
        assert!(!names(&planned(&bytes).expect("a plan")).contains(&"mine.lo"), "{other}");
    }
    let visible = musl_with(&[("malloc.lo", malloc), ("mine.lo", "hidden:__mine mine")]);
    assert!(!names(&planned(&visible).expect("a plan")).contains(&"mine.lo"));
}

fn leak(text: &str) -> &'static str {
    Box::leak(text.to_owned().into_boxed_str())
}

#[test]
fn what_the_donor_refers_to_is_no_orphan() {
    let bytes = musl_with(&[
        (
            "malloc.lo",
            "hidden:__libc_malloc_impl hidden:__malloc_context __malloc_atfork hidden:__libc_realloc needs:__mine",
        ),
        ("mine.lo", "hidden:__mine"),
    ]);
    let words = format!("{} needs:__mine", samples::DONOR);
    let donor =
        samples::tuned(&samples::donor_of(Arch::X86_64, &words, &samples::note("test", "1"), &samples::options(&[])));
    let plan = plan(&Archive::parse(&bytes).expect("an archive"), &donor).expect("a plan");
    assert!(!names(&plan).contains(&"mine.lo"));
}

#[test]
fn the_allocators_insides_may_refer_to_each_other() {
    let plan =
        planned(&musl_with(&[("meta.lo", "hidden:__malloc_size_classes needs:__malloc_context")])).expect("a plan");
    let inside = plan.removed.iter().find(|member| member.name == "meta.lo").expect("gone");
    assert_eq!(inside.reason, Reason::Inside);
}

#[test]
fn a_libc_that_has_grown_together_with_its_allocator_is_refused() {
    // Chimera Linux.
    let bytes = musl_with(&[
        (
            "malloc.lo",
            "hidden:__libc_malloc_impl hidden:__malloc_context __malloc_atfork hidden:__libc_realloc hidden:__malloc_init",
        ),
        ("pthread_create.lo", "pthread_create needs:__malloc_init"),
    ]);
    assert_eq!(
        refused(&bytes),
        "member 15 `pthread_create.lo` refers to `__malloc_init`, which the allocator's member 12 `malloc.lo` defines and \
         the donor does not"
    );
    let weakly = musl_with(&[
        (
            "malloc.lo",
            "hidden:__libc_malloc_impl hidden:__malloc_context __malloc_atfork hidden:__libc_realloc hidden:__malloc_init",
        ),
        ("pthread_create.lo", "pthread_create needs:weak:__malloc_init"),
    ]);
    assert!(matches!(planned(&weakly), Err(Refusal::Entangled { .. })));
    let stand_in = musl_with(&[
        (
            "malloc.lo",
            "hidden:__libc_malloc_impl hidden:__malloc_context __malloc_atfork hidden:__libc_realloc hidden:__malloc_init",
        ),
        ("pthread_create.lo", "pthread_create weak:hidden:__malloc_init"),
    ]);
    assert!(refused(&stand_in).contains("has a weak default of `__malloc_init`"));
}

#[test]
fn a_symbol_that_would_be_lost_is_named() {
    let bytes = musl_with(&[("free.lo", "free cfree needs:__libc_free")]);
    assert_eq!(refused(&bytes), "member 7 `free.lo` of the allocator also defines `cfree`, which would be lost");
}

#[test]
fn another_allocator_is_named() {
    let all_lost = "; not in the archive any more: `strdup`, `strndup`, `wcsdup`";
    for (words, allocator, symbol, lost) in [
        ("malloc free calloc mi_malloc", "mimalloc", "mi_malloc", all_lost),
        ("malloc free je_malloc", "jemalloc", "je_malloc", all_lost),
        (
            "malloc free strdup",
            "one that is not known here",
            "strdup",
            "; not in the archive any more: `strndup`, `wcsdup`",
        ),
        ("malloc free _Znwm strdup strndup wcsdup", "one that is not known here", "_Znwm", ""),
    ] {
        let members: Vec<_> = samples::MUSL[..4]
            .iter()
            .chain(&[("memset.lo", "memset"), ("alloc.o", words)])
            .map(|(name, words)| (*name, objects::object(words)))
            .collect();
        assert_eq!(
            refused(&samples::archive(&members, true)),
            format!(
                "member 6 `alloc.o` defines `{symbol}` beside the malloc family: another allocator is in musl's place \
                 already, {allocator}{lost}"
            )
        );
    }
}

#[test]
fn an_archive_without_malloc_is_refused() {
    let members: Vec<_> = samples::MUSL[..5].iter().map(|(name, words)| (*name, objects::object(words))).collect();
    let bytes = samples::archive(&members, true);
    assert_eq!(refused(&bytes), "this libc.a has no allocator: no member defines `malloc`");
    let survey = survey(&Archive::parse(&bytes).expect("an archive"));
    assert_eq!(survey.libc, Libc::Musl);
}

#[test]
fn glibc_and_what_is_no_libc_are_refused() {
    let glibc = samples::bytes(&fixtures::glibc());
    assert!(refused(&glibc).starts_with("this is glibc's libc.a (it defines _IO_2_1_stdin_, "));
    let other = samples::archive(&[("a.o", objects::object("malloc free hidden:__libc"))], true);
    assert_eq!(refused(&other), "this is not musl's libc.a: of the symbols that show musl it defines __libc");
    assert!(refused(b"!<arch>\n").ends_with("defines none"));
}

#[test]
fn machines_must_agree() {
    let musl = |last: Vec<u8>| {
        let mut members: Vec<_> = samples::MUSL.iter().map(|(name, words)| (*name, objects::object(words))).collect();
        members.push(("other.lo", last));
        samples::archive(&members, true)
    };
    let arm = objects::object_for(Architecture::Aarch64, Endianness::Little, "other");
    assert_eq!(refused(&musl(arm)), "member 15 `other.lo` is for aarch64, expected x86_64 as member 1 is");
    let all = |architecture, endianness| {
        let object = |words| objects::object_for(architecture, endianness, words);
        samples::archive(&samples::MUSL.map(|(name, words)| (name, object(words))), true)
    };
    let aarch64 = all(Architecture::Aarch64, Endianness::Little);
    assert_eq!(refused(&aarch64), "the donor is for x86_64, expected aarch64 as the archive is");
    const EXPECTED: &str = "x86_64, aarch64, riscv64, i686, arm";
    let soft = samples::MUSL.map(|(name, words)| {
        let mut object = objects::object_for(Architecture::Riscv64, Endianness::Little, words);
        object[48] &= !6; // e_flags: no float registers
        (name, object)
    });
    let found = "riscv, 64-bit, little-endian, soft-float";
    let machine = format!("this archive is for {found}, expected one of {EXPECTED}");
    assert_eq!(refused(&samples::archive(&soft, true)), machine);
    for (architecture, endianness, found) in [
        (Architecture::Arm, Endianness::Big, "arm, 32-bit, big-endian"),
        // Without attributes, which would name the hard-float ABI.
        (Architecture::Arm, Endianness::Little, "arm, soft-float"),
        (Architecture::X86_64_X32, Endianness::Little, "x86_64, 32-bit, little-endian"),
        (Architecture::PowerPc64, Endianness::Big, "powerpc64, 64-bit, big-endian"),
        (Architecture::Aarch64, Endianness::Big, "aarch64, 64-bit, big-endian"),
        (Architecture::Mips, Endianness::Big, "mips, 32-bit, big-endian"),
        (Architecture::Riscv32, Endianness::Little, "riscv, 32-bit, little-endian, soft-float"),
    ] {
        let bytes = all(architecture, endianness);
        assert_eq!(refused(&bytes), format!("this archive is for {found}, expected one of {EXPECTED}"));
        let survey = survey(&Archive::parse(&bytes).expect("an archive"));
        assert_eq!((survey.libc, survey.arch), (Libc::Musl, None));
    }
}

/// Members that are not objects. The index names `symbol` in one of them.
fn with_bitcode(symbol: &str) -> Vec<u8> {
    // A real object is used while the index is written; then its magic is overwritten.
    let mut members: Vec<_> = samples::MUSL.iter().map(|(name, words)| (*name, objects::object(words))).collect();
    let object = objects::object(symbol);
    members.push(("bitcode.o", object.clone()));
    members.push(("README", b"text".to_vec()));
    let mut bytes = samples::archive(&members, true);
    let at = Archive::parse(&bytes).expect("an archive").members()[14].offset + 60;
    bytes[at..at + 4].copy_from_slice(b"BC\xc0\xde");
    bytes
}

#[test]
fn what_is_no_object_matters_if_it_is_part_of_the_allocator() {
    let plan = planned(&with_bitcode("sinf")).expect("a plan");
    assert_eq!(plan.removed.len(), 6);
    assert_eq!(
        refused(&with_bitcode("valloc")),
        "member 15 `bitcode.o` defines `valloc` by the archive's index, but is not an ELF object with that symbol"
    );
}

/// The verifier believes no index: only an object defines what the donor needs.
#[test]
fn what_the_donor_needs_is_in_an_object() {
    let needy = |bytes: &[u8]| {
        let words = format!("{} needs:sinf", samples::DONOR);
        let donor = samples::donor_of(Arch::X86_64, &words, &samples::note("test", "1"), &samples::options(&[]));
        plan(&Archive::parse(bytes).expect("an archive"), &samples::tuned(&donor)).map(|_| ())
    };
    let message = needy(&with_bitcode("sinf")).expect_err("a refusal").to_string();
    let expected = "names `sinf`, which the donor needs, in member 15 `bitcode.o`, which is not an ELF object";
    assert!(message.contains(expected), "{message}");
    assert!(needy(&musl_with(&[("sinf.lo", "sinf")])).is_ok());
}

#[test]
fn a_damaged_object_is_named_and_a_survey_goes_on() {
    let mut members: Vec<_> = samples::MUSL.iter().map(|(name, words)| (*name, objects::object(words))).collect();
    members[6].1.truncate(100);
    let bytes = samples::archive(&members, false);
    let refusal = planned(&bytes).expect_err("a refusal");
    assert!(refusal.is_damage() && refusal.to_string().starts_with("member 7 `free.lo`: "), "{refusal}");
    assert_eq!(survey(&Archive::parse(&bytes).expect("an archive")).libc, Libc::Musl);
}

#[test]
fn a_donor_must_find_what_it_needs_and_have_what_libc_calls() {
    let bytes = musl_with(&[]);
    let archive = Archive::parse(&bytes).expect("an archive");
    let donor = |words: &str| {
        samples::tuned(&samples::donor_of(Arch::X86_64, words, &samples::note("test", "1"), &samples::options(&[])))
    };
    let needy = donor(&format!("{} needs:__new_thing", samples::DONOR));
    let message = plan(&archive, &needy).expect_err("a refusal").to_string();
    assert_eq!(message, "donor `test` needs `__new_thing`, which nothing in the grafted libc.a would define");
    let insider = donor(&format!("{} needs:__malloc_context", samples::DONOR));
    assert!(matches!(plan(&archive, &insider), Err(Refusal::DonorNeeds { .. })));
    for fine in ["needs:_GLOBAL_OFFSET_TABLE_", "needs:weak:__new_thing", "needs:__aarch64_cas8_acq"] {
        assert!(plan(&archive, &donor(&format!("{} {fine}", samples::DONOR))).is_ok(), "{fine}");
    }
    // Symbols that libc leaves to a different library, like memcpy in zig's.
    let elsewhere = musl_with(&[("user.lo", "user needs:memcpy")]);
    let archive_of_zig = Archive::parse(&elsewhere).expect("an archive");
    let copies = donor(&format!("{} needs:memcpy", samples::DONOR));
    assert!(plan(&archive_of_zig, &copies).is_ok() && plan(&archive, &copies).is_err());
    let hookless = donor(&samples::DONOR.replace("hidden:__malloc_atfork", ""));
    assert!(matches!(plan(&archive, &hookless), Err(Refusal::DonorLacks { .. })));
    let partial = donor(&samples::DONOR.replace("weak:calloc", ""));
    assert!(matches!(plan(&archive, &partial), Err(Refusal::Lost { .. })));
    let sprawling = donor(&format!("{} strdup", samples::DONOR));
    assert_eq!(
        plan(&archive, &sprawling).expect_err("a refusal").to_string(),
        "member 5 `strdup.lo` is not part of the allocator that goes, but defines `strdup`, as the donor does"
    );
}

#[test]
fn a_graft_beside_the_old_allocator_is_refused() {
    let stock = musl_with(&[]);
    let mut members: Vec<_> = samples::MUSL.iter().map(|(name, words)| (*name, objects::object(words))).collect();
    members.push(("mine.o", samples::donor(Arch::X86_64, "mine")));
    let doubled = samples::archive(&members, true);
    assert!(matches!(planned(&doubled), Err(Refusal::Collision { .. })));
    members.push(("mine.o", samples::donor(Arch::X86_64, "mine")));
    let twice = samples::archive(&members, true);
    assert_eq!(refused(&twice), "members 15 and 16 both carry a graft, expected one");
    assert!(matches!(planned(&stock).map(|plan| plan.kind), Ok(PlanKind::Graft)));
}

#[test]
fn a_graft_with_a_broken_note_is_refused() {
    let archive_bytes = musl_with(&[]);
    let archive = Archive::parse(&archive_bytes).expect("an archive");
    let mut graft = planned(&archive_bytes).expect("a plan").apply(&archive);
    let at = graft.windows(10).position(|window| window == b"allograft\0").expect("a note");
    graft[at] = b'A';
    assert!(refused(&graft).contains("carries a graft whose note is malformed: "));
}

/// A graft's index is made from stock's: a wrong one would stay wrong, and the verifier would find the graft unsound.
#[test]
fn an_index_that_is_not_that_of_the_members_is_refused() {
    let stock = musl_with(&[]);
    let names = stock.windows(7).position(|window| window == b"strdup\0").expect("an index");
    let mut wrong = stock.clone();
    wrong[names] = b'x';
    let message = refused(&wrong);
    assert!(message.contains("index lacks `strdup`, which member 5 `strdup.lo` defines"), "{message}");
    // The index of the same members, one of which defines less.
    let members: Vec<_> = samples::MUSL.iter().map(|(name, words)| (*name, objects::object(words))).collect();
    let mut lesser = samples::archive(&members, true);
    let symbols = lesser.windows(6).rposition(|window| window == b"strdup").expect("a symbol's name");
    lesser[symbols..symbols + 6].copy_from_slice(b"strdux");
    assert!(matches!(planned(&lesser), Err(Refusal::Index { .. })));
    assert!(matches!(planned(&samples::archive(&members, false)), Err(Refusal::Index { .. })));
    assert!(planned(&stock).is_ok());
}

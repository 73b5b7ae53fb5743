//! Plans for string functions: on real archives, against an expectation of its own, and beside an allocator.

use std::collections::{BTreeMap, BTreeSet};

use format::{Arch, DonorKind};
use object::read::archive::ArchiveFile;
use object::{Object as _, ObjectSymbol as _};
use surgery::archive::Archive;
use surgery::donor::DonorObject;
use surgery::plan::{Plan, PlanKind, Reason, Refusal, Remedy, carried, plan};

use crate::samples::{self, musl_with};

/// musl's own files of the functions (src/string/, and the architectures' below it) have these stems, in every archive.
const STEMS: [&str; 36] = [
    "memcpy",
    "memmove",
    "memset",
    "memcmp",
    "bcmp",
    "memchr",
    "memrchr",
    "strlen",
    "strnlen",
    "strchr",
    "strchrnul",
    "strrchr",
    "strcmp",
    "strncmp",
    "stpcpy",
    "strcpy",
    "stpncpy",
    "strncpy",
    "strcat",
    "strncat",
    "memccpy",
    "strcspn",
    "strspn",
    "strpbrk",
    "strcasecmp",
    "strncasecmp",
    "strcasestr",
    "wcslen",
    "wcsnlen",
    "wcschr",
    "wcscmp",
    "wmemchr",
    "wmemcmp",
    "wmemcpy",
    "wmemmove",
    "wmemset",
];

fn grafted(bytes: &[u8], donor: &[u8]) -> (Plan, Vec<u8>) {
    let archive = Archive::parse(bytes).expect("an archive");
    let plan = plan(&archive, donor).unwrap_or_else(|refusal| panic!("{refusal}"));
    let graft = plan.apply(&archive);
    (plan, graft)
}

fn refused(bytes: &[u8], donor: &[u8]) -> Refusal {
    let refusal = plan(&Archive::parse(bytes).expect("an archive"), donor).expect_err("a refusal");
    assert!(!matches!(refusal.remedy(), Remedy::Advice(advice) if advice.len() <= 20), "{refusal}");
    refusal
}

/// The number of shared definitions of each symbol, and the undefined symbols, by the `object` crate's own readers.
fn symbols(bytes: &[u8]) -> (BTreeMap<String, usize>, BTreeSet<String>) {
    let (mut defined, mut wanted) = (BTreeMap::new(), BTreeSet::new());
    for member in ArchiveFile::parse(bytes).expect("an archive").members() {
        let data = member.expect("a member").data(bytes).expect("its content");
        for symbol in object::File::parse(data).expect("an object").symbols().filter(|symbol| !symbol.is_local()) {
            let name = symbol.name().expect("a name").to_owned();
            if symbol.is_undefined() {
                wanted.insert(name);
            } else {
                *defined.entry(name).or_default() += 1;
            }
        }
    }
    (defined, wanted)
}

#[test]
fn the_functions_own_members_go_and_nothing_is_lost() {
    check_the_functions_own_members_go_and_nothing_is_lost(samples::real_musl());
}

#[test]
#[ignore = "zig-musls: takes zig's musl for three architectures"]
fn the_functions_own_members_go_and_nothing_is_lost_in_zigs() {
    check_the_functions_own_members_go_and_nothing_is_lost(samples::zig_musl());
}

fn check_the_functions_own_members_go_and_nothing_is_lost(musl: Vec<samples::Musl>) {
    for (what, arch, path) in musl {
        let stock = samples::bytes(&path);
        let (plan, graft) = grafted(&stock, &samples::strings(arch, "test"));
        // By name, which plays no part in the plan: there is no other member of one of these names.
        let archive = Archive::parse(&stock).expect("an archive");
        let stem =
            |name: &str| name.rsplit('/').next().unwrap_or(name).split('.').next().unwrap_or_default().to_owned();
        let expected: Vec<usize> = archive
            .members()
            .iter()
            .filter(|member| STEMS.contains(&stem(&member.display_name()).as_str()))
            .map(|member| member.ordinal)
            .collect();
        assert!(expected.len() == 36 || (what.starts_with("zig") && expected.len() == 29), "{what}: {expected:?}");
        assert_eq!(plan.removed.iter().map(|member| member.ordinal).collect::<Vec<_>>(), expected, "{what}");
        assert!(plan.removed.iter().all(|member| member.reason == Reason::Strings), "{what}");
        assert_eq!((plan.kind, plan.donor_kind, plan.arch), (PlanKind::Graft, DonorKind::Strings, arch), "{what}");

        let ((before, wanted), (after, wanted_after)) = (symbols(&stock), symbols(&graft));
        let lost: Vec<_> = before.keys().filter(|name| !after.contains_key(*name)).collect();
        assert!(lost.is_empty(), "{what}: {lost:?}");
        let unmet = wanted_after.iter().filter(|name| before.contains_key(*name) && !after.contains_key(*name));
        assert_eq!(unmet.count(), 0, "{what}");
        for name in
            ["strcasecmp_l", "__strncasecmp_l", "__strchrnul", "__stpcpy", "__stpncpy", "__memrchr", "memcpy", "strlen"]
        {
            assert_eq!(after.get(name), Some(&1), "{what}: {name}");
        }
        assert!(wanted.contains("__strchrnul") && wanted_after.contains("__strchrnul"), "{what}");
    }
}

/// musl's file of strcasecmp defines the function with a locale, too: all of them go, or none.
#[test]
fn a_name_beside_strcasecmp_that_the_donor_lacks_keeps_it() {
    let (_, arch, path) = samples::real_musl().remove(0);
    let words = samples::STRINGS.replace("weak:strcasecmp_l ", "");
    let donor = samples::tuned(&samples::strings_of(arch, &words, "test"));
    let refusal = refused(&samples::bytes(&path), &donor);
    assert!(matches!(&refusal, Refusal::Lost { symbol, .. } if symbol == "strcasecmp_l"), "{refusal}");
}

#[test]
fn an_entry_into_memcpy_that_the_donor_lacks_keeps_memcpy() {
    let (_, arch, path) = samples::real_musl().remove(0);
    assert_eq!(arch, Arch::X86_64);
    let words = samples::STRINGS.replace("weak:hidden:__memcpy_fwd weak:hidden:__memcpy_fwd_alias_1", "");
    let donor = |words: &str| samples::tuned(&samples::strings_of(arch, words, "test"));
    // memmove goes too, so that no member needs `__memcpy_fwd` any more.
    let (_, graft) = grafted(&samples::bytes(&path), &donor(&words));
    assert!(!symbols(&graft).0.contains_key("__memcpy_fwd"));
    let refusal = refused(&samples::bytes(&path), &donor(&words.replace("weak:memmove", "")));
    assert!(matches!(&refusal, Refusal::Entangled { symbol, .. } if symbol == "__memcpy_fwd"), "{refusal}");
}

#[test]
fn both_steps_come_to_the_same_bytes_in_either_order() {
    check_both_steps_come_to_the_same_bytes_in_either_order(samples::real_musl());
}

#[test]
#[ignore = "zig-musls: takes zig's musl for three architectures"]
fn both_steps_come_to_the_same_bytes_in_either_order_in_zigs() {
    check_both_steps_come_to_the_same_bytes_in_either_order(samples::zig_musl());
}

fn check_both_steps_come_to_the_same_bytes_in_either_order(musl: Vec<samples::Musl>) {
    for (what, arch, path) in musl {
        let stock = samples::bytes(&path);
        let (malloc, strings) = (samples::donor(arch, "test"), samples::strings(arch, "test"));
        let (first, one) = grafted(&stock, &malloc);
        let (second, both) = grafted(&one, &strings);
        let (direct, other) = grafted(&stock, &strings);
        assert!(grafted(&other, &malloc).1 == both, "{what}");

        // The second step's ordinals can be converted to stock's.
        let origins: Vec<_> = second.removed.iter().map(|member| first.origin(member.ordinal)).collect();
        let expected: Vec<_> = direct.removed.iter().map(|member| Some(member.ordinal)).collect();
        assert_eq!(origins, expected, "{what}");

        let (again, same) = grafted(&both, &strings);
        assert!(again.kind == PlanKind::Unchanged && same == both, "{what}");
        assert!(grafted(&both, &malloc).0.kind == PlanKind::Unchanged, "{what}");
        let (replaced, new) = grafted(&both, &samples::strings(arch, "new"));
        assert!(matches!(&replaced.kind, PlanKind::Replace { previous } if previous.donor == "test"), "{what}");
        assert!(new == grafted(&one, &samples::strings(arch, "new")).1, "{what}");

        let notes = carried(&Archive::parse(&new).expect("an archive")).expect("notes");
        assert_eq!(notes.map(|note| note.map(|note| note.donor)), [Some("test".to_owned()), Some("new".to_owned())]);
    }
}

#[test]
fn a_libc_whose_string_functions_do_more_is_refused() {
    let donor = samples::strings(Arch::X86_64, "test");
    let lost = refused(&musl_with(&[("memset.lo", "memset explicit_bzero")]), &donor);
    let message = "member 8 `memset.lo` of the string functions also defines `explicit_bzero`, which would be lost";
    assert_eq!(lost.to_string(), message);
    let entangled = musl_with(&[("memset.lo", "memset hidden:__fill"), ("user.lo", "user needs:__fill")]);
    assert!(refused(&entangled, &donor).to_string().contains("the string functions' member 8 `memset.lo` defines"));
    let none = musl_with(&[("memset.lo", "other")]);
    assert!(matches!(refused(&none, &donor), Refusal::NoStrings));
}

#[test]
fn a_compilers_runtime_library_in_the_archive_stays() {
    let donor = samples::strings(Arch::X86_64, "test");
    let runtime = |words| musl_with(&[("compiler_rt.o", words)]);
    let (plan, graft) = grafted(&runtime("__udivti3 weak:memset weak:memcpy"), &donor);
    assert_eq!(plan.removed.iter().map(|member| member.name.as_str()).collect::<Vec<_>>(), ["memset.lo"]);
    assert_eq!(grafted(&graft, &donor).0.kind, PlanKind::Unchanged);
    // A strong definition would override the donor's, so its member cannot stay; nor can it go.
    assert!(matches!(refused(&runtime("__udivti3 memset weak:memcpy"), &donor), Refusal::Lost { .. }));
}

#[test]
fn a_donor_that_is_not_weak_is_refused() {
    let strong = samples::strings_of(Arch::X86_64, &samples::STRINGS.replace("weak:strlen", "strlen"), "test");
    let refusal = refused(&musl_with(&[]), &samples::tuned(&strong));
    assert!(matches!(&refusal, Refusal::Strong { symbol, .. } if symbol == "strlen"), "{refusal}");
}

#[test]
fn a_donor_of_strings_has_a_note_of_its_own_and_no_options() {
    let object = samples::strings_of(Arch::X86_64, samples::STRINGS, "test");
    let donor = DonorObject::parse(&object).expect("a donor");
    assert_eq!((donor.kind(), donor.options().len()), (DonorKind::Strings, 0));
    let tuned = donor.tuned(&[], "0.2.0").expect("tuned");
    let again = DonorObject::parse(&tuned).expect("a donor");
    assert_eq!((again.checksum(), again.note().allograft.as_str()), (donor.checksum(), "0.2.0"));
    assert!(donor.tuned(&[("x".to_owned(), 1)], "0.2.0").is_err());
    // The type that belongs to the other section.
    let at = object.windows(10).position(|window| window == b"allograft\0").expect("a note");
    let mut wrong = object.clone();
    wrong[at - 4] = 1;
    let message = DonorObject::parse(&wrong).expect_err("an error").to_string();
    assert_eq!(message, "the note `.note.allograft.strings` has the type 1, expected 2");
}

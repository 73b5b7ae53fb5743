//! Plans for real archives, against an expectation computed with another reader.

use std::collections::BTreeSet;
use std::path::PathBuf;

use object::read::archive::ArchiveFile;
use object::{Object as _, ObjectSymbol as _};
use surgery::archive::Archive;
use surgery::plan::{Libc, PlanKind, Reason, carried, plan, survey};

use crate::samples;

const FAMILY: [&str; 17] = [
    "malloc",
    "calloc",
    "realloc",
    "free",
    "aligned_alloc",
    "memalign",
    "posix_memalign",
    "valloc",
    "pvalloc",
    "reallocarray",
    "malloc_usable_size",
    "__libc_malloc",
    "__libc_calloc",
    "__libc_realloc",
    "__libc_free",
    "__libc_malloc_impl",
    "__malloc_donate",
];

/// Ordinals of all members with their shared definitions, by the `object` crate's own archive and object readers.
fn listing(bytes: &[u8]) -> Vec<(Vec<u8>, Vec<String>)> {
    let archive = ArchiveFile::parse(bytes).expect("an archive");
    archive
        .members()
        .map(|member| {
            let data = member.expect("a member").data(bytes).expect("its content");
            let object = object::File::parse(data).expect("an object");
            let symbols = object.symbols().filter(|symbol| !symbol.is_local() && !symbol.is_undefined());
            (data.to_vec(), symbols.map(|symbol| symbol.name().expect("a name").to_owned()).collect())
        })
        .collect()
}

fn definers(listing: &[(Vec<u8>, Vec<String>)], names: &[&str]) -> BTreeSet<usize> {
    let defines = |symbols: &[String]| symbols.iter().any(|symbol| names.contains(&symbol.as_str()));
    listing.iter().enumerate().filter(|(_, (_, symbols))| defines(symbols)).map(|(position, _)| position + 1).collect()
}

#[test]
fn the_allocator_goes_and_everything_else_stays() {
    check_the_allocator_goes_and_everything_else_stays(samples::real_musl());
}

#[test]
#[ignore = "zig-musls: takes zig's musl for three architectures"]
fn the_allocator_goes_and_everything_else_stays_in_zigs() {
    check_the_allocator_goes_and_everything_else_stays(samples::zig_musl());
}

fn check_the_allocator_goes_and_everything_else_stays(musl: Vec<samples::Musl>) {
    for (what, arch, path) in musl {
        let stock = samples::bytes(&path);
        let listing = listing(&stock);
        let archive = Archive::parse(&stock).expect("an archive");
        let donor = samples::donor(arch, "test");
        let plan = plan(&archive, &donor).unwrap_or_else(|refusal| panic!("{what}: {refusal}"));
        assert_eq!((plan.kind.clone(), plan.arch, plan.fork_hook), (PlanKind::Graft, arch, true), "{what}");

        let expected = definers(&listing, &FAMILY);
        assert!(expected.len() >= 14, "{what}: {expected:?}");
        let removed: BTreeSet<usize> = plan.removed.iter().map(|member| member.ordinal).collect();
        assert_eq!(removed, expected, "{what}");
        assert!(plan.removed.iter().all(|member| member.reason == Reason::Allocator), "{what}");
        let stays = definers(
            &listing,
            &["__malloc_replaced", "fork", "strdup", "strndup", "wcsdup", "__aligned_alloc_replaced"],
        );
        assert!(stays.len() >= 5 && stays.is_disjoint(&removed), "{what}");

        let graft = plan.apply(&archive);
        let after = self::listing(&graft);
        let mut want: Vec<_> = listing.clone();
        want[plan.insert_before - 1] = (donor.clone(), plan.provides.clone());
        let want: Vec<_> = want
            .into_iter()
            .enumerate()
            .filter(|(position, _)| position + 1 == plan.insert_before || !removed.contains(&(position + 1)))
            .map(|(_, member)| member)
            .collect();
        assert_eq!(after.len(), want.len(), "{what}");
        assert!(after == want, "{what}: a member has changed");
        index_agrees(&what, &graft, &after);
    }
}

/// Each entry of the index points to a member that defines the symbol, and none is missing.
fn index_agrees(what: &str, bytes: &[u8], listing: &[(Vec<u8>, Vec<String>)]) {
    let archive = ArchiveFile::parse(bytes).expect("an archive");
    let symbols = archive.symbols().expect("a readable index").expect("an index");
    let mut indexed = Vec::new();
    for symbol in symbols {
        let symbol = symbol.expect("an entry");
        let data = archive.member(symbol.offset()).expect("a member").data(bytes).expect("its content");
        let name = String::from_utf8(symbol.name().to_vec()).expect("a name");
        indexed.push((data.to_vec(), name));
    }
    let defined: Vec<_> =
        listing.iter().flat_map(|(data, names)| names.iter().map(move |name| (data.clone(), name.clone()))).collect();
    let sorted = |mut entries: Vec<(Vec<u8>, String)>| {
        entries.sort();
        entries
    };
    assert_eq!(indexed.len(), defined.len(), "{what}");
    assert!(sorted(indexed) == sorted(defined), "{what}: the index is not what the members define");
}

#[test]
fn replacing_is_grafting_stock_and_doing_it_again_changes_nothing() {
    check_replacing_is_grafting_stock_and_doing_it_again_changes_nothing(samples::real_musl());
}

#[test]
#[ignore = "zig-musls: takes zig's musl for three architectures"]
fn replacing_is_grafting_stock_and_doing_it_again_changes_nothing_in_zigs() {
    check_replacing_is_grafting_stock_and_doing_it_again_changes_nothing(samples::zig_musl());
}

fn check_replacing_is_grafting_stock_and_doing_it_again_changes_nothing(musl: Vec<samples::Musl>) {
    for (what, arch, path) in musl {
        let stock = samples::bytes(&path);
        let archive = Archive::parse(&stock).expect("an archive");
        let (first, second) = (samples::donor(arch, "first"), samples::donor(arch, "second"));
        let graft = plan(&archive, &first).expect("a plan").apply(&archive);
        let direct = plan(&archive, &second).expect("a plan").apply(&archive);
        assert_ne!(graft, direct, "{what}");

        let grafted = Archive::parse(&graft).expect("an archive");
        let again = plan(&grafted, &first).expect("a plan");
        assert_eq!((&again.kind, again.removed.len()), (&PlanKind::Unchanged, 0), "{what}");
        assert!(again.apply(&grafted) == graft, "{what}");

        let replaced = plan(&grafted, &second).expect("a plan");
        let PlanKind::Replace { previous } = &replaced.kind else { panic!("{what}: {:?}", replaced.kind) };
        assert_eq!(previous.donor, "first", "{what}");
        assert_eq!(replaced.removed.len(), 1, "{what}");
        assert!(replaced.apply(&grafted) == direct, "{what}: replacing differs from grafting stock");

        let survey = survey(&grafted);
        assert_eq!((survey.libc, survey.arch), (Libc::Musl, Some(arch)), "{what}");
        let [malloc, _] = carried(&grafted).expect("notes");
        assert_eq!(malloc.map(|note| note.donor), Some("first".to_owned()), "{what}");
    }
}

#[test]
fn a_survey_tells_the_libcs_apart() {
    check_a_survey_tells_the_libcs_apart(samples::real_archives());
}

#[test]
#[ignore = "zig-musls: takes zig's musl for three architectures"]
fn a_survey_tells_the_libcs_apart_in_zigs() {
    check_a_survey_tells_the_libcs_apart(samples::zig_archives());
}

fn check_a_survey_tells_the_libcs_apart(archives: Vec<(String, PathBuf)>) {
    for (what, path) in archives {
        let bytes = samples::bytes(&path);
        let archive = Archive::parse(&bytes).expect("an archive");
        let expected = match what.as_str() {
            "glibc" => Libc::Glibc,
            name if name.contains("compiler-rt") => Libc::Other,
            _ => Libc::Musl,
        };
        assert_eq!(survey(&archive).libc, expected, "{what}");
        assert_eq!(carried(&archive).expect("notes"), [None, None], "{what}");
    }
}

//! `verify::compare`: a good graft passes, and each way to break one fails the check that is there for it.

use fixtures::sample::{self, Recipe};
use inspector::verify::{Check, StockArchive, compare, explain};
use zigcc::Arch;

fn checks(arch: Arch, recipe: &Recipe) -> Vec<Check> {
    let (graft, stock) = (sample::graft(arch, recipe), sample::stock(arch));
    let checks = compare(&graft, Some(&stock)).unwrap();
    let passes = |checks: &[Check]| !checks.is_empty() && checks.iter().all(|check| check.ok);
    let again = StockArchive::read(&stock).unwrap().compare(&graft).unwrap().checks;
    assert_eq!(passes(&again), passes(&checks), "{again:?}");
    checks
}

/// The names of the checks that fail, and what one of them says.
fn failing(recipe: &Recipe) -> (Vec<String>, String) {
    let failed: Vec<Check> = checks(Arch::X86_64, recipe).into_iter().filter(|check| !check.ok).collect();
    let said = failed.iter().map(|check| check.detail.as_str()).collect::<Vec<_>>().join("\n");
    (failed.into_iter().map(|check| check.name).collect(), said)
}

fn fails(recipe: &Recipe, names: &[&str], names_it: &str) {
    let (failed, said) = failing(recipe);
    assert_eq!(failed, names, "{said}");
    assert!(said.contains(names_it), "{said}");
}

#[test]
fn a_good_graft_passes_every_check() {
    for arch in fixtures::DEBIAN {
        let checks = checks(arch, &Recipe { patience: Some(3), ..Recipe::default() });
        let failed: Vec<_> = checks.iter().filter(|check| !check.ok).collect();
        assert!(failed.is_empty(), "{failed:?}");
        let names: Vec<&str> = checks.iter().map(|check| check.name.as_str()).collect();
        let expected = [
            "index",
            "architecture",
            "note",
            "object-checksum",
            "options",
            "exports",
            "donor-needs",
            "one-provider",
            "no-trace",
            "fork-hook",
            "members-kept",
            "removed-members",
            "symbols-kept",
            "differences",
        ];
        assert_eq!(names, expected);
        let given = checks.iter().find(|check| check.name == "symbols-kept").unwrap();
        assert!(given.detail.contains("__malloc_context"), "{given:?}");
        let without_stock = compare(&sample::graft(arch, &Recipe::default()), None).unwrap();
        assert!(without_stock.len() == 10 && without_stock.iter().all(|check| check.ok), "{without_stock:?}");
    }
}

#[test]
fn every_difference_from_stock_has_a_reason() {
    let (graft, stock) = (sample::graft(Arch::X86_64, &Recipe::default()), sample::stock(Arch::X86_64));
    let comparison = explain(&graft, Some(&stock)).unwrap();
    let of = |symbol: &str| comparison.differences.iter().find(|one| one.symbol == symbol).unwrap();
    let free = of("free");
    let (before, after) = (free.before.as_ref().unwrap(), free.after.as_ref().unwrap());
    assert!(!before.weak && after.weak && after.member.contains("allograft.o"), "{free:?}");
    assert!(free.why.unwrap().contains("may still bring its own"));
    let pvalloc = of("pvalloc");
    assert!(pvalloc.before.is_none() && pvalloc.why.unwrap().contains("musl does not"), "{pvalloc:?}");
    let context = of("__malloc_context");
    assert!(context.after.is_none() && context.why.unwrap().contains("inside"), "{context:?}");
    assert!(comparison.differences.iter().all(|one| one.why.is_some()));
    // Functions that are still stock's do not differ.
    assert!(comparison.differences.iter().all(|one| one.symbol != "strlen"));
    let same = explain(&graft, None).unwrap();
    assert!(same.differences.is_empty());
    let lost = Recipe { also_remove: &["wcsdup.lo"], ..Recipe::default() };
    let graft = sample::graft(Arch::X86_64, &lost);
    let comparison = explain(&graft, Some(&stock)).unwrap();
    let unexplained: Vec<_> = comparison.differences.iter().filter(|one| one.why.is_none()).collect();
    assert!(unexplained.len() == 1 && unexplained[0].symbol == "wcsdup", "{unexplained:?}");
}

#[test]
fn stock_is_no_graft() {
    let checks = compare(&sample::stock(Arch::X86_64), None).unwrap();
    let failed: Vec<_> = checks.iter().filter(|check| !check.ok).map(|check| check.name.as_str()).collect();
    assert_eq!(failed, ["note"]);
    assert_eq!(checks[0].name, "index");
}

#[test]
fn the_index_names_what_is_there() {
    fails(&Recipe { unindexed: &["strlen"], ..Recipe::default() }, &["index"], "`strlen` of member");
    let mut graft = sample::graft(Arch::X86_64, &Recipe::default());
    // The first entry's offset, one byte on.
    graft[8 + 60 + 4 + 3] ^= 1;
    let check = compare(&graft, None).unwrap().remove(0);
    assert!(!check.ok && check.detail.contains("points at no member"), "{check:?}");
}

#[test]
fn a_donor_whose_bytes_changed_is_found_out() {
    fails(&Recipe { touch: true, ..Recipe::default() }, &["object-checksum"], "its note says sha256:");
}

#[test]
fn options_are_in_range_and_in_the_note() {
    fails(
        &Recipe { patience: Some(11), ..Recipe::default() },
        &["options"],
        "`patience` is 11, and its range is 0 to 10",
    );
    let noted = Recipe { noted: Some("patience=4"), ..Recipe::default() };
    fails(&noted, &["options"], "the block has nothing set, and the note says patience=4");
    let noted = Recipe { noted: Some(""), patience: Some(4), ..Recipe::default() };
    fails(&noted, &["options"], "the block has patience=4 set, and the note says nothing");
}

#[test]
fn a_fork_hook_has_to_be_there_and_to_do_something() {
    let (failed, said) = failing(&Recipe { define: Some("WITHOUT_HOOK"), ..Recipe::default() });
    assert_eq!(failed, ["exports", "fork-hook"], "{said}");
    fails(&Recipe { define: Some("EMPTY_HOOK"), ..Recipe::default() }, &["fork-hook"], "does nothing");
}

#[test]
fn a_donor_that_exports_or_needs_more_is_found_out() {
    fails(
        &Recipe { define: Some("WITH_STRDUP"), ..Recipe::default() },
        &["exports", "differences"],
        "`strdup` is defined too",
    );
    let (failed, said) = failing(&Recipe { define: Some("WITH_NEED"), ..Recipe::default() });
    assert_eq!(failed, ["donor-needs"]);
    assert!(said.contains("`nobody_has_this`"), "{said}");
}

#[test]
fn what_hand_made_recipes_lose_is_found_out() {
    let (failed, said) = failing(&Recipe { also_remove: &["wcsdup.lo"], ..Recipe::default() });
    assert_eq!(failed, ["removed-members", "symbols-kept", "differences"], "{said}");
    assert!(said.contains("stock defined `wcsdup`, which is no longer defined"), "{said}");
}

#[test]
fn what_is_left_of_the_old_allocator_is_found_out() {
    let (failed, said) = failing(&Recipe { keep: &["malloc.lo"], ..Recipe::default() });
    assert_eq!(failed, ["no-trace"], "{said}");
    assert!(said.contains("still defines `__malloc_context`"), "{said}");
    let (failed, said) = failing(&Recipe { keep: &["malloc_usable_size.lo"], ..Recipe::default() });
    assert_eq!(failed, ["one-provider", "no-trace", "removed-members", "symbols-kept", "differences"], "{said}");
    assert!(said.contains("`malloc_usable_size` is defined by members"), "{said}");
    assert!(said.contains("needs `__malloc_context`, which is no longer defined"), "{said}");
}

#[test]
fn members_that_changed_or_moved_are_found_out() {
    let mut graft = sample::graft(Arch::X86_64, &Recipe::default());
    let stock = sample::stock(Arch::X86_64);
    // In the last member, the permissions.
    let last = graft.windows(2).rposition(|window| window == b"`\n").unwrap();
    graft[last - 12] ^= 1;
    let failed: Vec<Check> = compare(&graft, Some(&stock)).unwrap().into_iter().filter(|check| !check.ok).collect();
    assert_eq!(failed[0].name, "members-kept", "{failed:?}");
    assert!(failed[0].detail.contains("is not stock's next member"), "{failed:?}");
}

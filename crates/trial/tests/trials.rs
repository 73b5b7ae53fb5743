//! Programs are linked and run, and failures are reported.

use std::fs;
use std::path::{Path, PathBuf};

use fixtures::Arch;
use fixtures::sample::{self, Recipe};
use trial::{Emulator, TrialOptions, TrialOutcome, trial};

/// A folder with a space in its name, and in it a graft beside start files.
struct Host {
    _folder: tempfile::TempDir,
    libc: PathBuf,
}

impl Host {
    fn new(arch: Arch, recipe: &Recipe, start_files: &[&str]) -> Self {
        let folder = tempfile::Builder::new().prefix("two words ").tempdir().unwrap();
        let libc = folder.path().join("libc.a");
        fs::write(&libc, sample::graft(arch, recipe)).unwrap();
        for name in start_files {
            fs::copy(fixtures::debian_musl(arch).libdir.join(name), folder.path().join(name)).unwrap();
        }
        Host { _folder: folder, libc }
    }
}

fn lld() -> PathBuf {
    fixtures::lld_folder().join("ld.lld")
}

/// Options for one program, with which every way to link is tried.
fn only(name: &str, linkers: &[PathBuf]) -> TrialOptions<'static> {
    TrialOptions { only: vec![name.to_owned()], ..options(linkers) }
}

/// Short loops: the findings of the programs have tests of their own.
fn options(linkers: &[PathBuf]) -> TrialOptions<'static> {
    TrialOptions { linkers: Some(linkers.to_vec()), scale_percent: Some(1), ..TrialOptions::default() }
}

fn check<'o>(outcome: &'o TrialOutcome, name: &str) -> &'o inspector::verify::Check {
    outcome.checks.iter().find(|check| check.name == name).unwrap_or_else(|| panic!("no {name}: {outcome:?}"))
}

#[test]
fn programs_are_linked_and_run_in_both_ways() {
    let host = Host::new(Arch::X86_64, &Recipe::default(), &["crt1.o", "rcrt1.o", "crti.o", "crtn.o"]);
    let outcome = trial(&host.libc, inspector::Arch::X86_64, &options(&[lld()]));
    let expected: Vec<String> = conformance::programs()
        .iter()
        .map(|program| format!("{} (ld.lld, static)", program.name))
        .chain(["family", "libc_callers", "threads"].map(|name| format!("{name} (ld.lld, static-pie)")))
        .chain(["wcsdup named first", "strdup named first"].map(|name| format!("{name} (ld.lld, static)")))
        .collect();
    for name in &expected {
        check(&outcome, name);
    }
    assert!(outcome.not_run.is_empty(), "{outcome:?}");
    let family = check(&outcome, "family (ld.lld, static-pie)");
    assert!(family.ok && family.detail.starts_with("linked, ran in "), "{family:?}");
    assert!(check(&outcome, "wcsdup, strdup, strndup named last (ld.lld, static)").ok);
}

#[test]
fn without_start_files_static_programs_are_still_run() {
    let host = Host::new(Arch::X86_64, &Recipe::default(), &[]);
    let outcome = trial(&host.libc, inspector::Arch::X86_64, &only("family", &[lld()]));
    assert!(check(&outcome, "family (ld.lld, static)").ok, "{outcome:?}");
    let left_out: Vec<&str> = outcome.not_run.iter().map(|not_run| not_run.name.as_str()).collect();
    assert_eq!(left_out, ["ld.lld, static-pie"]);
    assert!(outcome.not_run[0].reason.contains("rcrt1.o"));
}

#[test]
fn a_lost_function_is_told_with_what_the_linker_says() {
    let recipe = Recipe { also_remove: &["wcsdup.lo"], ..Recipe::default() };
    let host = Host::new(Arch::X86_64, &recipe, &["crt1.o", "crti.o", "crtn.o"]);
    let stock = Some(fixtures::debian_musl(Arch::X86_64).libc);
    let with_stock = TrialOptions { stock, ..only("libc_callers", &[lld()]) };
    let outcome = trial(&host.libc, inspector::Arch::X86_64, &with_stock);
    let failed = check(&outcome, "wcsdup named first (ld.lld, static)");
    assert!(
        !failed.ok && failed.detail.contains("wcsdup") && failed.detail.contains("on stock it works"),
        "{failed:?}"
    );
}

#[test]
fn what_stock_cannot_do_either_is_no_fault_of_the_graft() {
    let recipe = Recipe { also_remove: &["wcsdup.lo"], ..Recipe::default() };
    let host = Host::new(Arch::X86_64, &recipe, &[]);
    let with_stock = TrialOptions { stock: Some(host.libc.clone()), ..only("libc_callers", &[lld()]) };
    let outcome = trial(&host.libc, inspector::Arch::X86_64, &with_stock);
    let left_out = outcome.not_run.iter().find(|not_run| not_run.name.starts_with("wcsdup named first")).unwrap();
    assert!(left_out.reason.contains("stock fails too"), "{left_out:?}");
}

#[test]
#[ignore = "aarch64: links that architecture's conformance programs"]
fn a_foreign_architecture_is_linked_and_says_what_it_lacks_to_run() {
    let host = Host::new(Arch::Aarch64, &Recipe::default(), &["crt1.o", "rcrt1.o", "crti.o", "crtn.o"]);
    let never = TrialOptions { emulator: Emulator::Never, ..only("family", &[lld()]) };
    let outcome = trial(&host.libc, inspector::Arch::Aarch64, &never);
    let family = check(&outcome, "family (ld.lld, static)");
    assert_eq!((family.ok, family.detail.as_str()), (true, "linked; not run"));
    assert_eq!(outcome.not_run[0].name, "run programs");
    assert!(outcome.not_run[0].reason.contains("aarch64"));
    if let Some(emulator) = fixtures::emulator(Arch::Aarch64) {
        let emulated = TrialOptions { emulator: Emulator::Program(emulator), ..only("family", &[lld()]) };
        let outcome = trial(&host.libc, inspector::Arch::Aarch64, &emulated);
        let family = check(&outcome, "family (ld.lld, static)");
        assert!(family.ok && family.detail.starts_with("linked, ran in "), "{family:?}");
    }
}

#[test]
fn without_a_linker_nothing_is_run_and_it_is_said() {
    let host = Host::new(Arch::X86_64, &Recipe::default(), &[]);
    let outcome = trial(&host.libc, inspector::Arch::X86_64, &options(&[]));
    assert!(outcome.checks.is_empty());
    assert!(outcome.not_run[0].reason.contains("no linker for x86_64"), "{outcome:?}");
    let outcome = trial(&host.libc, inspector::Arch::PowerPc64, &options(&[lld()]));
    assert!(outcome.not_run[0].reason.contains("no conformance programs for powerpc64"), "{outcome:?}");
    let outcome = trial(Path::new("no such libc.a"), inspector::Arch::X86_64, &options(&[lld()]));
    assert!(outcome.checks.is_empty() && outcome.not_run[0].reason.contains("no such libc.a"), "{outcome:?}");
}

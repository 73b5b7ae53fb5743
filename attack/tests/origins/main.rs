//! Programs whose `malloc` is known by construction: `inspect` names it or says `unknown`.
//!
//! | module | what lives there |
//! | --- | --- |
//! | `case` | a program: its libc, the provider of its `malloc`, the fakes in it, how it is stripped, and the answers |
//! | `workshop` | objects, libraries and archives, each made once |
//! | `linked` | the file of a case, linked |
//! | `disk` | the files that a loader would find, some of which are missing or cannot be read |
//! | `languages` | a program in C++, Rust, zig, Go, OCaml or Nim, and the answers |
//! | `recipes` | which of these are made |
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

mod case;
mod disk;
mod languages;
mod linked;
mod recipes;
mod workshop;

use std::collections::BTreeMap;
use std::sync::Mutex;

use attack::workers;

use case::{Case, Fake, Files, Libc, Provider, Strip};
use languages::Recipe;
use workshop::Workshop;

/// The answers to some cases: how many were exact, and how many `unknown`.
#[derive(Debug, Default)]
struct Answers {
    exact: usize,
    unknown: usize,
    /// Those that no linker or graft makes.
    impossible: usize,
    wrong: Vec<String>,
    /// Of those without a fake: the providers that were not named.
    silent: BTreeMap<String, usize>,
}

fn ask(cases: &[Case]) -> Answers {
    let workshop = Workshop::new();
    let answers = Mutex::new(Answers::default());
    let troubles = workers::each(cases, workers::processors(), |case| {
        let answer = linked::answer(&workshop, case)?;
        let mut answers = answers.lock().expect("no thread panicked with it");
        let Some(answer) = answer else {
            answers.impossible += 1;
            return Ok(());
        };
        let expected = case.malloc();
        if answer.malloc == "unknown" {
            answers.unknown += 1;
            if case.fakes.is_empty() && case.is_plain() && expected != "unknown" {
                *answers.silent.entry(format!("{:?} {:?} {:?}", case.libc, case.provider, case.strip)).or_default() +=
                    1;
            }
        } else if answer.malloc == expected {
            answers.exact += 1;
        } else {
            answers.wrong.push(format!("{case:?}: `{}`, and it is {expected}", answer.malloc));
        }
        if let Some(libcs) = answer.libc.filter(|libcs| libcs != "unknown" && *libcs != case.libcs()) {
            answers.wrong.push(format!("{case:?}: libc's own blocks are `{libcs}`'s, and it is {}", case.libcs()));
        }
        // C has no allocator of its own.
        if let Some(language) = answer.language.filter(|language| language != "unknown") {
            answers.wrong.push(format!("{case:?}: the language's blocks are `{language}`'s"));
        }
        Ok(())
    });
    assert_eq!(troubles, 0, "programs that could not be made");
    answers.into_inner().expect("no thread panicked with it")
}

#[track_caller]
fn all_right(answers: &Answers) {
    assert!(answers.wrong.is_empty(), "{} wrong answers:\n{}", answers.wrong.len(), answers.wrong.join("\n"));
}

/// A few of each kind.
#[test]
fn an_answer_is_right_or_unknown() {
    let all = case::all(false);
    let few: Vec<Case> =
        all.into_iter().enumerate().filter(|(number, _)| number % 97 == 5).map(|(_, case)| case).collect();
    let answers = ask(&few);
    all_right(&answers);
    assert!(answers.exact * 5 > few.len(), "{} of {} were named", answers.exact, few.len());
}

/// In a program without imitations of other allocators, the allocator is named.
#[test]
fn plain_programs_are_named() {
    let plain =
        |libc, provider, strip| Case { libc, provider, strip, fakes: Vec::new(), first: true, files: Files::Whole };
    let cases = [
        plain(Libc::MuslStatic, Provider::Libc, Strip::Nothing),
        plain(Libc::MuslStaticPie, Provider::Libc, Strip::Symbols),
        plain(Libc::Musl, Provider::Libc, Strip::Symbols),
        plain(Libc::GlibcStatic, Provider::Libc, Strip::Symbols),
        plain(Libc::Glibc, Provider::Libc, Strip::Symbols),
        plain(Libc::MuslStatic, Provider::Archive("snmalloc"), Strip::Symbols),
        plain(Libc::MuslStaticPie, Provider::Object("mimalloc"), Strip::Symbols),
        plain(Libc::MuslStatic, Provider::Program("snmalloc"), Strip::Nothing),
        plain(Libc::Musl, Provider::Program("snmalloc"), Strip::Nothing),
        plain(Libc::Glibc, Provider::Program("jemalloc"), Strip::Symbols),
        plain(Libc::Musl, Provider::DonorsLibrary("rpmalloc"), Strip::Symbols),
    ];
    let answers = ask(&cases);
    all_right(&answers);
    assert_eq!((answers.exact, &answers.silent), (cases.len(), &BTreeMap::new()));
}

/// Asks for all programs with some providers. Prints how many, for docs/reliability.md.
fn every(is_wanted: fn(Provider) -> bool) {
    let cases: Vec<Case> = case::all(true).into_iter().filter(|case| is_wanted(case.provider)).collect();
    let answers = ask(&cases);
    let made = cases.len() - answers.impossible;
    println!("{made} programs: {} named, {} unknown, {} wrong", answers.exact, answers.unknown, answers.wrong.len());
    println!("not named though nothing imitates: {:#?}", answers.silent);
    all_right(&answers);
    assert!(made * 2 > cases.len(), "{made} of {} can be made", cases.len());
}

#[test]
#[ignore = "minutes: more than a thousand programs"]
fn every_program_with_libcs_malloc() {
    every(|provider| matches!(provider, Provider::Libc | Provider::NeverFrees | Provider::Nothing));
}

#[test]
#[ignore = "minutes: more than a thousand programs"]
fn every_program_with_its_own_malloc() {
    every(|provider| {
        matches!(provider, Provider::Own | Provider::OwnWeak | Provider::Inline | Provider::CallsNamesake)
    });
}

#[test]
#[ignore = "minutes: more than a thousand programs"]
fn every_program_with_an_allocator() {
    every(|provider| {
        matches!(
            provider,
            Provider::BesideMimalloc | Provider::AroundMimalloc | Provider::Mimalloc | Provider::Rpmalloc
        )
    });
}

#[test]
#[ignore = "minutes: a thousand programs"]
fn every_program_with_a_donor() {
    every(|provider| {
        matches!(
            provider,
            Provider::Archive(_) | Provider::OwnBesideArchive(_) | Provider::Object(_) | Provider::Program(_)
        )
    });
}

#[test]
#[ignore = "minutes: a thousand programs"]
fn every_program_with_a_library() {
    every(|provider| matches!(provider, Provider::Library(_) | Provider::Namesake(_) | Provider::DonorsLibrary(_)));
}

/// Asks for programs in other languages. Prints how many, for docs/reliability.md.
fn every_in(recipes: &[Recipe]) {
    let answers = languages::ask(recipes);
    println!("{} programs: {} named, {} wrong", answers.programs, answers.named, answers.wrong.len());
    println!("not named though all symbols are there: {:#?}", answers.silent);
    assert!(answers.wrong.is_empty(), "{} wrong answers:\n{}", answers.wrong.len(), answers.wrong.join("\n"));
    assert_eq!(answers.troubles, 0, "programs that could not be made");
    assert!(answers.named * 4 > answers.programs, "{} of {} were named", answers.named, answers.programs);
}

#[test]
fn a_program_in_another_language() {
    every_in(&recipes::few());
}

#[test]
#[ignore = "minutes: three hundred programs, and zig's C++ library"]
fn every_program_in_cpp() {
    every_in(&recipes::cpp());
}

#[test]
#[ignore = "minutes: two hundred programs"]
fn every_program_in_rust() {
    every_in(&recipes::rust());
}

#[test]
#[ignore = "rust: two hundred programs"]
fn every_program_in_rust_for_musl() {
    every_in(&recipes::rust_musl());
}

#[test]
#[ignore = "minutes: a hundred programs, which zig compiles with its library"]
fn every_program_in_zig() {
    every_in(&recipes::zig());
}

#[test]
#[ignore = "zigs: a hundred programs"]
fn every_program_of_other_zigs() {
    every_in(&recipes::zigs());
}

#[test]
#[ignore = "toolchains: Go, OCaml and Nim"]
fn every_program_in_go_ocaml_and_nim() {
    every_in(&recipes::others());
}

#[test]
fn a_fake_is_in_the_file() {
    let workshop = Workshop::new();
    let texts = Fake::Texts("jemalloc");
    let case = Case {
        libc: Libc::MuslStatic,
        provider: Provider::Own,
        strip: Strip::Symbols,
        fakes: vec![texts],
        first: true,
        files: Files::Whole,
    };
    let file = std::fs::read(linked::program(&workshop, &case).unwrap().path()).unwrap();
    assert!(file.windows(12).any(|bytes| bytes == b"<jemalloc>: "));
}

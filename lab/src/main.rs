//! The project's experiments: `cargo xtask bench WHAT` and `cargo xtask proof`.
//!
//! | module | what lives there |
//! | --- | --- |
//! | `chart` | the README's chart |
//! | `counting` | the cost of statistics while they are off |
//! | `dynamic` | real dynamic programs: as they are, preloaded and merged |
//! | `finished` | grafts of linked executables beside programs linked with the donor |
//! | `graft` | time and memory of grafting itself |
//! | `grafts` | programs of the suite, linked with grafts |
//! | `handmade` | a graft made by hand |
//! | `loaders` | released programs for musl, started by grafted loaders |
//! | `lto` | a link with ThinLTO, donors preloaded, and its memory |
//! | `profile` | what `allograft profile` predicts, beside what is measured |
//! | `profiles` | memory by donor and profile |
//! | `proof` | conformance programs by compilers that the rules were not tuned on |
//! | `real` | programs that many people use, with every donor |
//! | `released` | released programs and their grafts |
//! | `rest` | what a program takes that does nothing, and what an idle one holds |
//! | `rust_programs` | Rust programs by `cargo allograft` |
//! | `stated` | figures in sentences of README.md and the FAQ |
//! | `steps` | a program's instructions, counted one by one |
//! | `strings` | our string functions beside musl's and glibc's |
//! | `suite` | the suite by `allograft bench`, and its tables in the docs |

mod chart;
mod counting;
mod dynamic;
mod finished;
mod graft;
mod grafts;
mod handmade;
mod loaders;
mod lto;
mod profile;
mod profiles;
mod proof;
mod real;
mod released;
mod rest;
mod rust_programs;
mod stated;
mod steps;
mod strings;
mod suite;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The project's experiments. All times are taken by `measure`, as by `allograft bench`.
#[derive(Debug, Parser)]
#[command(name = "lab", bin_name = "cargo xtask bench")]
struct Lab {
    #[command(subcommand)]
    experiment: Option<Experiment>,
}

#[derive(Debug, Subcommand)]
enum Experiment {
    /// What grafting costs (the default)
    Graft,
    /// What statistics cost while they are off
    Counting,
    /// Memory by donor and profile
    Profiles,
    /// What `allograft profile` predicts of programs of known nature, beside what a graft gains
    Profile(profile::Wish),
    /// Our string functions beside musl's and glibc's
    Strings(Handed),
    /// The suite, by `allograft bench`
    Suite(Handed),
    /// Put the tables of the kept figures into the docs, and make the README's chart
    Tables,
    /// Programs that many people use, with every donor
    Real(real::Wish),
    /// What a program takes that does nothing, and what an idle one holds
    Rest(rest::Wish),
    /// Rust programs: stock musl, a graft by hand, `cargo allograft`, glibc
    Rust(rust_programs::Wish),
    /// A link with ThinLTO, donors preloaded, by `allograft bench`
    Lto(Handed),
    /// The memory of that link: resident, committed and mapped, at peak and at exit, also with large pages
    LtoMemory(lto::memory::Wish),
    /// Released programs and their grafts
    Released(released::Wish),
    /// Real dynamic programs of a Debian: as they are, with a donor preloaded, and with it merged into them
    Dynamic(dynamic::Wish),
    /// Released programs for musl, started by the stock loader and by grafted ones
    Loaders(loaders::Wish),
    /// Grafts of linked executables beside programs linked with the donor
    Finished(finished::Wish),
    /// Conformance programs by compilers held out for it (400 MB, an hour); also `cargo xtask proof`
    Proof(proof::Wish),
}

/// Arguments for the program that measures.
#[derive(Debug, clap::Args)]
struct Handed {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

fn main() -> ExitCode {
    let outcome = match Lab::parse().experiment {
        None | Some(Experiment::Graft) => graft::bench(),
        Some(Experiment::Counting) => counting::bench(),
        Some(Experiment::Profiles) => profiles::bench(),
        Some(Experiment::Profile(wish)) => profile::bench(&wish),
        Some(Experiment::Strings(handed)) => strings::bench(&handed.arguments),
        Some(Experiment::Suite(handed)) => suite::bench(&handed.arguments),
        Some(Experiment::Tables) => suite::tables()
            .and_then(|()| real::TABLE.write())
            .and_then(|()| rest::TABLE.write())
            .and_then(|()| dynamic::TABLE.write())
            .and_then(|()| loaders::TABLE.write())
            .and_then(|()| profile::TABLE.write())
            .and_then(|()| chart::write())
            .and_then(|()| stated::write()),
        Some(Experiment::Real(wish)) => real::bench(&wish),
        Some(Experiment::Rest(wish)) => rest::bench(&wish),
        Some(Experiment::Rust(wish)) => rust_programs::bench(&wish),
        Some(Experiment::Lto(handed)) => lto::bench(&handed.arguments),
        Some(Experiment::LtoMemory(wish)) => lto::memory::bench(&wish),
        Some(Experiment::Released(wish)) => released::bench(&wish),
        Some(Experiment::Dynamic(wish)) => dynamic::bench(&wish),
        Some(Experiment::Loaders(wish)) => loaders::bench(&wish),
        Some(Experiment::Finished(wish)) => finished::bench(&wish),
        Some(Experiment::Proof(wish)) => proof::run(&wish),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_handed_on_may_look_like_options() {
        <Lab as clap::CommandFactory>::command().debug_assert();
        let lab = Lab::parse_from(["lab", "suite", "map", "--budget", "20m", "--save=a"]);
        let Some(Experiment::Suite(handed)) = lab.experiment else { panic!("{lab:?}") };
        assert_eq!(handed.arguments, ["map", "--budget", "20m", "--save=a"]);
    }
}

//! The project's experiments: `cargo xtask bench WHAT` and `cargo xtask proof`.
//!
//! | module | what lives there |
//! | --- | --- |
//! | `asked` | the most that each program of the suite asks for at once |
//! | `behind` | the rows of the suite in which the default takes more than glibc |
//! | `builds` | programs for the arms of an experiment |
//! | `chart` | the README's chart |
//! | `heap` | the cost of a profile of the heap |
//! | `compare` | this tree's donor, compared with another commit's |
//! | `counting` | the cost of statistics while they are off |
//! | `dynamic` | real dynamic programs: unchanged, preloaded and merged |
//! | `experiment` | the runner: options, folder, plan, kept figures |
//! | `finished` | grafts of linked executables, compared with programs linked with the donor |
//! | `graft` | time and memory of grafting itself |
//! | `handmade` | a graft made by hand |
//! | `latency` | the suite's server at equal rates of requests |
//! | `libc` | libc's other functions: stock, a graft and glibc |
//! | `loaders` | released programs for musl, started by grafted loaders |
//! | `lto` | a link with ThinLTO, donors preloaded, and its memory |
//! | `profile` | predictions of `allograft profile`, compared with measurements |
//! | `profiles` | memory by donor and profile |
//! | `proof` | conformance programs, built by compilers on which the rules were not tuned |
//! | `real` | widely used programs, with every donor |
//! | `released` | released programs and their grafts |
//! | `rest` | the cost of a program that does nothing, and the memory of an idle one |
//! | `rust_programs` | Rust programs built by `cargo allograft` |
//! | `scaling` | transfers of lines, waits and calls of each malloc and free, with up to 128 threads on a model |
//! | `stated` | figures in sentences of README.md and the FAQ |
//! | `steps` | a program's instructions, counted one by one |
//! | `strings` | our string functions, compared with musl's and glibc's |
//! | `suite` | the suite, run by `allograft bench` |
//! | `tables` | the tables in the docs |

mod asked;
mod behind;
mod builds;
mod chart;
mod compare;
mod counting;
mod dynamic;
mod experiment;
mod finished;
mod graft;
mod handmade;
mod heap;
mod latency;
mod libc;
mod loaders;
mod lto;
mod profile;
mod profiles;
mod proof;
mod real;
mod released;
mod rest;
mod rust_programs;
mod scaling;
mod stated;
mod steps;
mod strings;
mod suite;
mod tables;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use experiment::{Options, QuickArgs};

/// The project's experiments. All times are measured by `measure`, like those of `allograft bench`.
#[derive(Debug, Parser)]
#[command(name = "lab", bin_name = "cargo xtask bench")]
struct Lab {
    #[command(subcommand)]
    experiment: Option<Experiment>,
}

#[derive(Debug, Subcommand)]
enum Experiment {
    /// Time and memory of grafting (the default)
    Graft,
    /// This tree's donor and another commit's, on the suite's programs: what moved, in about 5 minutes
    Compare(compare::CompareArgs),
    /// The cost of statistics while they are off
    Counting,
    /// The cost of a heap profile while it is taken
    Heap(QuickArgs),
    /// Memory by donor and profile
    Profiles(QuickArgs),
    /// Predictions of `allograft profile` for known programs, compared with a graft's gain
    Profile(profile::ProfileArgs),
    /// Our string functions, compared with musl's and glibc's
    Strings(PassedArgs),
    /// The suite, by `allograft bench`
    Suite(PassedArgs),
    /// The most bytes that each program of the suite asks for at once
    Asked(asked::AskedArgs),
    /// Put the tables of the kept figures into the docs, and make the README's chart
    Tables,
    /// Widely used programs, with every donor
    Real(Options),
    /// The cost of a program that does nothing, and the memory of an idle one
    Rest(Options),
    /// The latency of the suite's server at equal rates: glibc, the default donor, mimalloc and stock
    Latency(Options),
    /// Rust programs: stock musl, a graft by hand, `cargo allograft`, glibc
    Rust(Options),
    /// libc's other functions: stock, a graft and glibc
    Libc(libc::LibcArgs),
    /// A link with ThinLTO, donors preloaded, by `allograft bench`
    Lto(PassedArgs),
    /// The memory of that link: resident, committed and mapped, at peak and at exit, also with large pages
    LtoMemory(lto::memory::MemoryArgs),
    /// Lines, waits and calls of each malloc and free with 1 to 128 threads, on a model of as many cores
    Scaling(scaling::ScalingArgs),
    /// Released programs and their grafts
    Released(released::ReleasedArgs),
    /// Real dynamic programs of Debian: unchanged, with a donor preloaded, and with it merged
    Dynamic(dynamic::DynamicArgs),
    /// Released programs for musl, started by the stock loader and by grafted ones
    Loaders(Options),
    /// Grafts of linked executables, compared with programs linked with the donor
    Finished(finished::FinishedArgs),
    /// Conformance programs by held-out compilers (400 MB, an hour); also `cargo xtask proof`
    Proof(proof::ProofArgs),
}

/// Arguments for the program that measures.
#[derive(Debug, clap::Args)]
struct PassedArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

fn main() -> ExitCode {
    let outcome = match Lab::parse().experiment {
        None | Some(Experiment::Graft) => graft::bench(),
        Some(Experiment::Compare(args)) => compare::bench(&args),
        Some(Experiment::Counting) => counting::bench(),
        Some(Experiment::Heap(args)) => heap::bench(args),
        Some(Experiment::Profiles(args)) => profiles::bench(args),
        Some(Experiment::Profile(args)) => profile::bench(&args),
        Some(Experiment::Strings(handed)) => strings::bench(&handed.arguments),
        Some(Experiment::Suite(handed)) => suite::bench(&handed.arguments),
        Some(Experiment::Asked(args)) => asked::bench(&args),
        Some(Experiment::Tables) => tables::write(),
        Some(Experiment::Real(args)) => real::EXPERIMENT.run(&args, real::measure),
        Some(Experiment::Rest(args)) => rest::EXPERIMENT.run(&args, rest::measure),
        Some(Experiment::Latency(args)) => latency::EXPERIMENT.run(&args, latency::measure),
        Some(Experiment::Rust(args)) => rust_programs::EXPERIMENT.run(&args, rust_programs::measure),
        Some(Experiment::Libc(args)) => libc::bench(&args),
        Some(Experiment::Lto(handed)) => lto::bench(&handed.arguments),
        Some(Experiment::LtoMemory(args)) => lto::memory::bench(&args),
        Some(Experiment::Scaling(args)) => scaling::bench(&args),
        Some(Experiment::Released(args)) => released::bench(&args),
        Some(Experiment::Dynamic(args)) => dynamic::bench(&args),
        Some(Experiment::Loaders(args)) => loaders::EXPERIMENT.run(&args, loaders::measure),
        Some(Experiment::Finished(args)) => finished::bench(&args),
        Some(Experiment::Proof(args)) => proof::run(&args),
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
    fn passed_arguments_may_look_like_options() {
        <Lab as clap::CommandFactory>::command().debug_assert();
        let lab = Lab::parse_from(["lab", "suite", "map", "--budget", "20m", "--save=a"]);
        let Some(Experiment::Suite(handed)) = lab.experiment else { panic!("{lab:?}") };
        assert_eq!(handed.arguments, ["map", "--budget", "20m", "--save=a"]);
    }
}

//! `cargo xtask bench real`: programs that many people use, with stock musl, string functions, each donor, and glibc.

pub(crate) mod build;
pub(crate) mod program;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use measure::case::{Arm, Case, Invocation, Load};
use measure::machine::Machine;
use measure::report;
use measure::results::{self, Input, Origin, Results, SCHEMA_VERSION};
use measure::session::Plan;
use tools::{command, folder, rust, workspace};
use xtask::linking::{Compiler, Musl};
use xtask::page::{KeptTable, Table};
use xtask::sessions;

use self::build::{RealArm, Yard};
use self::program::{Program, Run, Sources};
use crate::rust_programs;

/// The tables in the docs.
pub(crate) const TABLE: KeptTable<Results> = KeptTable {
    figures: "docs/figures/real.json",
    place: Table {
        page: "docs/bench-figures.md",
        begin: "<!-- real: made by `cargo xtask bench tables` -->",
        end: "<!-- /real -->",
    },
    text: report::overview,
};

/// The command line.
#[derive(Debug, clap::Args)]
pub(crate) struct Wish {
    /// Little work and a single round, to see whether everything works
    #[arg(long)]
    quick: bool,
    /// Minutes for everything except building
    #[arg(long, default_value_t = 10)]
    minutes: u64,
    /// Keep the figures in this file
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// These programs only
    #[arg(value_parser = ["sqlite", "script", "compress", "redis", "http", "compile", "format"])]
    programs: Vec<String>,
}

impl Wish {
    fn has(&self, name: &str) -> bool {
        self.programs.is_empty() || self.programs.iter().any(|program| program == name)
    }
}

/// Builds, measures, prints, and keeps what was asked for.
///
/// # Errors
/// When something does not build, or gives another answer than stock.
pub(crate) fn bench(wish: &Wish) -> Result<()> {
    tools::prepare_for_one()?;
    eprintln!("bench: building allograft ...");
    let allograft = command::build_allograft()?;
    let home = workspace::build().join("bench").join("real");
    fs::create_dir_all(&home)?;
    let _lock = folder::lock(&home.join(".lock"))?;
    let yard = Yard { home: &home, allograft: &allograft, musl: Musl::find()?, compiler: Compiler::find()? };
    let arms = build::arms(&allograft)?;
    let mut cases = in_c(&yard, &arms, wish)?;
    if ["compile", "format"].into_iter().any(|name| wish.has(name)) {
        cases.extend(in_rust(&yard, &arms, wish)?);
    }
    let seconds = if wish.quick { 0 } else { wish.minutes * 60 };
    let least_rounds = if wish.quick { 1 } else { 6 };
    let budget = Duration::from_secs(seconds);
    let plan = Plan {
        budget,
        least_rounds,
        precision: 0.03,
        of_the_difference: 0.0,
        memory_runs: if wish.quick { 1 } else { 3 },
        count_calls: false,
        ..Plan::default()
    };
    let (measured, sessions) = sessions::compare_all(&cases, &plan)?;
    let origins: Vec<Origin> = arms.iter().map(origin).collect();
    let results = Results {
        schema_version: SCHEMA_VERSION,
        allograft: env!("CARGO_PKG_VERSION").to_owned(),
        input: Input { kind: "program".to_owned(), host: yard.musl.name.clone(), ..Input::default() },
        machine: Machine::this(),
        arms: results::arms(&origins, &measured, &sessions),
        plan,
        cases: measured,
        recommendation: None,
        warnings: Vec::new(),
        interrupted: false,
    };
    fs::write(home.join("results.json"), results.json()?)?;
    println!("{}", report::overview(&results));
    println!("every run: `{}`", workspace::shown(&home.join("results.json")));
    if let Some(path) = &wish.save {
        if wish.quick || !wish.programs.is_empty() {
            bail!("a run with --quick, or of some programs, is not kept");
        }
        fs::write(path, results::compact(&results.without_runs())?)
            .with_context(|| format!("cannot write `{}`", path.display()))?;
    }
    Ok(())
}

fn origin(arm: &RealArm) -> Origin {
    let donor = arm.graft.as_ref().and_then(|_| (arm.name != "strings").then(|| arm.name.clone()));
    let command = arm.graft.as_ref().map(|arguments| format!("allograft graft libc.a {}", arguments.join(" ")));
    Origin {
        name: arm.name.clone(),
        donor,
        strings: arm.graft.is_some(),
        eligible: !arm.is_glibc,
        command,
        ..Origin::default()
    }
}

/// Builds the programs in C, and returns what to run.
fn in_c(yard: &Yard<'_>, arms: &[RealArm], wish: &Wish) -> Result<Vec<Case>> {
    let sources = Sources::fetch()?;
    // One program each puts the load on all arms.
    let tool = |name: &str, parts: &[program::Part]| -> Result<PathBuf> {
        let files = yard.compile(name, parts, true)?;
        let out = yard.home.join(name);
        xtask::linking::link_for_glibc(&yard.compiler, &files, &out)?;
        Ok(out)
    };
    let load = tool("http-load", &[sources.http()])?;
    let redis_load = tool("redis-benchmark", &sources.redis("REDIS_BENCHMARK_OBJ")?)?;
    let libcs = yard.libcs(arms)?;
    let mut cases = Vec::new();
    for program in sources.programs(&load, &redis_load)?.iter().filter(|program| wish.has(program.name)) {
        eprintln!("bench: building {} ...", program.name);
        let of_musl = yard.compile(program.name, &program.parts, false)?;
        let of_glibc = yard.compile(program.name, &program.parts, true)?;
        let links = arms.iter().zip(&libcs).map(|(arm, libc)| {
            let path = yard.link(program.name, [&of_musl, &of_glibc], arm, libc)?;
            rust_programs::carries(yard.allograft, &path, &arm.carries)?;
            Ok(path)
        });
        cases.extend(of_program(program, arms, &links.collect::<Result<Vec<_>>>()?, wish.quick));
    }
    Ok(cases)
}

fn of_program(program: &Program, arms: &[RealArm], paths: &[PathBuf], quick: bool) -> Vec<Case> {
    let which = usize::from(quick);
    let case = |threads: Option<u32>, arguments: &[String], load: Option<&String>| {
        let arm = |(arm, path): (&RealArm, &PathBuf)| Arm {
            name: arm.name.clone(),
            invocation: Invocation {
                program: path.clone(),
                arguments: arguments.iter().map(Into::into).collect(),
                load: load.map(|command| Load { command: command.clone() }),
                ..Invocation::default()
            },
            broken: None,
        };
        Case { name: program.name.to_owned(), threads, size: None, arms: arms.iter().zip(paths).map(arm).collect() }
    };
    match &program.run {
        Run::Work(works) => works.iter().map(|(threads, work)| case(*threads, &work[which], None)).collect(),
        Run::Server(arguments, loads) => vec![case(None, arguments, Some(&loads[which]))],
    }
}

/// Builds the programs in Rust, and returns what to run.
fn in_rust(yard: &Yard<'_>, arms: &[RealArm], wish: &Wish) -> Result<Vec<Case>> {
    rust::prepare()?;
    let home = workspace::build().join("bench").join("rust");
    fs::create_dir_all(&home)?;
    let _lock = folder::lock(&home.join(".lock"))?;
    let bench = rust_programs::Bench::new(home, yard.allograft.to_owned(), yard.allograft.to_owned())?;
    let mut search = Vec::new();
    for arm in arms {
        let folder = yard.home.join("rust-libc").join(&arm.name);
        if arm.graft.is_some() {
            fs::create_dir_all(&folder)?;
            let libc = folder.join("libc.a");
            // The backup of an earlier graft belongs to the file that is replaced.
            let _ = fs::remove_file(folder.join("libc.a.allograft-stock"));
            fs::copy(bench.libc(), &libc).with_context(|| format!("cannot make `{}`", libc.display()))?;
            yard.graft(arm, &libc)?;
        }
        search.push(arm.graft.as_ref().map(|_| folder));
    }
    let mut cases = Vec::new();
    for program in rust_programs::programs(|name| wish.has(name)) {
        let mut built = Vec::new();
        for (arm, search) in arms.iter().zip(&search) {
            let way = match search {
                Some(folder) => rust_programs::Way::Search(folder),
                None if arm.is_glibc => rust_programs::Way::Glibc,
                None => rust_programs::Way::Stock,
            };
            let path = bench.made(program, &arm.name, way, &arm.carries)?;
            built
                .push((arm.name.clone(), path.with_context(|| format!("the toolchain has nothing for {}", arm.name))?));
        }
        cases.extend(bench.cases(program, &built, wish.quick)?);
    }
    Ok(cases)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_in_the_docs_are_those_of_the_kept_figures() {
        TABLE.check().unwrap();
    }
}

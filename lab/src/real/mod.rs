//! `cargo xtask bench real`: widely used programs, with stock musl, string functions, each donor, and glibc.

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

use self::build::{Builder, RealArm};
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

/// The command's arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct RealArgs {
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

impl RealArgs {
    fn has(&self, name: &str) -> bool {
        self.programs.is_empty() || self.programs.iter().any(|program| program == name)
    }
}

/// Builds, measures, prints, and keeps the figures if `--save` is set.
///
/// # Errors
/// A program does not build, or its answer differs from stock's.
pub(crate) fn bench(args: &RealArgs) -> Result<()> {
    tools::prepare_for_one()?;
    eprintln!("bench: building allograft ...");
    let allograft = command::build_allograft()?;
    let home = workspace::build().join("bench").join("real");
    fs::create_dir_all(&home)?;
    let _lock = folder::lock(&home.join(".lock"))?;
    let builder = Builder { home: &home, allograft: &allograft, musl: Musl::find()?, compiler: Compiler::find()? };
    let arms = build::arms(&allograft)?;
    let mut cases = in_c(&builder, &arms, args)?;
    if ["compile", "format"].into_iter().any(|name| args.has(name)) {
        cases.extend(in_rust(&builder, &arms, args)?);
    }
    let seconds = if args.quick { 0 } else { args.minutes * 60 };
    let least_rounds = if args.quick { 1 } else { 6 };
    let budget = Duration::from_secs(seconds);
    let plan = Plan {
        budget,
        least_rounds,
        precision: 0.03,
        of_the_difference: 0.0,
        memory_runs: if args.quick { 1 } else { 3 },
        count_calls: false,
        ..Plan::default()
    };
    let (measured, sessions) = sessions::compare_all(&cases, &plan)?;
    let origins: Vec<Origin> = arms.iter().map(origin).collect();
    let results = Results {
        schema_version: SCHEMA_VERSION,
        allograft: env!("CARGO_PKG_VERSION").to_owned(),
        input: Input { kind: "program".to_owned(), host: builder.musl.name.clone(), ..Input::default() },
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
    if let Some(path) = &args.save {
        if args.quick || !args.programs.is_empty() {
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

/// Builds the programs in C, and returns their cases.
fn in_c(builder: &Builder<'_>, arms: &[RealArm], args: &RealArgs) -> Result<Vec<Case>> {
    let sources = Sources::fetch()?;
    // One load generator serves all arms.
    let tool = |name: &str, parts: &[program::Part]| -> Result<PathBuf> {
        let files = builder.compile(name, parts, true)?;
        let out = builder.home.join(name);
        xtask::linking::link_for_glibc(&builder.compiler, &files, &out)?;
        Ok(out)
    };
    let load = tool("http-load", &[sources.http()])?;
    let redis_load = tool("redis-benchmark", &sources.redis("REDIS_BENCHMARK_OBJ")?)?;
    let libcs = builder.libcs(arms)?;
    let mut cases = Vec::new();
    for program in sources.programs(&load, &redis_load)?.iter().filter(|program| args.has(program.name)) {
        eprintln!("bench: building {} ...", program.name);
        let of_musl = builder.compile(program.name, &program.parts, false)?;
        let of_glibc = builder.compile(program.name, &program.parts, true)?;
        let links = arms.iter().zip(&libcs).map(|(arm, libc)| {
            let path = builder.link(program.name, [&of_musl, &of_glibc], arm, libc)?;
            rust_programs::carries(builder.allograft, &path, &arm.carries)?;
            Ok(path)
        });
        cases.extend(of_program(program, arms, &links.collect::<Result<Vec<_>>>()?, args.quick));
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
                load: load.map(|command| Load { command: command.clone(), rate: None }),
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

/// Builds the programs in Rust, and returns their cases.
fn in_rust(builder: &Builder<'_>, arms: &[RealArm], args: &RealArgs) -> Result<Vec<Case>> {
    rust::prepare()?;
    let home = workspace::build().join("bench").join("rust");
    fs::create_dir_all(&home)?;
    let _lock = folder::lock(&home.join(".lock"))?;
    let bench = rust_programs::Bench::new(home, builder.allograft.to_owned(), builder.allograft.to_owned())?;
    let mut search = Vec::new();
    for arm in arms {
        let folder = builder.home.join("rust-libc").join(&arm.name);
        if arm.graft.is_some() {
            fs::create_dir_all(&folder)?;
            let libc = folder.join("libc.a");
            // Delete the backup of an earlier graft: it belongs to the file that is being replaced.
            let _ = fs::remove_file(folder.join("libc.a.allograft-stock"));
            fs::copy(bench.libc(), &libc).with_context(|| format!("cannot make `{}`", libc.display()))?;
            builder.graft(arm, &libc)?;
        }
        search.push(arm.graft.as_ref().map(|_| folder));
    }
    let mut cases = Vec::new();
    for program in rust_programs::programs(|name| args.has(name)) {
        let mut built = Vec::new();
        for (arm, search) in arms.iter().zip(&search) {
            let method = match search {
                Some(folder) => rust_programs::BuildMethod::Search(folder),
                None if arm.is_glibc => rust_programs::BuildMethod::Glibc,
                None => rust_programs::BuildMethod::Stock,
            };
            let path = bench.build_arm(program, &arm.name, method, &arm.carries)?;
            built
                .push((arm.name.clone(), path.with_context(|| format!("the toolchain has nothing for {}", arm.name))?));
        }
        cases.extend(bench.cases(program, &built, args.quick)?);
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

//! `cargo xtask bench real`: widely used programs, with stock musl, string functions, each donor, and glibc.

mod program;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use measure::case::{Arm, Case, Invocation, Load};
use measure::report;
use measure::results::{Input, Origin, Results};
use measure::session::Plan;
use tools::{command, table, workspace};

use self::program::{Program, Run, Sources};
use crate::builds::{LinkedArm, Part, Workshop};
use crate::experiment::{self, Bench, Experiment};
use crate::rust_programs::{self, Amount, RustBuilds};

/// The experiment.
pub(crate) const EXPERIMENT: Experiment<Results> = Experiment {
    name: "real",
    programs: &["sqlite", "script", "compress", "redis", "http", "compile", "format"],
    minutes: 10,
    table: report::overview,
};

/// Builds the programs, and measures them.
///
/// # Errors
/// A program does not build, or its answer differs from stock's.
pub(crate) fn measure(bench: &Bench) -> Result<Results> {
    let workshop = Workshop::new(&bench.home, &command::build_allograft()?)?;
    let arms = workshop.arms()?;
    let mut cases = in_c(&workshop, &arms, bench)?;
    if rust_programs::NAMES.into_iter().any(|name| bench.has(name)) {
        cases.extend(in_rust(&workshop, &arms, bench)?);
    }
    let input = Input { kind: "program".to_owned(), host: workshop.musl.name.clone(), ..Input::default() };
    let origins: Vec<Origin> = arms.iter().map(origin).collect();
    experiment::compared(input, &origins, &cases, Plan { precision: 0.03, ..bench.plan(6, 1.0) })
}

fn origin(arm: &LinkedArm) -> Origin {
    let donor = arm.graft.as_ref().and_then(|_| (arm.name != "strings").then(|| arm.name.clone()));
    let command = arm.graft.as_ref().map(|arguments| format!("allograft graft libc.a {}", arguments.join(" ")));
    Origin {
        name: arm.name.clone(),
        donor,
        strings: arm.graft.is_some(),
        eligible: arm.libc.is_some(),
        command,
        ..Origin::default()
    }
}

/// Builds the programs in C, and returns their cases.
fn in_c(workshop: &Workshop, arms: &[LinkedArm], bench: &Bench) -> Result<Vec<Case>> {
    let sources = Sources::fetch()?;
    // One load generator serves all arms.
    let load = workshop.with_glibc("http-load", &[Part::suite("http")])?;
    let redis_load = workshop.with_glibc("redis-benchmark", &sources.redis("REDIS_BENCHMARK_OBJ")?)?;
    let mut cases = Vec::new();
    for program in sources.programs(&load, &redis_load)?.iter().filter(|program| bench.has(program.name)) {
        let paths = workshop.programs(program.name, &program.parts, arms)?;
        cases.extend(of_program(program, arms, &paths, bench.quick));
    }
    Ok(cases)
}

fn of_program(program: &Program, arms: &[LinkedArm], paths: &[PathBuf], quick: bool) -> Vec<Case> {
    let which = usize::from(quick);
    let case = |threads: Option<u32>, arguments: &[String], load: Option<&String>| {
        let arm = |(arm, path): (&LinkedArm, &PathBuf)| Arm {
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
fn in_rust(workshop: &Workshop, arms: &[LinkedArm], bench: &Bench) -> Result<Vec<Case>> {
    table::prepare_named(&["rust"])?;
    let shared = Bench::at(workspace::build().join("bench").join("rust"))?;
    let builds = RustBuilds::new(&shared.home, &workshop.allograft, &workshop.allograft)?;
    let mut search = Vec::new();
    for arm in arms {
        let folder = bench.home.join("rust-libc").join(&arm.name);
        if let Some(arguments) = &arm.graft {
            fs::create_dir_all(&folder)?;
            let libc = folder.join("libc.a");
            // Delete the backup of an earlier graft: it belongs to the file that is being replaced.
            let _ = fs::remove_file(folder.join("libc.a.allograft-stock"));
            fs::copy(builds.libc(), &libc).with_context(|| format!("cannot make `{}`", libc.display()))?;
            workshop.graft(arguments, &libc)?;
        }
        search.push(arm.graft.as_ref().map(|_| folder));
    }
    let mut cases = Vec::new();
    for program in rust_programs::programs(|name| bench.has(name)) {
        let mut built = Vec::new();
        for (arm, search) in arms.iter().zip(&search) {
            let method = match search {
                Some(folder) => rust_programs::BuildMethod::Search(folder),
                None if arm.libc.is_none() => rust_programs::BuildMethod::Glibc,
                None => rust_programs::BuildMethod::Stock,
            };
            let path = builds.build_arm(program, &arm.name, method, &arm.carries)?;
            built
                .push((arm.name.clone(), path.with_context(|| format!("the toolchain has nothing for {}", arm.name))?));
        }
        cases.extend(builds.cases(program, &built, if bench.quick { Amount::Quick } else { Amount::Less })?);
    }
    Ok(cases)
}

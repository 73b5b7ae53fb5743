//! `cargo xtask bench suite`: the workloads of `suite/` on stock musl, on every donor and on glibc, time and memory.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::linking::{self, Compiler, Musl};
use crate::rounds::{self, Effort, Spread};
use crate::{command, grafts, memory, setup, workspace};

/// A folder of `suite/` with a program of that name, which takes a number of threads and then `work`.
struct Workload {
    name: &'static str,
    work: &'static [&'static str],
    /// The least that it can do, to see whether it runs at all.
    least: &'static [&'static str],
}

const WORKLOADS: &[Workload] = &[
    Workload { name: "map", work: &["20000", "2000000"], least: &["10", "10"] },
    Workload { name: "larson", work: &["8000000", "50"], least: &["10", "1"] },
    Workload { name: "pipeline", work: &["3000000"], least: &["10"] },
    Workload { name: "growth", work: &["1600"], least: &["8"] },
    Workload { name: "blocks", work: &["2000"], least: &["1"] },
    Workload { name: "small", work: &["40000"], least: &["1"] },
    Workload { name: "fragments", work: &["120"], least: &["1"] },
    Workload { name: "bursts", work: &["16000"], least: &["1"] },
];

const USAGE: &str =
    "`bench suite` takes `--arms stock,NAME,NAME@PROFILE,glibc`, `--threads N,N`, `--rounds N` and workloads";

/// What is compared on what.
struct Choice {
    workloads: Vec<&'static Workload>,
    /// `stock`, `glibc`, a donor's name, or that with `@PROFILE`.
    arms: Vec<String>,
    threads: Vec<usize>,
    rounds: usize,
}

/// One libc to link with.
struct Arm {
    name: String,
    /// The folder of its `libc.a`; none for glibc.
    libdir: Option<PathBuf>,
}

/// Builds each workload for each arm, checks that all of them print the same, and compares them in interleaved rounds.
///
/// # Errors
/// When something does not build, or two arms give different answers.
pub(crate) fn bench(arguments: &[String]) -> Result<()> {
    setup::prepare(setup::Extent::Everything)?;
    let allograft = command::build_allograft()?;
    let choice = Choice::read(arguments, &allograft)?;
    let home = workspace::build().join("bench").join("suite");
    fs::create_dir_all(&home)?;
    let _lock = setup::lock(&home.join(".lock"))?;

    let (musl, compiler) = (Musl::find()?, Compiler::find()?);
    let arms = graft(&choice.arms, &allograft, &musl, &home)?;
    println!("host: {}; compiler: {}; {} rounds, interleaved", musl.name, compiler.name(), choice.rounds);
    for workload in &choice.workloads {
        let programs = build(workload, &arms, &musl, &compiler, &home)?;
        for threads in &choice.threads {
            compare(workload, *threads, &programs, choice.rounds)?;
        }
    }
    Ok(())
}

impl Choice {
    fn read(arguments: &[String], allograft: &Path) -> Result<Choice> {
        let mut choice = Choice { workloads: Vec::new(), arms: Vec::new(), threads: vec![1, 8], rounds: 5 };
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            let mut list = || arguments.next().map(|list| list.split(',').map(str::to_owned).collect::<Vec<_>>());
            match argument.as_str() {
                "--arms" => choice.arms = list().context(USAGE)?,
                "--threads" => {
                    let numbers = list().context(USAGE)?;
                    choice.threads = numbers.iter().map(|number| number.parse()).collect::<Result<_, _>>()?;
                }
                "--rounds" => choice.rounds = arguments.next().context(USAGE)?.parse()?,
                name => {
                    let known = WORKLOADS.iter().find(|workload| workload.name == name);
                    let names = || WORKLOADS.iter().map(|workload| workload.name).collect::<Vec<_>>().join(", ");
                    choice.workloads.push(known.with_context(|| format!("{USAGE}: {}", names()))?);
                }
            }
        }
        if choice.workloads.is_empty() {
            choice.workloads = WORKLOADS.iter().collect();
        }
        if choice.arms.is_empty() {
            choice.arms = grafts::donors(allograft)?.into_iter().map(|donor| donor.name).collect();
            choice.arms.insert(0, "stock".to_owned());
            choice.arms.push("glibc".to_owned());
        }
        Ok(choice)
    }
}

/// A copy of the musl for each arm, grafted as its name says.
fn graft(names: &[String], allograft: &Path, musl: &Musl, home: &Path) -> Result<Vec<Arm>> {
    let mut arms = Vec::new();
    for name in names {
        if name == "glibc" {
            arms.push(Arm { name: name.clone(), libdir: None });
            continue;
        }
        let libdir = home.join(name);
        if libdir.exists() {
            fs::remove_dir_all(&libdir).with_context(|| format!("cannot remove `{}`", libdir.display()))?;
        }
        let libc = musl.copy(&libdir)?;
        if name != "stock" {
            let (donor, profile) = name.split_once('@').unwrap_or((name, ""));
            let mut command = Command::new(allograft);
            command.args(["-q", "graft", "--donor", donor]).arg(&libc);
            if !profile.is_empty() {
                command.args(["--profile", profile]);
            }
            command::run(&mut command)?;
        }
        arms.push(Arm { name: name.clone(), libdir: Some(libdir) });
    }
    Ok(arms)
}

/// The workload's program for each arm; one that this machine has no glibc for is left out.
fn build<'a>(
    workload: &Workload,
    arms: &'a [Arm],
    musl: &Musl,
    compiler: &Compiler,
    home: &Path,
) -> Result<Vec<(&'a str, PathBuf)>> {
    let folder = workspace::root().join("suite").join(workload.name);
    let source = folder.join(format!("{}.c", workload.name));
    let object = home.join(format!("{}.o", workload.name));
    musl.compile(compiler, &source, &object)?;
    let mut programs = Vec::new();
    for arm in arms {
        let program = match &arm.libdir {
            Some(libdir) => {
                let program = libdir.join(workload.name);
                musl.link(compiler, &object, libdir, &program)?;
                Some(program)
            }
            None => {
                let short = [&["1"], workload.least].concat();
                linking::with_glibc(compiler, &source, &short, &home.join("glibc"))?
            }
        };
        match program {
            Some(program) => programs.push((arm.name.as_str(), program)),
            None => println!("{}: left out, there is no such libc on this machine", arm.name),
        }
    }
    Ok(programs)
}

fn compare(workload: &Workload, threads: usize, programs: &[(&str, PathBuf)], rounds: usize) -> Result<()> {
    let make = |at: usize| {
        let mut command = Command::new(&programs[at].1);
        command.env_clear().arg(threads.to_string()).args(workload.work);
        command
    };
    // Runs of their own for memory, which warm everything up and give the answer that all the others have to repeat.
    let mut answer: Option<String> = None;
    let mut peaks = Vec::new();
    for (at, (name, _)) in programs.iter().enumerate() {
        let run = memory::run(&mut make(at))?;
        let expected = answer.get_or_insert_with(|| run.stdout.clone());
        ensure!(run.stdout == *expected, "{name} printed `{}`, not `{}`", run.stdout.trim(), expected.trim());
        peaks.push(run.peak);
    }
    let Some(answer) = answer else { bail!("there are no arms") };
    let effort = Effort { least: rounds, most: rounds, budget: Duration::ZERO };
    let seconds = rounds::interleave(programs.len(), effort, &answer, &mut |at| make(at))?;
    println!("\n{} with {threads} threads{:<20} median s   time ratio (min-max)    peak MB   ratio", workload.name, "");
    for (at, (name, _)) in programs.iter().enumerate() {
        let median = Spread::of(&seconds[at]).map_or(f64::NAN, |spread| spread.median);
        let ratio = Spread::of_ratios(&seconds[at], &seconds[0]);
        let ratio = ratio.map_or("-".to_owned(), |r| format!("{:.2} ({:.2}-{:.2})", r.median, r.low, r.high));
        #[allow(clippy::cast_precision_loss, reason = "megabytes with one decimal")]
        let (peak, first) = (peaks[at] as f64 / 1e6, peaks[0] as f64 / 1e6);
        println!("  {name:<32} {median:>10.3}   {ratio:<20} {peak:>10.1}   {:>5.2}", peak / first);
    }
    Ok(())
}

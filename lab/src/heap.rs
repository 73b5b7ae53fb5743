//! `cargo xtask bench heap`: the cost of a profile of the heap while it is taken, on the programs of the suite. The
//! cost while none is taken is in that of `counting`: one comparison serves both.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use measure::case::{Arm, Case};
use measure::session::Plan;
use measure::statistics::Ratio;
use tools::command;
use xtask::sessions;

use crate::builds::{Part, Workshop};
use crate::experiment::{Bench, QuickArgs};
use crate::finished::shown;

/// The programs, each with 2 threads: the arguments after the threads, with `WORK` for the amount of work, and the
/// amount.
const WORK: [(&str, &str, u32); 8] = [
    ("map", "20000 WORK", 10_000_000),
    ("larson", "WORK 50", 20_000_000),
    ("pipeline", "WORK", 8_000_000),
    ("growth", "WORK", 4_000),
    ("blocks", "WORK", 40_000),
    ("small", "WORK", 120_000),
    ("fragments", "WORK", 600),
    ("bursts", "WORK", 20_000),
];
/// The part of the work that a quick run does.
const QUICK: u32 = 20;
/// The file of the profiles, in the experiment's folder.
const PROFILE: &str = "profile.pb.gz";
/// The time for the runs of each donor.
const BUDGET: Duration = Duration::from_secs(150);
/// The donors: the default one, and the one that is the default of 32-bit architectures.
const DONORS: [&str; 2] = ["snmalloc", "mimalloc"];

/// Compares each program without a profile with itself while one is taken, at the usual rate: time and peak memory.
///
/// # Errors
/// A part does not build, or a program fails.
pub(crate) fn bench(args: QuickArgs) -> Result<()> {
    let bench = Bench::open("heap")?.within(args, BUDGET);
    let workshop = Workshop::new(&bench.home, &command::build_allograft()?)?;
    let sources = WORK.map(|(name, ..)| Part::suite(name));
    println!("a profile of the heap, against none; 2 threads; ratios with 95 % intervals:");
    println!("| donor | program | time | processor time | peak memory, bytes more |");
    println!("| --- | --- | --- | --- | --- |");
    for donor in DONORS {
        let programs = workshop.with_musl(donor, Some(&["--donor", donor]), &sources)?;
        let cases: Vec<Case> = WORK.iter().zip(&programs).map(|(work, program)| case(*work, program, &bench)).collect();
        let plan = Plan { most_rounds: 60, ..bench.plan(11, 1.0) };
        // Of an earlier run, or of the donor before.
        let profile = bench.home.join(PROFILE);
        let _ = fs::remove_file(&profile);
        let (results, _) = sessions::compare_all(&cases, &plan)?;
        ensure!(profile.is_file(), "`{donor}` took no profile of the heap");
        let mut all = [Vec::new(), Vec::new()];
        for result in &results {
            let [off, on] = result.arms.as_slice() else { continue };
            let ratios = [&on.ratio_to_stock, &on.processor_ratio_to_stock];
            for (all, ratio) in all.iter_mut().zip(ratios) {
                all.extend(ratio.as_ref().map(|ratio| ratio.value.ln()));
            }
            let more = on.peak_memory_bytes.zip(off.peak_memory_bytes).context("no memory was measured")?;
            let more = more.0.cast_signed() - more.1.cast_signed();
            println!("| `{donor}` | `{}` | {} | {} | {more} |", result.name, text(ratios[0]), text(ratios[1]));
        }
        let mean = |logarithms: &[f64]| (logarithms.iter().sum::<f64>() / logarithms.len().max(1) as f64).exp();
        println!("| `{donor}` | **geometric mean** | {:.3} | {:.3} | |", mean(&all[0]), mean(&all[1]));
    }
    Ok(())
}

/// The program twice: without a profile, and with one.
fn case((name, words, work): (&str, &str, u32), program: &Path, bench: &Bench) -> Case {
    let work = if bench.quick { work / QUICK } else { work };
    let arguments = format!("2 {}", words.replace("WORK", &work.to_string()));
    let off = sessions::arm("off", program, arguments.split(' '));
    let mut on: Arm = sessions::arm("on", program, arguments.split(' '));
    on.invocation.environment.push(("ALLOGRAFT_HEAP".into(), bench.home.join(PROFILE).into()));
    sessions::case(name, vec![off, on])
}

fn text(ratio: &Option<Ratio>) -> String {
    ratio.as_ref().map_or_else(|| "not measured".to_owned(), shown)
}

//! `cargo xtask bench heap`: the cost of a profile of the heap while it is taken, on the programs of the suite. The
//! cost while none is taken is in that of `counting`: one comparison serves both.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use measure::case::{Arm, Case};
use measure::session::Plan;
use measure::statistics::Ratio;
use tools::{command, folder, workspace};
use xtask::sessions;

use crate::grafts::Workshop;

/// The programs, each with 2 threads, and their work.
const WORK: [(&str, &[&str]); 8] = [
    ("map", &["20000", "10000000"]),
    ("larson", &["20000000", "50"]),
    ("pipeline", &["8000000"]),
    ("growth", &["4000"]),
    ("blocks", &["40000"]),
    ("small", &["120000"]),
    ("fragments", &["600"]),
    ("bursts", &["20000"]),
];
/// The donors: the default one, and the one that is the default of 32-bit architectures.
const DONORS: [&str; 2] = ["snmalloc", "mimalloc"];

/// Compares each program without a profile with itself while one is taken, at the usual rate: time and peak memory.
///
/// # Errors
/// A part does not build, or a program fails.
pub(crate) fn bench() -> Result<()> {
    tools::prepare_for_one()?;
    let home = workspace::build().join("bench").join("heap");
    fs::create_dir_all(&home)?;
    let _lock = folder::lock(&home.join(".lock"))?;
    let allograft = command::build_allograft()?;
    let workshop = Workshop::new(&home)?;
    let names = WORK.map(|(name, _)| name);
    println!("a profile of the heap, against none; 2 threads; ratios with 95 % intervals:");
    println!("| donor | program | time | processor time | peak memory, bytes more |");
    println!("| --- | --- | --- | --- | --- |");
    for donor in DONORS {
        let programs = workshop.link(donor, Some((&allograft, &["--donor", donor])), &names)?;
        let cases: Vec<Case> = WORK.iter().zip(&programs).map(|(work, program)| case(*work, program, &home)).collect();
        let plan = Plan {
            budget: Duration::from_secs(150),
            least_rounds: 11,
            most_rounds: 60,
            precision: 0.01,
            of_the_difference: 0.0,
            memory_runs: 3,
            count_calls: false,
            ..Plan::default()
        };
        let (results, _) = sessions::compare_all(&cases, &plan)?;
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
fn case((name, work): (&str, &[&str]), program: &Path, home: &Path) -> Case {
    let arguments = || ["2"].into_iter().chain(work.iter().copied());
    let off = sessions::arm("off", program, arguments());
    let mut on: Arm = sessions::arm("on", program, arguments());
    on.invocation.environment.push(("ALLOGRAFT_HEAP".into(), home.join("profile.pb.gz").into()));
    sessions::case(name, vec![off, on])
}

fn text(ratio: &Option<Ratio>) -> String {
    let Some(ratio) = ratio else { return "not measured".to_owned() };
    match (ratio.low, ratio.high) {
        (Some(low), Some(high)) => format!("{:.3} ({low:.3} to {high:.3})", ratio.value),
        _ => format!("{:.3}", ratio.value),
    }
}

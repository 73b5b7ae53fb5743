//! `cargo xtask bench heap`: the cost of a profile of the heap while it is taken, on the programs of the suite. The
//! cost while none is taken is in that of `counting`: one comparison serves both.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use measure::case::{Arm, Case};
use measure::session::Plan;
use measure::statistics::Ratio;
use tools::command;
use xtask::sessions;

use crate::builds::{Part, Workshop};
use crate::experiment::Bench;
use crate::finished::shown;

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
    let bench = Bench::open("heap")?;
    let workshop = Workshop::new(&bench.home, &command::build_allograft()?)?;
    let sources = WORK.map(|(name, _)| Part::suite(name));
    println!("a profile of the heap, against none; 2 threads; ratios with 95 % intervals:");
    println!("| donor | program | time | processor time | peak memory, bytes more |");
    println!("| --- | --- | --- | --- | --- |");
    for donor in DONORS {
        let programs = workshop.with_musl(donor, Some(&["--donor", donor]), &sources)?;
        let cases: Vec<Case> =
            WORK.iter().zip(&programs).map(|(work, program)| case(*work, program, &bench.home)).collect();
        let plan = Plan { budget: Duration::from_secs(150), most_rounds: 60, ..bench.plan(11, 1.0) };
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
    ratio.as_ref().map_or_else(|| "not measured".to_owned(), shown)
}

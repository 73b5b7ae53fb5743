//! `cargo xtask bench`: what grafting itself costs; and the way to the other benchmarks.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail};
use zigcc::Arch;

use crate::rounds::{self, Effort, Spread};
use crate::{
    command, counting, finished, lto, memory, profiles, released, rust_programs, setup, strings, suite, workspace,
};

/// Of the design: time and memory of grafting one `libc.a`.
const GOAL_MS: f64 = 50.0;
const GOAL_MB: f64 = 64.0;
const RUNS: usize = 60;

/// `cargo xtask bench [graft | counting | profiles | strings [..] | suite [..] | tables | rust [..] | lto [..] | released [..] |
/// finished [..]]`.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    match arguments {
        [] => {}
        [suite] if suite == "graft" => {}
        [suite] if suite == "counting" => return counting::bench(),
        [suite] if suite == "profiles" => return profiles::bench(),
        [suite, arguments @ ..] if suite == "strings" => return strings::bench(arguments),
        [suite, arguments @ ..] if suite == "suite" => return suite::bench(arguments),
        [suite, arguments @ ..] if suite == "rust" => return rust_programs::bench(arguments),
        [suite, arguments @ ..] if suite == "released" => return released::bench(arguments),
        [suite, arguments @ ..] if suite == "finished" => return finished::bench(arguments),
        [suite] if suite == "tables" => return suite::tables(),
        [suite, arguments @ ..] if suite == "lto" => return lto::bench(arguments),
        _ => bail!(
            "`bench` knows `graft`, `counting`, `profiles`, `strings`, `suite`, `tables`, `rust`, `lto`, `released` and `finished`"
        ),
    }
    setup::prepare(setup::Extent::Everything)?;
    let allograft = command::build_allograft()?;
    let folder = workspace::build().join("bench");
    fs::create_dir_all(&folder)?;
    let _lock = setup::lock(&folder.join(".lock"))?;
    for arch in fixtures::DEBIAN {
        graft(&allograft, arch, &folder)?;
    }
    Ok(())
}

/// Runs the program against one that does nothing, interleaved: what starting a process costs here is in both.
fn graft(allograft: &Path, arch: Arch, folder: &Path) -> Result<()> {
    let libc = fixtures::debian_musl(arch).libc;
    let out = folder.join(format!("libc-{}.a", arch.name()));
    let make = |number: usize| {
        if number == 0 {
            return Command::new("true");
        }
        // The same work each time: a new file, not one that is replaced.
        let _ = fs::remove_file(&out);
        let mut command = Command::new(allograft);
        command.args(["-q", "graft"]).arg(&libc).arg("-o").arg(&out);
        command
    };
    let peak = memory::run(&mut make(1));
    let effort = Effort { least: RUNS, most: RUNS, budget: Duration::ZERO };
    let seconds = rounds::interleave(2, effort, "", &mut |number| make(number))?;
    let bytes = fs::metadata(&libc)?.len();
    println!("graft of Debian's libc.a for {} ({bytes} bytes), {RUNS} runs beside as many of `true`:", arch.name());
    for (name, figures) in ["floor (`true`)", "graft -o"].into_iter().zip(&seconds) {
        if let Some(spread) = Spread::of(figures) {
            let goal = if name == "graft -o" { format!("   goal {GOAL_MS} ms") } else { String::new() };
            let (median, low, high) = (spread.median * 1e3, spread.low * 1e3, spread.high * 1e3);
            println!("  {name:<16} median {median:>7.2} ms   min {low:>7.2}   max {high:>7.2}{goal}");
        }
    }
    match peak {
        #[allow(clippy::cast_precision_loss, reason = "megabytes with one decimal")]
        Ok(run) => println!(
            "  {:<16} {:>14.1} MB                              goal {GOAL_MB} MB",
            "peak memory",
            run.peak as f64 / 1e6
        ),
        Err(error) => println!("  {:<16} not measured: {error:#}", "peak memory"),
    }
    Ok(())
}

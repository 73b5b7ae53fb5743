//! The memory that a process still holds after it has done its work and freed everything.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use measure::case::{Arm, Case};
use serde::{Deserialize, Serialize};

use crate::profiles::median;

/// The number of runs of each arm, without `--quick`; each figure is their median.
pub(super) const RUNS: usize = 3;
/// The pause between the end of the work and the reading of memory.
pub(super) const CALM: Duration = Duration::from_secs(2);
/// The time limit of the work.
const LIMIT: Duration = Duration::from_secs(60);

/// Bytes resident in a process of each arm.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct IdleMemory {
    pub(super) name: String,
    pub(super) arms: Vec<u64>,
    /// The number of runs of each arm.
    #[serde(default = "usual_runs")]
    pub(super) runs: usize,
}

/// Older files do not name the number.
fn usual_runs() -> usize {
    RUNS
}

/// Measures `runs` processes of each arm of a case. `script` does the work, makes the file `$IDLE`, and waits in the
/// measured process.
///
/// # Errors
/// The process ends, or never gets idle.
pub(crate) fn measure_idle(script: &str, case: &Case, runs: usize) -> Result<IdleMemory> {
    eprintln!("bench: idle {} ...", case.name);
    let mut printed: Vec<Vec<u64>> = case.arms.iter().map(|_| Vec::new()).collect();
    for _ in 0..runs {
        for (arm, printed) in case.arms.iter().zip(&mut printed) {
            printed.push(one(script, arm).with_context(|| format!("{} with {}", case.name, arm.name))?);
        }
    }
    Ok(IdleMemory { name: case.name.clone(), arms: printed.into_iter().map(median).collect(), runs })
}

fn one(script: &str, arm: &Arm) -> Result<u64> {
    let folder = tempfile::tempdir()?;
    let sign = folder.path().join("idle");
    let mut command = Command::new("sh");
    command.args(["-c", script]).envs(arm.invocation.environment.iter().cloned()).env("IDLE", &sign);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
    let held = wait(&mut child, &sign).and_then(|()| resident(child.id()));
    let ended = child.try_wait()?;
    child.kill()?;
    child.wait()?;
    if let Some(status) = ended {
        bail!("ended with {status} instead of waiting");
    }
    held
}

/// Waits until the file `sign` says that the program is idle, and then for [`CALM`].
fn wait(child: &mut Child, sign: &Path) -> Result<()> {
    let began = Instant::now();
    while !sign.exists() {
        if began.elapsed() > LIMIT || child.try_wait()?.is_some() {
            bail!("was not idle within {} seconds", LIMIT.as_secs());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    std::thread::sleep(CALM);
    Ok(())
}

/// Returns the bytes that are resident in a process, by /proc/PID/smaps_rollup.
fn resident(process: u32) -> Result<u64> {
    let path = format!("/proc/{process}/smaps_rollup");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read `{path}`"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("Rss:"));
    let kilobytes: Option<u64> = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse().ok());
    kilobytes.map(|kilobytes| kilobytes << 10).with_context(|| format!("`{path}` has no line `Rss:`"))
}

//! Several runs at once on the same files, some of them killed, beside a reader.

use std::path::PathBuf;
use std::process::{Child, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::signal::Signal;

use crate::files::{Entry, Files, Role};
use crate::flow::Scene;
use crate::interference::{Finding, Outcome};
use crate::traced::has_running;

/// After this long, runs count as waiting for each other for ever. A run takes a second or two.
const FOREVER: Duration = Duration::from_secs(600);

/// How many runs there are at once.
const RUNS: usize = 3;

/// Lets several runs of the flow's command, and of the one that takes it back, race; so many times. In a third of the
/// rounds one of the runs is killed after a while, and what it held must not stop the others.
///
/// # Errors
/// A run cannot be started, or the folder cannot be written.
pub fn races(scene: &Scene, rounds: usize, seed: u64) -> Result<Outcome> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut outcome = Outcome::default();
    let built = match &scene.flow.build {
        Some(build) => {
            scene.restore()?;
            Some(scene.one_by_one(build.at_once)?)
        }
        None => None,
    };
    for _ in 0..rounds {
        let lines: Vec<&str> = match &scene.flow.build {
            Some(build) => build.at_once.to_vec(),
            None => (0..RUNS).map(|_| scene.flow.back.filter(|_| random.bool()).unwrap_or(scene.flow.line)).collect(),
        };
        let kill =
            (random.usize(0..3) == 0).then(|| (random.usize(0..RUNS), Duration::from_millis(random.u64(0..400))));
        outcome.done += 1;
        if let Some(wrong) = race(scene, &lines, kill, built.as_ref())? {
            let killed =
                kill.map_or_else(String::new, |(which, after)| format!(", run {which} killed after {after:?}"));
            outcome.findings.push(Finding { at: format!("{}: {}{killed}", scene.name(), lines.join(" | ")), wrong });
        }
    }
    Ok(outcome)
}

/// Runs these lines at once; `built` is what they make one after the other, if they build something. Returns the first
/// thing that was wrong.
fn race(
    scene: &Scene,
    lines: &[&str],
    kill: Option<(usize, Duration)>,
    built: Option<&Files>,
) -> Result<Option<String>> {
    scene.restore()?;
    let states = built.map_or_else(|| scene.states(), |built| vec![&scene.begin, built]);
    let over = AtomicBool::new(false);
    let mut ends = Vec::new();
    let read = thread::scope(|scope| {
        let reader = scope.spawn(|| reads(scene, &states, &over));
        ends = run(scene, lines, kill)?;
        over.store(true, Ordering::Relaxed);
        reader.join().expect("the reader does not panic")
    })
    .map(|torn| torn.map(|path| format!("a reader found `{path}` neither as before nor as after")));
    if let Some(wrong) = read? {
        return Ok(Some(wrong));
    }
    for (number, (status, said)) in ends.iter().enumerate() {
        let was_killed = kill.is_some_and(|(which, _)| which == number);
        let Some(status) = status else { return Ok(Some(format!("run {number} did not end in {FOREVER:?}"))) };
        let is_fine = status.success() || was_killed && killed(*status);
        if !is_fine {
            return Ok(Some(format!("run {number} ended with {status}\n{said}")));
        }
    }
    let torn = scene.torn(&scene.files()?, &states);
    match (torn.is_empty(), built) {
        (false, _) => Ok(Some(format!("torn: {torn:?}"))),
        (true, Some(built)) => {
            let differences = scene.one_by_one(lines)?.differences(built);
            Ok((!differences.is_empty()).then(|| format!("after the next runs these differ: {differences:?}")))
        }
        // `graft` again could leave another record: it names the graft that it replaced, if there was one.
        (true, None) => scene.next(true),
    }
}

fn killed(status: ExitStatus) -> bool {
    std::os::unix::process::ExitStatusExt::signal(&status) == Some(Signal::SIGKILL as i32)
}

/// Reads the users' files until it is over. Returns one that was neither as before nor as after.
fn reads(scene: &Scene, states: &[&Files], over: &AtomicBool) -> Result<Option<String>> {
    if scene.flow.build.as_ref().is_some_and(|build| build.writes_in_place) {
        return Ok(None);
    }
    let mut paths: Vec<&PathBuf> =
        states.iter().flat_map(|files| files.0.keys()).filter(|path| (scene.flow.role)(path) == Role::Host).collect();
    paths.sort();
    paths.dedup();
    while !over.load(Ordering::Relaxed) {
        for path in &paths {
            let known = states.iter().map(|files| files.0.get(*path));
            let whole: Vec<Option<&[u8]>> = known
                .filter_map(|entry| match entry {
                    Some(Entry::File { content, .. }) => Some(Some(content.as_slice())),
                    Some(Entry::Folder | Entry::Link(_)) => None,
                    None => Some(None),
                })
                .collect();
            let now = match std::fs::read(scene.folder().join(path)) {
                Ok(content) => Some(content),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
                Err(error) if error.kind() == std::io::ErrorKind::IsADirectory => continue,
                Err(error) => return Err(error).with_context(|| format!("cannot read `{}`", path.display())),
            };
            if !whole.contains(&now.as_deref()) {
                return Ok(Some(path.display().to_string()));
            }
        }
    }
    Ok(None)
}

/// Starts all of the lines, and kills one of them if asked. Returns how each ended, `None` for one that did not, and
/// what it said.
fn run(scene: &Scene, lines: &[&str], kill: Option<(usize, Duration)>) -> Result<Vec<(Option<ExitStatus>, String)>> {
    let begin = Instant::now();
    let said = tempfile::tempdir()?;
    let path = |number: usize| said.path().join(number.to_string());
    let mut runs = Vec::new();
    for (number, line) in lines.iter().enumerate() {
        let file = std::fs::File::create(path(number))?;
        let mut command = scene.command(line);
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        runs.push(command.stdout(file.try_clone()?).stderr(file).spawn().context("allograft does not start")?);
    }
    let mut ends: Vec<Option<ExitStatus>> = vec![None; runs.len()];
    while ends.iter().any(Option::is_none) && begin.elapsed() < FOREVER {
        if let Some((which, after)) = kill
            && begin.elapsed() >= after
            && ends[which].is_none()
        {
            runs[which].kill()?;
        }
        for (end, run) in ends.iter_mut().zip(&mut runs) {
            if end.is_none() {
                *end = run.try_wait()?;
            }
        }
        thread::sleep(Duration::from_millis(1));
    }
    runs.iter_mut().zip(&ends).filter(|(_, end)| end.is_none()).try_for_each(|(run, _)| stop(run))?;
    // The compiler of a run that was killed goes on.
    while runs.iter().any(|run| has_running(run.id())) && begin.elapsed() < FOREVER {
        thread::sleep(Duration::from_millis(1));
    }
    let said = (0..lines.len()).map(|number| std::fs::read(path(number)));
    let said =
        said.map(|text| text.map(|text| String::from_utf8_lossy(&text).into_owned())).collect::<Result<Vec<_>, _>>()?;
    Ok(ends.into_iter().zip(said).collect())
}

fn stop(run: &mut Child) -> Result<()> {
    run.kill()?;
    run.wait()?;
    Ok(())
}

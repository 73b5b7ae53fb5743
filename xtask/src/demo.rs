//! `cargo xtask demo`: compares one program on a stock musl, on grafts of it and on glibc; then undoes the graft.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use measure::session::{Plan, Session};
use measure::statistics::{Spread, median};
use sha2::{Digest, Sha256};

use tools::{command, folder, workspace};
use xtask::linking::{self, Compiler, Musl};
use xtask::sessions;

const THREADS: [usize; 3] = [1, 2, 8];
const KEYS: &str = "20000";

/// One build of the program.
struct Arm {
    label: String,
    program: PathBuf,
}

/// The duration of the measurement.
struct Length {
    lookups: &'static str,
    least_rounds: usize,
    most_rounds: usize,
    /// The budget for each number of threads.
    budget: Duration,
}

const FULL: Length = Length { lookups: "10000000", least_rounds: 3, most_rounds: 7, budget: Duration::from_secs(20) };
const QUICK: Length = Length { lookups: "1000000", least_rounds: 3, most_rounds: 3, budget: Duration::from_secs(60) };

/// `cargo xtask demo [--quick]`.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    match arguments {
        [] => compare(&FULL, &tools::prepare_for_demo()?),
        [flag] if flag == "--quick" => compare(&QUICK, &tools::prepare_for_demo()?),
        _ => bail!("`demo` takes `--quick` or nothing"),
    }
}

/// The short form for CI, with the variables of its builds.
pub(crate) fn quick(environment: &[(String, String)]) -> Result<()> {
    tools::prepare_for_demo()?;
    compare(&QUICK, environment)
}

fn compare(length: &Length, environment: &[(String, String)]) -> Result<()> {
    eprintln!("demo: building allograft ...");
    let allograft = command::build_for_tests(environment)?;
    let home = workspace::build().join("demo");
    fs::create_dir_all(&home)?;
    let _lock = folder::lock(&home.join(".lock"))?;

    heading("Graft");
    let musl = Musl::find()?;
    let stock = fresh(&home.join("stock"), &musl)?;
    let alone = fresh(&home.join("without-strings"), &musl)?;
    let graft = fresh(&home.join("graft"), &musl)?;
    let other = fresh(&home.join("mimalloc3"), &musl)?;
    println!("host: {} ({} bytes)", musl.name, grouped(&fs::metadata(&stock)?.len().to_string()));
    command::run(in_root(&allograft, &["graft", "--strings", "off"]).arg(shown(&alone)))?;
    command::run(in_root(&allograft, &["graft"]).arg(shown(&graft)))?;
    command::run(in_root(&allograft, &["graft", "--donor", "mimalloc3"]).arg(shown(&other)))?;

    let compiler = Compiler::find()?;
    let hosts = [("stock", &*stock), ("without-strings", &*alone), ("graft", &*graft), ("mimalloc3", &*other)];
    let mut arms = link(&compiler, &musl, &home, &hosts)?;
    for arm in arms.iter_mut().skip(1) {
        arm.label = carried(&allograft, &arm.program)?;
    }
    arms[0].label = "stock musl".to_owned();
    let glibc = linking::with_glibc(&compiler, &source(), &["1", "10", "10"], &home.join("glibc"))?;
    arms.extend(glibc.map(|program| Arm { label: "glibc".to_owned(), program }));
    if arms.len() == hosts.len() {
        println!("no glibc on this machine: that arm is left out");
    }
    measure(&arms, length, &compiler)?;

    heading("What is in the programs");
    let programs: Vec<PathBuf> = arms.iter().map(|arm| shown(&arm.program)).collect();
    command::run(in_root(&allograft, &["inspect"]).args(&programs))?;

    heading("Is the graft whole?");
    command::run(in_root(&allograft, &["verify", "--static-only"]).arg(shown(&graft)))?;

    heading("Undo");
    let grafted = digest(&graft)?;
    command::run(in_root(&allograft, &["undo"]).arg(shown(&graft)))?;
    prove_undone(&stock, &graft, &grafted)
}

fn heading(text: &str) {
    println!("\n== {text}");
}

/// Returns a command that runs allograft in the checkout's root, so that it prints short paths.
fn in_root(allograft: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(allograft);
    command.current_dir(workspace::root()).args(arguments);
    command
}

fn shown(path: &Path) -> PathBuf {
    PathBuf::from(workspace::shown(path))
}

fn source() -> PathBuf {
    workspace::root().join("suite").join("map").join("map.c")
}

/// Makes a new folder with a copy of the musl in `lib`. Returns the path of its `libc.a`.
fn fresh(folder: &Path, musl: &Musl) -> Result<PathBuf> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove `{}`", folder.display()))
        }
        _ => musl.copy(&folder.join("lib")),
    }
}

/// Links one object, which is compiled with musl's headers, against each `libc.a`.
fn link(compiler: &Compiler, musl: &Musl, home: &Path, hosts: &[(&str, &Path)]) -> Result<Vec<Arm>> {
    let object = home.join("map.o");
    musl.compile(compiler, &source(), &object)?;
    let mut arms = Vec::new();
    for (name, libc) in hosts {
        let program = home.join(name).join("map");
        musl.link(compiler, &object, libc.parent().context("libc.a has no folder")?, &program)?;
        arms.push(Arm { label: (*name).to_owned(), program });
    }
    Ok(arms)
}

/// Returns the malloc and string functions that `inspect` finds in a program.
fn carried(allograft: &Path, program: &Path) -> Result<String> {
    let said = command::output(in_root(allograft, &["inspect", "--json"]).arg(program))?;
    let report: serde_json::Value = serde_json::from_str(&said).context("`inspect --json` printed no JSON")?;
    let (malloc, strings) = (&report["files"][0]["malloc"], &report["files"][0]["strings"]);
    let name = malloc["name"].as_str().context("`inspect --json` names no malloc")?;
    let version = malloc["version"].as_str().map(|version| format!(" {version}")).unwrap_or_default();
    let strings = if strings == "grafted" { " + strings" } else { "" };
    Ok(format!("{name}{version}{strings}"))
}

fn measure(arms: &[Arm], length: &Length, compiler: &Compiler) -> Result<()> {
    heading("Measure");
    eprintln!("demo: measuring, about a minute at most ...");
    let rounds = Plan { least_rounds: length.least_rounds, most_rounds: length.most_rounds, ..Plan::default() };
    let plan = Plan { budget: length.budget, memory_runs: 1, count_calls: false, ..rounds };
    let mut sessions = Vec::new();
    for threads in THREADS {
        let run = |arm: &Arm| sessions::arm(&arm.label, &arm.program, [&threads.to_string(), KEYS, length.lookups]);
        let case = sessions::case(&format!("map with {threads} threads"), arms.iter().map(run).collect());
        sessions.push(sessions::compare(&case, &plan, &mut sessions::bare())?);
    }
    // The output does not depend on the number of threads.
    let said = |session: &Session| session.end.as_ref().map(|end| end.head.clone());
    let sums = sessions.first().and_then(said).context("nothing was printed")?;
    ensure!(sessions.iter().all(|session| said(session).as_ref() == Some(&sums)), "not all printed `{sums}`");
    let rounds = sessions.iter().map(|session| session.arms[0].runs.len()).max().unwrap_or_default();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let (keys, lookups) = (grouped(KEYS), grouped(length.lookups));
    println!("suite/map: a hash map of {keys} keys of 32 integers, {lookups} lookups with a fresh key each");
    println!("{rounds} rounds in random order; {processors} processors; {}; all printed: {sums}", compiler.name());
    print_table(arms, &sessions);
    Ok(())
}

/// Prints rows of figures by threads and arm. Ratios are of wall-clock time within one round; below 1 is faster.
/// `sessions` are in the order of [`THREADS`].
fn print_table(arms: &[Arm], sessions: &[Session]) {
    let glibc = arms.iter().position(|arm| arm.label == "glibc");
    println!("\nthreads  libc                       median s   time/stock (min-max)   time/glibc (min-max)   peak MB");
    let ratios = |session: &Session, arm: usize, to: usize| sessions::ratios(&session.arms[arm], &session.arms[to]);
    for (threads, session) in THREADS.into_iter().zip(sessions) {
        for (number, arm) in arms.iter().enumerate() {
            let median = median(&sessions::seconds(&session.arms[number]));
            let to_stock = ratio(&ratios(session, number, 0), number == 0);
            let to_glibc =
                glibc.map_or("-".to_owned(), |glibc| ratio(&ratios(session, number, glibc), number == glibc));
            let peak = sessions::megabytes(&session.arms[number]).map_or("-".to_owned(), |peak| format!("{peak:.1}"));
            let first = if number == 0 { threads.to_string() } else { String::new() };
            println!("{first:<7}  {:<26} {median:>8.3}   {to_stock:<20}   {to_glibc:<20}   {peak:>7}", arm.label);
        }
        println!();
    }
    let (Some(most), Some(session)) = (THREADS.last(), sessions.last()) else { return };
    for (number, arm) in arms.iter().enumerate().skip(1).filter(|(number, _)| Some(*number) != glibc) {
        let times = median(&ratios(session, 0, number));
        println!("{most} threads: {} makes this program {times:.1} times as fast as stock", arm.label);
    }
}

/// Returns digits in groups of three.
fn grouped(digits: &str) -> String {
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

fn ratio(ratios: &[f64], itself: bool) -> String {
    match Spread::new(ratios) {
        Some(_) if itself => "1".to_owned(),
        Some(spread) => format!("{:.2} ({:.2}-{:.2})", spread.median, spread.min, spread.max),
        None => "-".to_owned(),
    }
}

/// Compares the undone host and its folder with untouched ones.
fn prove_undone(stock: &Path, undone: &Path, grafted: &str) -> Result<()> {
    let (before, after) = (digest(stock)?, digest(undone)?);
    println!("stock    sha256 {before}\ngrafted  sha256 {grafted}\nundone   sha256 {after}");
    ensure!(grafted != before, "the graft changed nothing");
    ensure!(before == after, "undo did not bring the stock bytes back");
    ensure!(names(stock)? == names(undone)?, "undo left files behind: {:?}", names(undone)?);
    println!("The bytes are back, and nothing is left beside them.");
    Ok(())
}

fn names(libc: &Path) -> Result<Vec<String>> {
    let folder = fs::read_dir(libc.parent().context("libc.a has no folder")?)?;
    let mut names = Vec::new();
    for entry in folder {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

fn digest(path: &Path) -> Result<String> {
    let bytes = fs::read(path).with_context(|| format!("cannot read `{}`", path.display()))?;
    Ok(Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_grouped_from_the_end() {
        assert_eq!(["7", "100", "20000", "10000000"].map(grouped), ["7", "100", "20,000", "10,000,000"]);
    }

    #[test]
    fn a_ratio_shows_its_spread() {
        assert_eq!(ratio(&[0.5, 1.0, 1.5], false), "1.00 (0.50-1.50)");
        assert_eq!(ratio(&[], false), "-");
    }
}

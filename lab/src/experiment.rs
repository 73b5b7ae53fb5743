//! The runner of experiments: options, a locked folder, the plan of timed runs, figures that are kept.
//!
//! An experiment is an [`Experiment`], a function that measures, and a line in `tables`. Arms, cases and plans are code
//! of each, not a file of data: they come of builds.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use measure::case::Case;
use measure::machine::Machine;
use measure::results::{self, Input, Origin, Results, SCHEMA_VERSION};
use measure::session::Plan;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tools::{folder, workspace};
use xtask::sessions;

/// An experiment whose figures are kept.
#[derive(Debug)]
pub(crate) struct Experiment<F> {
    /// Its name, which is also that of its folder and of its file in `docs/figures`.
    pub(crate) name: &'static str,
    /// The programs that can be chosen.
    pub(crate) programs: &'static [&'static str],
    /// Minutes for all timed runs, without `--minutes`.
    pub(crate) minutes: u64,
    /// Makes the table of the figures.
    pub(crate) table: fn(&F) -> String,
}

/// Options of the experiments that measure programs.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Options {
    /// Little work and a single round, to see whether everything works
    #[arg(long)]
    pub(crate) quick: bool,
    /// Minutes for all timed runs [default: 1 to 40, by experiment]
    #[arg(long)]
    pub(crate) minutes: Option<u64>,
    /// Keep the figures in this file
    #[arg(long, value_name = "FILE")]
    pub(crate) save: Option<PathBuf>,
    /// These programs only
    #[arg(value_name = "PROGRAM")]
    pub(crate) programs: Vec<String>,
}

/// Options of the experiments that print their figures and keep none.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct QuickArgs {
    /// Little work and a single round, to see whether everything works
    #[arg(long)]
    pub(crate) quick: bool,
}

/// A run of an experiment. Its folder is locked until this is dropped.
#[derive(Debug)]
pub(crate) struct Bench {
    /// The experiment's folder.
    pub(crate) home: PathBuf,
    /// Whether a single round is made, with little work.
    pub(crate) quick: bool,
    /// For all timed runs; none for a quick run.
    pub(crate) budget: Duration,
    programs: Vec<String>,
    _lock: File,
}

impl Bench {
    /// Prepares the tools and the musl of most experiments, and opens the folder of one.
    ///
    /// # Errors
    /// A tool cannot be fetched, or the folder cannot be made.
    pub(crate) fn open(name: &str) -> Result<Bench> {
        tools::prepare_for_one()?;
        Bench::at(workspace::build().join("bench").join(name))
    }

    /// Opens a folder, without preparations.
    ///
    /// # Errors
    /// It cannot be made.
    pub(crate) fn at(home: PathBuf) -> Result<Bench> {
        fs::create_dir_all(&home)?;
        let lock = folder::lock(&home.join(".lock"))?;
        Ok(Bench { home, quick: false, budget: Duration::ZERO, programs: Vec::new(), _lock: lock })
    }

    /// Returns the run as the user wants it: quick, or with `budget` for all timed runs.
    pub(crate) fn within(self, args: QuickArgs, budget: Duration) -> Bench {
        Bench { quick: args.quick, budget: if args.quick { Duration::ZERO } else { budget }, ..self }
    }

    /// Whether a program is among those that the user wants.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.programs.is_empty() || self.programs.iter().any(|program| program == name)
    }

    /// Returns a plan of at least `rounds` rounds within a share of the time, from 0 to 1, and of three runs for
    /// memory. A quick run has one of each.
    pub(crate) fn plan(&self, rounds: usize, share: f64) -> Plan {
        Plan {
            budget: self.budget.mul_f64(share),
            least_rounds: if self.quick { 1 } else { rounds },
            memory_runs: if self.quick { 1 } else { 3 },
            of_the_difference: 0.0,
            count_calls: false,
            ..Plan::default()
        }
    }

    /// Returns an empty folder below that of the experiment.
    ///
    /// # Errors
    /// It cannot be made.
    pub(crate) fn emptied(&self, name: &str) -> Result<PathBuf> {
        let folder = self.home.join(name);
        if folder.exists() {
            fs::remove_dir_all(&folder).with_context(|| format!("cannot remove `{}`", folder.display()))?;
        }
        fs::create_dir_all(&folder)?;
        Ok(folder)
    }
}

impl<F: Figures> Experiment<F> {
    /// Measures in the experiment's folder, prints the table, and keeps the figures if the user wants that.
    ///
    /// # Errors
    /// Those of `measure`. A program is unknown, or a part of an experiment would be kept.
    pub(crate) fn run(&self, options: &Options, measure: impl FnOnce(&Bench) -> Result<F>) -> Result<()> {
        if let Some(other) = options.programs.iter().find(|name| !self.programs.contains(&name.as_str())) {
            let expected = if self.programs.is_empty() { "none" } else { &self.programs.join(", ") };
            bail!("`{}` has no program `{other}` to choose; expected {expected}", self.name);
        }
        let is_whole = !options.quick && options.programs.is_empty();
        ensure!(options.save.is_none() || is_whole, "a run with --quick, or of some programs, is not kept");
        let bench = self.chosen(options, Bench::open(self.name)?);
        let figures = measure(&bench)?;
        self.keep(&bench, figures, options.save.as_deref())
    }

    /// Returns the run as the user wants it.
    pub(crate) fn chosen(&self, options: &Options, bench: Bench) -> Bench {
        let minutes = if options.quick { 0 } else { options.minutes.unwrap_or(self.minutes) };
        let (budget, programs) = (Duration::from_secs(minutes * 60), options.programs.clone());
        Bench { quick: options.quick, budget, programs, ..bench }
    }

    /// Prints the table, and keeps the figures: all of them in the experiment's folder, those without single runs in
    /// `file`.
    ///
    /// # Errors
    /// A file cannot be written.
    pub(crate) fn keep(&self, bench: &Bench, figures: F, file: Option<&Path>) -> Result<()> {
        println!("{}", (self.table)(&figures));
        let whole = bench.home.join("results.json");
        fs::write(&whole, results::document(&figures)?)
            .with_context(|| format!("cannot write `{}`", whole.display()))?;
        println!("every run: `{}`", workspace::shown(&whole));
        file.map_or(Ok(()), |file| save(&figures.without_runs(), file))
    }

    /// Returns the table of the kept figures, or a line that says that no figures are kept.
    ///
    /// # Errors
    /// They cannot be read.
    pub(crate) fn kept_table(&self) -> Result<String> {
        let kept: Option<F> = kept(self.name)?;
        Ok(kept.map_or_else(|| "No figures are kept yet.".to_owned(), |figures| (self.table)(&figures)))
    }
}

/// The document of an experiment.
pub(crate) trait Figures: Serialize + DeserializeOwned {
    /// Leaves out single runs, from which no table is made.
    fn without_runs(self) -> Self {
        self
    }
}

impl Figures for Results {
    fn without_runs(self) -> Results {
        Results::without_runs(self)
    }
}

/// Figures, and what they are of.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Record<T> {
    schema_version: u32,
    pub(crate) allograft: String,
    pub(crate) machine: Machine,
    #[serde(flatten)]
    pub(crate) figures: T,
}

impl<T> Record<T> {
    /// The figures are of this machine and this version.
    pub(crate) fn new(figures: T) -> Record<T> {
        let (allograft, machine) = (env!("CARGO_PKG_VERSION").to_owned(), Machine::this());
        Record { schema_version: 1, allograft, machine, figures }
    }

    /// Names the machine and the version, for the line after a table.
    pub(crate) fn origin(&self) -> String {
        format!("{}; allograft {}", self.machine.description(), self.allograft)
    }
}

impl<T: Figures> Figures for Record<T> {
    fn without_runs(self) -> Record<T> {
        Record { figures: self.figures.without_runs(), ..self }
    }
}

/// Measures cases by `plan`, and returns the document of `allograft bench`.
///
/// # Errors
/// An arm fails, or its result differs from the first arm's.
pub(crate) fn compared(input: Input, origins: &[Origin], cases: &[Case], plan: Plan) -> Result<Results> {
    let (measured, sessions) = sessions::compare_all(cases, &plan)?;
    Ok(Results {
        schema_version: SCHEMA_VERSION,
        allograft: env!("CARGO_PKG_VERSION").to_owned(),
        input,
        machine: Machine::this(),
        arms: results::arms(origins, &measured, &sessions),
        plan,
        cases: measured,
        recommendation: None,
        warnings: Vec::new(),
        interrupted: false,
    })
}

/// Returns the words for all numbers of rounds from `least` to `most`.
pub(crate) fn range(least: usize, most: usize) -> String {
    if least == most { most.to_string() } else { format!("{least} to {most}") }
}

/// Runs `work` for each number below `count`, on all processors. Returns the results in the order of the numbers.
///
/// # Errors
/// Those of `work`.
pub(crate) fn parallel<T: Send>(count: usize, work: impl Fn(usize) -> Result<T> + Sync) -> Result<Vec<T>> {
    let (next, results) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let run = || -> Result<()> {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            if at >= count {
                return Ok(());
            }
            let result = work(at)?;
            results.lock().map_err(|_| anyhow!("a thread panicked"))?.push((at, result));
        }
    };
    std::thread::scope(|scope| {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let threads: Vec<_> = (0..processors).map(|_| scope.spawn(run)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(|_| bail!("a thread panicked")))
    })?;
    let mut results = results.into_inner().map_err(|_| anyhow!("a thread panicked"))?;
    results.sort_by_key(|(at, _)| *at);
    Ok(results.into_iter().map(|(_, result)| result).collect())
}

/// Reads `docs/figures/NAME.json`; `None` if there is no such file.
///
/// # Errors
/// It cannot be read, or has a different form.
pub(crate) fn kept<F: DeserializeOwned>(name: &str) -> Result<Option<F>> {
    let path = workspace::root().join("docs/figures").join(name).with_extension("json");
    if !path.is_file() {
        return Ok(None);
    }
    let bytes = fs::read(&path).with_context(|| format!("cannot read `{}`", path.display()))?;
    serde_json::from_slice(&bytes).with_context(|| format!("`{}` holds no such figures", path.display())).map(Some)
}

/// Reads `docs/figures/NAME.json`.
///
/// # Errors
/// As [`kept`], or there is no such file.
pub(crate) fn present<F: DeserializeOwned>(name: &str) -> Result<F> {
    let file = format!("docs/figures/{name}.json");
    kept(name)?.with_context(|| format!("there is no `{file}`: `cargo xtask bench NAME --save {file}` makes it"))
}

/// Writes figures to a file in the form of `docs/figures`.
///
/// # Errors
/// It cannot be written.
pub(crate) fn save(figures: &impl Serialize, file: &Path) -> Result<()> {
    fs::create_dir_all(file.parent().unwrap_or(file))?;
    fs::write(file, results::compact(figures)?).with_context(|| format!("cannot write `{}`", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Serialize, Deserialize)]
    struct Sum {
        sum: u64,
    }

    impl Figures for Sum {}

    const EXPERIMENT: Experiment<Record<Sum>> =
        Experiment { name: "trial", programs: &["map"], minutes: 1, table: |sum| sum.figures.sum.to_string() };

    #[test]
    fn a_part_of_an_experiment_is_not_kept() {
        let refused = |options: Options| {
            let none = |_: &Bench| -> Result<Record<Sum>> { panic!("it was measured") };
            EXPERIMENT.run(&options, none).unwrap_err().to_string()
        };
        let save = Some(PathBuf::from("kept.json"));
        assert!(refused(Options { quick: true, save: save.clone(), ..Options::default() }).contains("is not kept"));
        let programs = vec!["map".to_owned()];
        assert!(refused(Options { programs, save, ..Options::default() }).contains("is not kept"));
        let programs = vec!["http".to_owned()];
        let unknown = refused(Options { programs, ..Options::default() });
        assert_eq!(unknown, "`trial` has no program `http` to choose; expected map");
    }

    #[test]
    fn kept_figures_are_read_as_they_were_written() {
        let folder = tempfile::tempdir().unwrap();
        let bench = Bench::at(folder.path().join("home")).unwrap();
        let file = folder.path().join("kept.json");
        EXPERIMENT.keep(&bench, Record::new(Sum { sum: 7 }), Some(&file)).unwrap();
        let read: Record<Sum> = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        assert_eq!((read.figures.sum, read.origin()), (7, Record::new(Sum { sum: 7 }).origin()));
        assert!(bench.home.join("results.json").is_file());
        assert_eq!(EXPERIMENT.kept_table().unwrap(), "No figures are kept yet.");
    }

    #[test]
    fn results_are_in_the_order_of_the_numbers_whoever_is_first() {
        let slow_first = |at: usize| {
            std::thread::sleep(Duration::from_millis(if at == 0 { 20 } else { 0 }));
            if at < 9 { Ok(at * at) } else { bail!("{at} is too many") }
        };
        assert_eq!(parallel(9, slow_first).unwrap(), [0, 1, 4, 9, 16, 25, 36, 49, 64]);
        assert_eq!(parallel(10, slow_first).unwrap_err().to_string(), "9 is too many");
    }

    #[test]
    fn a_quick_run_has_one_round_of_everything() {
        let folder = tempfile::tempdir().unwrap();
        let bench = Bench::at(folder.path().to_owned()).unwrap();
        let whole = bench.within(QuickArgs { quick: false }, Duration::from_secs(60));
        let plan = whole.plan(6, 0.5);
        assert_eq!((plan.budget, plan.least_rounds, plan.memory_runs), (Duration::from_secs(30), 6, 3));
        let plan = whole.within(QuickArgs { quick: true }, Duration::from_secs(60)).plan(6, 0.5);
        assert_eq!((plan.budget, plan.least_rounds, plan.memory_runs), (Duration::ZERO, 1, 1));
    }
}

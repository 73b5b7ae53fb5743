//! `cargo xtask bench released`: released programs and their grafts do the same work and must print the same output.
//! Compares time and memory.

mod compiled;
mod source;
mod table;
mod work;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use data_encoding::HEXLOWER;
use fixtures::Arch;
use measure::executor::{Executor, Status};
use measure::process::{Compared, Processes};
use measure::session::{Plan, Session};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tools::{command, corpus as corpus_step, workspace};
use xtask::page::Table;
use xtask::sessions;

use crate::experiment::{self, Bench};
use source::Source;
use work::Work;

/// The limit for all runs of a program's work.
const LIMIT: Duration = Duration::from_secs(1800);

/// The programs of an architecture: the name of the kept figures, and their tables in the docs.
#[derive(Debug)]
struct Sheet {
    arch: Arch,
    kept: &'static str,
    table: Table<'static>,
}

const SHEETS: [Sheet; 2] = [
    Sheet {
        arch: Arch::X86_64,
        kept: "released",
        table: of_page("<!-- made by `cargo xtask bench released --write` -->"),
    },
    Sheet {
        arch: Arch::Aarch64,
        kept: "released-aarch64",
        table: of_page("<!-- made by `cargo xtask bench released --arch aarch64 --write` -->"),
    },
];

const fn of_page(begin: &'static str) -> Table<'static> {
    Table { page: "docs/released.md", begin, end: "<!-- end of the tables of released programs -->" }
}

/// The version of the document. In version 1, each run was timed and traced at once, under ptrace, with stock and graft
/// in turns.
const SCHEMA_VERSION: u32 = 2;

/// One run, for time or for memory.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Run {
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds: Option<f64>,
    /// The maximum of resident bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    peak: Option<u64>,
}

impl Run {
    fn timed(seconds: f64) -> Run {
        Run { seconds: Some(seconds), peak: None }
    }

    fn watched(peak: u64) -> Run {
        Run { seconds: None, peak: Some(peak) }
    }
}

/// The figures of a program's work, with stock and with the graft.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Figures {
    program: String,
    about: String,
    package: String,
    arguments: Vec<String>,
    /// The exit code of all runs.
    exit_code: i32,
    /// The output of all runs, and its SHA-256: standard output, and with `errors` also standard error.
    errors: bool,
    output_bytes: u64,
    output_sha256: String,
    /// Whether its lines were sorted before the comparison, and the beginning of lines that were left out.
    sorted: bool,
    ignored: Option<String>,
    /// The SHA-256 of the graft, for programs that are released compiled: a graft has the same bytes on every machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    graft_sha256: Option<String>,
    /// The timed runs by round, each in the same round as a run of the other arm; then the runs for memory.
    stock: Vec<Run>,
    graft: Vec<Run>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Document {
    schema_version: u32,
    processors: usize,
    allograft: String,
    donor: String,
    /// The emulator that ran the programs, if any: then times are the emulator's, and not shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    emulator: Option<String>,
    programs: Vec<Figures>,
}

/// The command's arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct ReleasedArgs {
    /// These programs only
    programs: Vec<String>,
    /// At most so many timed runs of each program and of its graft
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..))]
    runs: u16,
    /// Programs released for this architecture
    #[arg(long, default_value = "x86_64", value_parser = ["x86_64", "aarch64"])]
    arch: String,
    /// The donor
    #[arg(long, value_name = "NAME", default_value = "snmalloc")]
    donor: String,
    /// Graft by this program, not by the one built here
    #[arg(long, value_name = "PROGRAM")]
    allograft: Option<PathBuf>,
    /// Keep every run in this file
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Make the table in the docs from the kept figures, and run nothing
    #[arg(long)]
    write: bool,
}

/// Grafts, measures, and prints the table.
///
/// # Errors
/// A graft behaves differently from stock, or a package cannot be fetched.
pub(crate) fn bench(args: &ReleasedArgs) -> Result<()> {
    let sheet = SHEETS.iter().find(|sheet| sheet.arch.name() == args.arch);
    let sheet = sheet.with_context(|| format!("there is no work for programs of `{}`", args.arch))?;
    if args.write {
        return sheet.table.write(&table::text(&sheet.kept()?, sheet.arch));
    }
    tools::prepare_for_one()?;
    if !fixtures::native(sheet.arch) {
        tools::table::prepare_named(&["qemu"])?;
    }
    corpus_step::prepare()?;
    let allograft = command::given_or_built(args.allograft.as_deref())?;
    let bench = Bench::at(workspace::build().join("released"))?;
    let inputs = work::inputs(&bench.home)?;
    let version = command::output(Command::new(&allograft).arg("--version"))?;
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let mut document = Document {
        schema_version: SCHEMA_VERSION,
        processors,
        allograft: version.trim().to_owned(),
        donor: args.donor.clone(),
        emulator: (!fixtures::native(sheet.arch)).then(|| fixtures::emulator_name(sheet.arch).to_owned()),
        programs: Vec::new(),
    };
    let mut wrong = Vec::new();
    for work in &work::ALL {
        let Some(source) = Source::find(work, sheet.arch) else { continue };
        if !args.programs.is_empty() && !args.programs.iter().any(|name| name == work.program) {
            continue;
        }
        match figures(work, &source, args, sheet, &allograft, &inputs) {
            Ok(figures) => document.programs.push(figures),
            Err(error) => {
                eprintln!("{}: {error:#}", work.program);
                wrong.push(work.program);
            }
        }
        // The file is written after each program, so that nothing is lost if a later one fails.
        if let Some(file) = &args.save {
            experiment::save(&document, file)?;
        }
    }
    print!("{}", table::text(&document, sheet.arch));
    ensure!(wrong.is_empty(), "not the same as stock, or not to be run: {}", wrong.join(", "));
    Ok(())
}

impl Sheet {
    /// Returns the kept figures.
    ///
    /// # Errors
    /// They cannot be read, or are of some programs only.
    fn kept(&self) -> Result<Document> {
        let document = experiment::present(self.kept)?;
        self.check_whole(&document)?;
        Ok(document)
    }

    fn check_whole(&self, document: &Document) -> Result<()> {
        let is_absent = |work: &&Work| {
            let is_kept = |kept: &Figures| kept.program == work.program && kept.arguments == work.arguments;
            Source::find(work, self.arch).is_some() && !document.programs.iter().any(is_kept)
        };
        let absent: Vec<&str> = work::ALL.iter().filter(is_absent).map(|work| work.program).collect();
        ensure!(
            absent.is_empty(),
            "`docs/figures/{}.json` is not of all programs: without {}",
            self.kept,
            absent.join(", ")
        );
        Ok(())
    }
}

fn figures(
    work: &Work,
    source: &Source,
    args: &ReleasedArgs,
    sheet: &Sheet,
    allograft: &Path,
    inputs: &Path,
) -> Result<Figures> {
    let stock = source.program()?;
    // The graft has the same file name, since some programs print it.
    let folder = inputs.with_file_name("grafts");
    fs::create_dir_all(&folder)?;
    let graft = folder.join(stock.file_name().context("a program has a name")?);
    let mut command = Command::new(allograft);
    command.args(["-q", "graft", "--donor", &args.donor]).arg(&stock).arg("-o").arg(&graft);
    // The emulator is for the self-test.
    if let Some(emulator) = fixtures::emulator(sheet.arch) {
        let folders = emulator.parent().map(Path::to_owned).into_iter();
        let rest = std::env::var_os("PATH").unwrap_or_default();
        command.env("PATH", std::env::join_paths(folders.chain(std::env::split_paths(&rest)))?);
    }
    command::output(&mut command)?;
    let grafted = fs::read(&graft).with_context(|| format!("cannot read `{}`", graft.display()))?;
    let session = session(work, [("stock", &stock), ("graft", &graft)], args, sheet, inputs)?;
    let end = session.end.as_ref().context("stock did not end")?;
    let Status::Exit(exit_code) = end.status else { bail!("stock ended with {}", end.status) };
    // An empty output would prove nothing.
    ensure!(end.bytes > 0, "both print nothing that could be compared (exit code {exit_code})");
    let rounds = session.arms[0].runs.len();
    eprintln!("{}: runs of each: {rounds}, all alike: exit code {exit_code}, {} bytes", work.program, end.bytes);
    let [stock, graft] = [0, 1].map(|arm: usize| {
        let timed = sessions::seconds(&session.arms[arm]).into_iter().map(Run::timed);
        let watched = session.arms[arm].memory.iter().map(|memory| Run::watched(memory.peak_bytes));
        timed.chain(watched).collect()
    });
    Ok(Figures {
        program: work.program.to_owned(),
        about: work.about.to_owned(),
        package: source.package(),
        arguments: work.arguments.iter().map(ToString::to_string).collect(),
        exit_code,
        output_bytes: end.bytes,
        output_sha256: HEXLOWER.encode(&end.digest),
        graft_sha256: source.file().map(|_| HEXLOWER.encode(&Sha256::digest(&grafted))),
        errors: work.errors,
        sorted: work.sorted,
        ignored: work.ignored.map(str::to_owned),
        stock,
        graft,
    })
}

/// Runs the work on stock and on the graft. All runs must end with the same exit code and output.
fn session(
    work: &Work,
    arms: [(&str, &Path); 2],
    args: &ReleasedArgs,
    sheet: &Sheet,
    inputs: &Path,
) -> Result<Session> {
    let environment = work::environment(inputs).into_iter().map(|(name, value)| (name.into(), value.into())).collect();
    let compared = Compared { errors: work.errors, sorted: work.sorted, without: work.ignored.map(str::to_owned) };
    let mut processes = Processes {
        folder: Some(inputs.join(work.folder)),
        environment: Some(environment),
        compared,
        ..Processes::default()
    };
    let arms = arms.map(|(name, program)| {
        // The command begins with an emulator if this machine cannot run the program.
        let command = fixtures::run(sheet.arch, program);
        sessions::arm(
            name,
            Path::new(command.get_program()),
            command.get_args().chain(work.arguments.iter().map(OsStr::new)),
        )
    });
    // The first run warms caches, and may change its input.
    processes.time(&arms[0].invocation, LIMIT)?;
    let runs = usize::from(args.runs);
    let plan =
        Plan { least_rounds: runs.min(10), most_rounds: runs, budget: LIMIT, count_calls: false, ..Plan::default() };
    sessions::compare(&sessions::case(work.program, arms.into()), &plan, &mut processes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_programs_and_more_have_work() {
        let mut programs: std::collections::BTreeMap<&str, usize> = std::collections::BTreeMap::new();
        for work in &work::ALL {
            *programs.entry(work.program).or_default() += 1;
            let mut sources = SHEETS.iter().filter_map(|sheet| Source::find(work, sheet.arch));
            let first = sources.next().unwrap_or_else(|| panic!("{} comes from nowhere", work.program));
            for source in [first].into_iter().chain(sources) {
                if let Source::Corpus(released) = source {
                    assert_eq!((released.malloc.as_str(), released.language), ("mallocng", None), "{}", released.name);
                }
            }
        }
        assert!(programs.len() >= 10, "{programs:?}");
    }

    /// A run of some programs may be kept with `--save`.
    #[test]
    fn figures_of_some_programs_make_no_tables() {
        let sheet = &SHEETS[0];
        let mut document = sheet.kept().unwrap();
        document.programs.retain(|kept| kept.program != "typos" && kept.about != "check their format");
        let error = sheet.check_whole(&document).unwrap_err().to_string();
        assert_eq!(error, "`docs/figures/released.json` is not of all programs: without tombi, typos");
    }

    #[test]
    fn the_tables_in_the_docs_are_those_of_the_kept_figures() {
        for sheet in &SHEETS {
            sheet.table.check(&table::text(&sheet.kept().unwrap(), sheet.arch)).unwrap();
        }
    }
}

//! `cargo xtask bench released`: released programs as they come, and their grafts: the same work, the same output, time and
//! memory of both.

mod work;

use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use fixtures::Arch;
use fixtures::corpus::{self, Released};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::page::Table;
use crate::rounds::Spread;
use crate::{command, corpus as corpus_step, memory, setup, workspace};
use work::Work;

/// Programs of an architecture: where the figures that the docs show are kept, and the table of them.
#[derive(Debug)]
struct Sheet {
    arch: Arch,
    kept: &'static str,
    table: Table,
}

const SHEETS: [Sheet; 2] = [
    Sheet {
        arch: Arch::X86_64,
        kept: "docs/figures/released.json",
        table: of_page("<!-- made by `cargo xtask bench released --write` -->"),
    },
    Sheet {
        arch: Arch::Aarch64,
        kept: "docs/figures/released-aarch64.json",
        table: of_page("<!-- made by `cargo xtask bench released --arch aarch64 --write` -->"),
    },
];

const fn of_page(begin: &'static str) -> Table {
    Table { page: "docs/executables-proof.md", begin, end: "<!-- end of the table of released programs -->" }
}

/// One run.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Run {
    seconds: f64,
    /// Bytes, from the system's high-water mark.
    peak: u64,
}

/// A program's work, on stock and on the graft.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Figures {
    program: String,
    about: String,
    package: String,
    arguments: Vec<String>,
    /// What all runs of both ended with.
    exit_code: i32,
    /// What all runs of both printed on standard output, and its SHA-256; with `errors`, on standard error as well.
    errors: bool,
    output_bytes: usize,
    output_sha256: String,
    /// Whether its lines were sorted first, and lines with what beginning were left out.
    sorted: bool,
    ignored: Option<String>,
    /// In the order in which they ran: each of one beside the same of the other.
    stock: Vec<Run>,
    graft: Vec<Run>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Document {
    schema_version: u32,
    processors: usize,
    allograft: String,
    donor: String,
    /// What ran the programs, if the machine did not: its times are none of theirs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    emulator: Option<String>,
    programs: Vec<Figures>,
}

#[derive(Debug)]
struct Wish {
    runs: usize,
    only: Vec<String>,
    save: Option<PathBuf>,
    write: bool,
    allograft: Option<PathBuf>,
    donor: String,
    sheet: &'static Sheet,
}

impl Wish {
    fn of(arguments: &[String]) -> Result<Wish> {
        let mut wish = Wish {
            runs: 10,
            only: vec![],
            save: None,
            write: false,
            allograft: None,
            donor: "mimalloc".to_owned(),
            sheet: &SHEETS[0],
        };
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let mut value = || rest.next().cloned().with_context(|| format!("`{argument}` takes a value"));
            match argument.as_str() {
                "--runs" => wish.runs = value()?.parse().context("`--runs` takes a number")?,
                "--save" => wish.save = Some(value()?.into()),
                "--write" => wish.write = true,
                "--allograft" => wish.allograft = Some(value()?.into()),
                "--donor" => wish.donor = value()?,
                "--arch" => {
                    let name = value()?;
                    let sheet = SHEETS.iter().find(|sheet| sheet.arch.name() == name);
                    wish.sheet = sheet.with_context(|| format!("there is no work for programs of `{name}`"))?;
                }
                flag if flag.starts_with('-') => {
                    bail!(
                        "`bench released` knows `--runs N`, `--save FILE`, `--write`, `--arch ARCH`, `--donor NAME`, `--allograft PROGRAM`, and programs"
                    )
                }
                name => wish.only.push(name.to_owned()),
            }
        }
        ensure!(wish.runs > 0, "`--runs` takes a number of at least 1");
        Ok(wish)
    }
}

/// `cargo xtask bench released [PROGRAM].. [--arch ARCH] [--runs N] [--donor NAME] [--save FILE] [--write]`.
///
/// `--write` makes the table in the docs from the kept figures, and runs nothing.
///
/// # Errors
/// When a graft does something else than stock, or something cannot be had.
pub(crate) fn bench(arguments: &[String]) -> Result<()> {
    let wish = Wish::of(arguments)?;
    if wish.write {
        return wish.sheet.table.write(&table(&wish.sheet.kept()?));
    }
    setup::prepare(setup::Extent::Everything)?;
    corpus_step::prepare()?;
    let allograft = match &wish.allograft {
        Some(program) => program.canonicalize().with_context(|| format!("no `{}`", program.display()))?,
        None => command::build_allograft()?,
    };
    let home = workspace::build().join("released");
    fs::create_dir_all(&home)?;
    let _lock = setup::lock(&home.join(".lock"))?;
    let inputs = work::inputs(&home)?;
    let version = command::output(Command::new(&allograft).arg("--version"))?;
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let mut document = Document {
        schema_version: 1,
        processors,
        allograft: version.trim().to_owned(),
        donor: wish.donor.clone(),
        emulator: (!fixtures::native(wish.sheet.arch)).then(|| fixtures::emulator_name(wish.sheet.arch).to_owned()),
        programs: Vec::new(),
    };
    let mut wrong = Vec::new();
    for work in &work::ALL {
        let Some(released) = wish.sheet.program(work) else { continue };
        if !wish.only.is_empty() && !wish.only.iter().any(|name| name == work.program) {
            continue;
        }
        match figures(work, released, &wish, &allograft, &home, &inputs) {
            Ok(figures) => document.programs.push(figures),
            Err(error) => {
                eprintln!("{}: {error:#}", work.program);
                wrong.push(work.program);
            }
        }
        // After each, so that nothing is lost if a later one fails.
        if let Some(save) = &wish.save {
            fs::write(save, measure::results::document(&document)?)
                .with_context(|| format!("cannot write `{}`", save.display()))?;
        }
    }
    print!("{}", table(&document));
    ensure!(wrong.is_empty(), "not the same as stock, or not to be run: {}", wrong.join(", "));
    Ok(())
}

impl Sheet {
    /// The program that a work is for, as it is released for this architecture. Not all are.
    fn program(&self, work: &Work) -> Option<Released> {
        let name = match self.arch {
            Arch::X86_64 => work.program.to_owned(),
            other => format!("{}-{}", work.program, other.name()),
        };
        corpus::listed().into_iter().find(|released| released.name == name)
    }

    fn kept(&self) -> Result<Document> {
        let Sheet { kept, .. } = self;
        let none = || format!("there is no `{kept}`: `cargo xtask bench released --save {kept}` makes it");
        let bytes = fs::read(workspace::root().join(kept)).with_context(none)?;
        serde_json::from_slice(&bytes).with_context(|| format!("`{kept}` holds no results"))
    }
}

fn figures(
    work: &Work,
    released: Released,
    wish: &Wish,
    allograft: &Path,
    home: &Path,
    inputs: &Path,
) -> Result<Figures> {
    let stock = corpus::place(&released);
    // The graft goes by the same name: some programs print it.
    let folder = home.join("grafts");
    fs::create_dir_all(&folder)?;
    let graft = folder.join(&released.name);
    let mut command = Command::new(allograft);
    command.args(["-q", "graft", "--donor", &wish.donor]).arg(&stock).arg("-o").arg(&graft);
    // For the self-test.
    if let Some(emulator) = fixtures::emulator(wish.sheet.arch) {
        let folders = emulator.parent().map(Path::to_owned).into_iter();
        let rest = std::env::var_os("PATH").unwrap_or_default();
        command.env("PATH", std::env::join_paths(folders.chain(std::env::split_paths(&rest)))?);
    }
    command::output(&mut command)?;
    let output = home.join("output");
    let run = |program: &Path| run(work, fixtures::run(wish.sheet.arch, program), inputs, &output);
    // The first run warms caches, and may put right what it finds; then stock has to agree with itself.
    run(&stock)?;
    let (_, expected) = run(&stock)?;
    let again = run(&stock)?;
    same(&expected, &again.1).context("stock against itself: this work is not fit to compare by")?;
    let ran = run(&graft)?;
    same(&expected, &ran.1).context("the first run of the graft")?;
    let (mut of_stock, mut of_graft) = (Vec::new(), Vec::new());
    for round in 0..wish.runs {
        let mut order = [(&stock, &mut of_stock), (&graft, &mut of_graft)];
        if round % 2 == 1 {
            order.reverse();
        }
        for (program, runs) in order {
            let (figures, outcome) = run(program)?;
            same(&expected, &outcome).with_context(|| format!("round {round} of `{}`", program.display()))?;
            runs.push(figures);
        }
    }
    eprintln!(
        "{}: {} runs of each, all alike: exit code {}, {} bytes",
        work.program,
        wish.runs,
        expected.0,
        expected.1.len()
    );
    Ok(Figures {
        program: work.program.to_owned(),
        about: work.about.to_owned(),
        package: released.pypi.or(released.npm).unwrap_or_default(),
        arguments: work.arguments.iter().map(ToString::to_string).collect(),
        exit_code: expected.0,
        output_bytes: expected.1.len(),
        output_sha256: Sha256::digest(&expected.1).iter().map(|byte| format!("{byte:02x}")).collect(),
        errors: work.errors,
        sorted: work.sorted,
        ignored: work.ignored.map(str::to_owned),
        stock: of_stock,
        graft: of_graft,
    })
}

/// Exit code and comparable output.
type Outcome = (i32, Vec<u8>);

fn run(work: &Work, mut command: Command, inputs: &Path, output: &Path) -> Result<(Run, Outcome)> {
    command.args(work.arguments).current_dir(inputs.join(work.folder)).env_clear().envs(work::environment(inputs));
    let errors = output.with_extension("errors");
    command.stdin(Stdio::null()).stdout(File::create(output)?).stderr(File::create(&errors)?);
    let began = Instant::now();
    let ended = memory::to_the_end(&mut command)?;
    let seconds = began.elapsed().as_secs_f64();
    let Ok(code) = ended.status else { bail!("{command:?} was killed: {:?}", ended.status) };
    let mut printed = fs::read(output)?;
    if work.errors {
        printed.extend(fs::read(&errors)?);
    }
    Ok((Run { seconds, peak: ended.peak }, (code, comparable(work, &printed))))
}

fn comparable(work: &Work, output: &[u8]) -> Vec<u8> {
    let mut lines: Vec<&[u8]> = output.split_inclusive(|byte| *byte == b'\n').collect();
    if let Some(start) = work.ignored {
        lines.retain(|line| !line.starts_with(start.as_bytes()));
    }
    if work.sorted {
        lines.sort_unstable();
    }
    lines.concat()
}

fn same(expected: &Outcome, found: &Outcome) -> Result<()> {
    ensure!(expected.0 == found.0, "it ended with exit code {}, stock with {}", found.0, expected.0);
    let at = expected.1.iter().zip(&found.1).take_while(|(one, other)| one == other).count();
    ensure!(
        expected.1 == found.1,
        "its output is another from byte {at} on: {} bytes, of stock {}",
        found.1.len(),
        expected.1.len()
    );
    // Nothing is easily the same as nothing.
    ensure!(!expected.1.is_empty(), "both print nothing that could be compared (exit code {})", expected.0);
    Ok(())
}

/// Medians; the ratio within each round, with least and greatest. Of programs that were emulated, what they did and no more.
fn table(document: &Document) -> String {
    let mut text = format!("{} with {}, ", document.allograft, document.donor);
    match &document.emulator {
        Some(emulator) => {
            let _ = write!(text, "run by {emulator}.\n\n| program | work | runs of each | exit code, output |\n");
            text.push_str("| --- | --- | --- | --- |\n");
        }
        None => {
            let _ = write!(
                text,
                "{} processors. Time and memory: medians; ratio: median within each round (least to greatest).\n\n",
                document.processors
            );
            text.push_str(
                "| program | work | runs of each | exit code, output | time, stock | time, graft | ratio \
                 | memory, stock | memory, graft |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
            );
        }
    }
    for figures in &document.programs {
        let _ = write!(
            text,
            "| {} | {} | {} | {}, the same {} bytes{} |",
            figures.package.trim_start_matches('@'),
            figures.about,
            figures.graft.len(),
            figures.exit_code,
            figures.output_bytes,
            if figures.sorted { ", sorted" } else { "" },
        );
        if document.emulator.is_none() {
            text.push_str(&costs(figures));
        }
        text.push('\n');
    }
    text
}

/// Time and memory of both.
fn costs(figures: &Figures) -> String {
    let middle = |runs: &[Run], figure: fn(&Run) -> f64| {
        Spread::of(&runs.iter().map(figure).collect::<Vec<_>>()).map_or(f64::NAN, |spread| spread.median)
    };
    let seconds = |run: &Run| run.seconds;
    #[allow(clippy::cast_precision_loss, reason = "megabytes with one decimal")]
    let megabytes = |run: &Run| run.peak as f64 / 1e6;
    let of = |runs: &[Run]| runs.iter().map(seconds).collect::<Vec<_>>();
    let Some(ratio) = Spread::of_ratios(&of(&figures.graft), &of(&figures.stock)) else { return String::new() };
    format!(
        " {:.3} s | {:.3} s | {:.2} ({:.2}-{:.2}) | {:.1} MB | {:.1} MB |",
        middle(&figures.stock, seconds),
        middle(&figures.graft, seconds),
        ratio.median,
        ratio.low,
        ratio.high,
        middle(&figures.stock, megabytes),
        middle(&figures.graft, megabytes),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_programs_and_more_have_work() {
        let mut programs: std::collections::BTreeMap<&str, usize> = std::collections::BTreeMap::new();
        for work in &work::ALL {
            *programs.entry(work.program).or_default() += 1;
            let released: Vec<Released> = SHEETS.iter().filter_map(|sheet| sheet.program(work)).collect();
            assert_eq!(released[0].arch, "x86_64", "{}", work.program);
            for released in released {
                assert_eq!((released.malloc.as_str(), released.language), ("mallocng", None), "{}", released.name);
            }
        }
        assert!(programs.len() >= 10, "{programs:?}");
    }

    #[test]
    fn the_tables_in_the_docs_are_those_of_the_kept_figures() {
        for sheet in &SHEETS {
            let page = fs::read_to_string(workspace::root().join(sheet.table.page)).unwrap();
            let same = sheet.table.replaced(&page, &table(&sheet.kept().unwrap())).unwrap() == page;
            assert!(same, "another table than `{}`: `cargo xtask bench released --write`", sheet.kept);
        }
    }

    #[test]
    fn another_output_or_end_is_told() {
        let stock = (0, b"one\ntwo\n".to_vec());
        same(&stock, &stock).unwrap();
        let told = |found: Outcome| same(&stock, &found).unwrap_err().to_string();
        assert!(told((1, stock.1.clone())).contains("exit code 1"));
        assert!(told((0, b"one\ntwO\n".to_vec())).contains("from byte 6 on"));
        assert!(same(&(0, vec![]), &(0, vec![])).is_err());
    }

    #[test]
    fn only_what_is_said_is_left_out_of_the_comparison() {
        let work = |name| work::ALL.iter().find(|work| work.program == name).unwrap();
        assert_eq!(comparable(work("typos"), b"b\na\n"), b"a\nb\n");
        assert_eq!(comparable(work("hadolint"), b"b\na\n"), b"b\na\n");
        assert_eq!(comparable(work("turbo"), b"{\n  \"id\": \"x\",\n  \"v\": 1\n"), b"{\n  \"v\": 1\n");
    }
}

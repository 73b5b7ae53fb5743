//! The promise of `docs/compatibility.md`: in every environment where the stock program works, the graft works the
//! same, or the page names the difference. A program with many habits runs as stock and with every donor, as each kind
//! of host. The default tier tries a default donor, without the tools that take seconds.

mod edges;
mod rows;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use casebook::bench::{Bench, Donors, Host};
use casebook::finished::{self, Graft};
use casebook::link::{LinkSetup, Linker, Mode};
use donors::Donor;
use fixtures::link::Dynamic;
use fixtures::trials::in_group;
use fixtures::{Arch, ZigTarget};
use hosts::Request;
use libtest_mimic::{Failed, Trial};

use rows::{ROWS, Row};

/// The lines around the table in the page.
const BEGIN: &str = "<!-- table: written by the test -->\n";
const END: &str = "<!-- end of the table -->\n";

/// The program that is tried.
const HABITS: &str = "habits.c";

/// The longest time of a run in seconds.
const LIMIT: &str = "300";

/// A kind of host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HostForm {
    /// A grafted `libc.a`, and a program linked with it.
    Archive,
    /// A static program, linked with stock and then grafted.
    Executable,
    /// A dynamic program for musl, started by a grafted loader.
    Loader,
    /// A dynamic program for glibc that a donor is merged into.
    Merged,
}

impl HostForm {
    const ALL: [HostForm; 4] = [HostForm::Archive, HostForm::Executable, HostForm::Loader, HostForm::Merged];

    /// Returns its column's title in the page.
    fn text(self) -> &'static str {
        match self {
            HostForm::Archive => "`libc.a`",
            HostForm::Executable => "linked executable",
            HostForm::Loader => "musl's loader",
            HostForm::Merged => "merged, glibc",
        }
    }

    fn supports(self, donor: &Donor) -> bool {
        let arch = Arch::X86_64;
        match self {
            HostForm::Archive => donor.supports(arch),
            HostForm::Executable => donor.has_blob(arch),
            HostForm::Loader => donor.has_loader(arch),
            HostForm::Merged => donor.has_library(arch),
        }
    }

    /// Returns the program of that source: with that donor, or as stock.
    fn program(self, bench: &Bench, file: &str, donor: Option<&'static Donor>) -> PathBuf {
        let name = format!("{file} {self:?} {}", donor.map_or("stock", |donor| donor.name));
        match (self, donor) {
            (HostForm::Archive | HostForm::Executable, None) => link_static(bench, file, Donors::STOCK, &name),
            (HostForm::Archive, Some(donor)) => {
                link_static(bench, file, Donors { malloc: Some(donor.name), strings: false }, &name)
            }
            (HostForm::Executable, Some(donor)) => graft(bench, &self.program(bench, file, None), donor, &name),
            (HostForm::Loader, donor) => {
                let loader = donor.map_or_else(
                    || fixtures::musl_loader(Arch::X86_64),
                    |donor| {
                        graft(bench, &fixtures::musl_loader(Arch::X86_64), donor, &format!("loader {}", donor.name))
                    },
                );
                link_for(bench, file, &loader, &name)
            }
            (HostForm::Merged, None) => bench.made(&name, |out| {
                let mut compiler = fixtures::program::glibc_cc(Arch::X86_64);
                compiler.args(["-O1", "-w", "-fno-builtin", "-pthread", "-DDYNAMIC"]).arg(source(file));
                run(compiler.arg("-o").arg(out))
            }),
            (HostForm::Merged, Some(donor)) => graft(bench, &self.program(bench, file, None), donor, &name),
        }
    }

    /// Returns a library of that source for its programs.
    fn library(self, bench: &Bench, file: &str) -> PathBuf {
        bench.made(&format!("{self:?} {file}.so"), |out| {
            let mut compiler = match self {
                HostForm::Merged => fixtures::program::glibc_cc(Arch::X86_64),
                _ => {
                    let mut zig = fixtures::zig().command();
                    zig.args(["cc", "-target", Arch::X86_64.triple(), "-nostdlib", "-nostdinc", "-isystem"]);
                    zig.arg(fixtures::debian_musl(Arch::X86_64).include);
                    zig
                }
            };
            run(compiler.args(["-O1", "-w", "-fPIC", "-shared", "-fno-builtin"]).arg(source(file)).arg("-o").arg(out))
        })
    }
}

impl fmt::Display for HostForm {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            HostForm::Archive => "archive",
            HostForm::Executable => "executable",
            HostForm::Loader => "loader",
            HostForm::Merged => "merged",
        })
    }
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("compatibility").join(name)
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    output.status.success().then_some(()).ok_or_else(|| format!("{command:?}: {said}"))
}

fn object(bench: &Bench, file: &str, further: &[&str]) -> PathBuf {
    let arguments = ["-O1", "-w", "-fPIE", "-fno-builtin", "-fno-stack-protector", "-fno-sanitize=all"];
    let arguments: Vec<_> = arguments.iter().chain(further).map(Into::into).collect();
    bench.object(Arch::X86_64, &source(file), &arguments)
}

fn link_static(bench: &Bench, file: &str, donors: Donors, name: &str) -> PathBuf {
    let way = LinkSetup { host: Host::Debian(Arch::X86_64), linker: Linker::Lld, mode: Mode::StaticPie };
    let (object, libc) = (object(bench, file, &[]), bench.libc(way.host, donors, &[]));
    bench.made(name, |out| way.link(bench, &libc, &[object], &[], out))
}

fn link_for(bench: &Bench, file: &str, loader: &Path, name: &str) -> PathBuf {
    let (object, stock) = (object(bench, file, &["-DDYNAMIC"]), fixtures::musl_loader(Arch::X86_64));
    let library = stock.with_file_name("");
    let way = Dynamic { arch: Arch::X86_64, library: &library, loader, position_independent: true };
    bench.made(name, |out| run(&mut way.line(&[object], &[], out)))
}

fn graft(bench: &Bench, stock: &Path, donor: &'static Donor, name: &str) -> PathBuf {
    bench.made(name, |out| {
        let request = Request { out: Some(out.to_owned()), ..finished::request(Graft { donor, strings: false }) };
        hosts::graft(stock, &request).map(drop).map_err(|error| error.to_string())
    })
}

/// Runs a row, and returns its outcome: the way the program ended, and its output.
fn outcome(bench: &Bench, form: HostForm, program: &Path, row: &Row) -> String {
    let script = if row.script.is_empty() { "exec \"$@\"" } else { row.script };
    let mut command = Command::new("timeout");
    command.args(["-k", "5", LIMIT, "sh", "-c", script, "sh"]).arg(program).arg(row.habit);
    if matches!(form, HostForm::Loader | HostForm::Merged) {
        command.env("HABITS_LIBRARY", form.library(bench, "plugin.c"));
    }
    if form == HostForm::Merged {
        command.env("HABITS_AUDIT", form.library(bench, "audit.c"));
    }
    match command.output() {
        Ok(output) => format!("{}: {}", output.status, String::from_utf8_lossy(&output.stdout)),
        Err(error) => error.to_string(),
    }
}

/// Whether stock works in that row. Otherwise this machine lacks a tool, or a permission, and nothing is compared.
fn works(outcome: &str) -> bool {
    let ended = ["exit status: 0: ", "exit status: 5: "].iter().any(|start| outcome.starts_with(start));
    ended && outcome.contains('\n')
}

/// The rows that a test compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// Of those that take no seconds, each second one: those at even places, or at odd ones.
    Half(usize),
    All,
}

impl Part {
    fn rows(self, form: HostForm) -> impl Iterator<Item = &'static Row> {
        let of_form = ROWS.iter().filter(move |row| row.forms.contains(&form));
        let (quick, first, step) = match self {
            Part::Half(first) => (true, first, 2),
            Part::All => (false, 0, 1),
        };
        of_form.filter(move |row| !quick || !row.slow).skip(first).step_by(step)
    }
}

/// Compares the rows of a part. Every difference has to be named, and every named difference has to exist. The cells of
/// all rows are kept for `cargo xtask compatibility`.
fn compare(bench: &Bench, form: HostForm, donor: &'static Donor, part: Part) -> Result<(), String> {
    let program = |donor| form.program(bench, HABITS, donor);
    let (stock, grafted) = (program(None), program(Some(donor)));
    let (mut faults, mut cells) = (Vec::new(), String::new());
    for row in part.rows(form) {
        let expected = outcome(bench, form, &stock, row);
        let is_named = rows::is_named(row, form, donor.name);
        let cell = if works(&expected) {
            let found = outcome(bench, form, &grafted, row);
            match (found == expected, is_named) {
                (true, true) => faults.push(format!("{}: the same, but the page names a difference", row.text)),
                (false, false) => faults.push(format!("{}: stock {expected:?}, the graft {found:?}", row.text)),
                _ => {}
            }
            if found == expected { "same" } else { "differs" }
        } else {
            "not run here"
        };
        cells.push_str(&format!("{form}\t{}\t{}\t{cell}\n", donor.name, row.text));
    }
    if part == Part::All {
        let results = fixtures::compatibility_results();
        fs::create_dir_all(&results).map_err(|error| error.to_string())?;
        fs::write(results.join(format!("{form} {}.tsv", donor.name)), cells).map_err(|error| error.to_string())?;
    }
    if faults.is_empty() { Ok(()) } else { Err(faults.join("\n")) }
}

fn the_page_has_the_table() -> Result<(), String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join("docs").join("compatibility.md");
    let text = fs::read_to_string(&page).map_err(|error| error.to_string())?;
    let (before, rest) = text.split_once(BEGIN).ok_or("the table's begin")?;
    let (table, after) = rest.split_once(END).ok_or("the table's end")?;
    let wanted = rows::table();
    if std::env::var_os("ALLOGRAFT_BLESS").is_some() {
        return fs::write(&page, [before, BEGIN, &wanted, END, after].concat()).map_err(|error| error.to_string());
    }
    if let Some(row) = rows::unknown_row() {
        return Err(format!("no row is called {row:?}"));
    }
    if table == wanted { Ok(()) } else { Err("the table is another one: ALLOGRAFT_BLESS=1 writes it".to_owned()) }
}

pub(crate) fn trials(bench: &Arc<Bench>) -> Vec<Trial> {
    let page = Trial::test("compatibility/the_page_has_the_table", || the_page_has_the_table().map_err(Failed::from));
    let mut trials = vec![page];
    trials.extend(edges::trials(bench));
    for form in HostForm::ALL {
        for donor in donors::all().iter().filter(|donor| form.supports(donor)) {
            for (part, name) in [(Part::Half(0), "even"), (Part::Half(1), "odd"), (Part::All, "all")] {
                let slow = part == Part::All;
                // The default tier has the default donor only.
                if !slow && donor.name != donors::DEFAULTS[0] {
                    continue;
                }
                let bench = Arc::clone(bench);
                let test = move || compare(&bench, form, donor, part).map_err(Failed::from);
                let name = format!("compatibility/{form}/{}/{name}", donor.name);
                trials.push(in_group(Trial::test(name, test), slow.then_some("minutes")));
            }
        }
    }
    trials
}

//! What the conformance runs of the slow tier leave behind: one file each, of which `cargo xtask conformance` makes a
//! table.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

use serde::Serialize;

use crate::link::Way;

/// How much of its work a program does.
#[derive(Debug, Clone, Copy)]
pub enum Length {
    /// That much of what it does by default.
    Percent(u32),
    /// All of it, with a variable of its own that makes it longer.
    Longer {
        /// The variable.
        variable: &'static str,
        /// What it is set to.
        value: &'static str,
    },
}

impl fmt::Display for Length {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Length::Percent(percent) => write!(formatter, "{percent}%"),
            Length::Longer { variable, value } => write!(formatter, "{variable}={value}"),
        }
    }
}

impl Serialize for Length {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A run that is due: a program on a graft.
#[derive(Debug, Clone, Serialize)]
pub struct Cell {
    /// The program's name.
    pub program: &'static str,
    /// What it is about.
    pub about: &'static str,
    /// The donor's name.
    pub donor: &'static str,
    /// `uname -m` of the host.
    pub arch: &'static str,
    /// Host, linker, kind of program.
    pub way: String,
    /// How much of the program's work is done.
    pub length: Length,
    /// Size of the emulated system's pages, if it is not that of this machine's.
    #[serde(skip)]
    pub page_kib: Option<u32>,
}

/// What came of it.
#[derive(Debug, Serialize)]
pub struct Run<'a> {
    /// What ran.
    #[serde(flatten)]
    pub cell: &'a Cell,
    /// What went wrong; nothing when it passed.
    pub failure: Option<&'a str>,
    /// What the program could not do on this machine, in its own words.
    pub notes: &'a [String],
    /// From linking to the end, in seconds.
    pub seconds: f64,
}

impl Cell {
    /// The cell of a program with a donor, linked one way.
    pub fn new(program: &'static conformance::Program, donor: &'static str, way: Way, length: Length) -> Cell {
        let arch = way.host.arch().name();
        Cell { program: program.name, about: program.about, donor, arch, way: way.name(), length, page_kib: None }
    }

    /// The same on a system with pages of so many KiB.
    pub fn with_pages(self, kib: u32) -> Cell {
        Cell { way: format!("{}/{kib}k-pages", self.way), page_kib: Some(kib), ..self }
    }

    /// The name of its test.
    pub fn name(&self) -> String {
        format!("{}/{}/{}/{}", self.program, self.donor, self.way, self.length)
    }

    /// What the program reads of its length.
    pub fn environment(&self) -> Vec<(String, String)> {
        let (percent, longer) = match self.length {
            Length::Percent(percent) => (percent, None),
            Length::Longer { variable, value } => (100, Some((variable.to_owned(), value.to_owned()))),
        };
        let scale = ("ALLOGRAFT_SCALE".to_owned(), percent.to_string());
        // What QEMU reads in place of its option -p, which would have to be passed on to the programs that programs
        // start.
        let pages = self.page_kib.map(|kib| ("QEMU_PAGESIZE".to_owned(), (kib * 1024).to_string()));
        std::iter::once(scale).chain(longer).chain(pages).collect()
    }
}

/// Says which cells there are in all, so that a table can tell when it is not complete.
///
/// # Errors
/// Those of the file system.
pub fn announce(folder: &Path, cells: &[Cell]) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    fs::write(folder.join("cells.json"), serde_json::to_vec_pretty(cells)?)
}

/// Keeps what came of a cell.
///
/// # Errors
/// Those of the file system.
pub fn keep(folder: &Path, run: &Run<'_>) -> io::Result<()> {
    let runs = folder.join("runs");
    fs::create_dir_all(&runs)?;
    let name = run.cell.name().replace('/', " ").replace('%', "");
    fs::write(runs.join(format!("{name}.json")), serde_json::to_vec_pretty(run)?)
}

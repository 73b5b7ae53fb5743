//! The results of the slow tier's conformance runs, one file each. `cargo xtask conformance` makes a table of them.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

use serde::Serialize;

use crate::link::LinkSetup;

/// The amount of work of a program.
#[derive(Debug, Clone, Copy)]
pub enum Length {
    /// This percentage of its default work.
    Percent(u32),
    /// All of its default work, and more by a variable of its own.
    Longer {
        /// The variable.
        variable: &'static str,
        /// The variable's value.
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

/// A planned run: a program on a graft.
#[derive(Debug, Clone, Serialize)]
pub struct Cell {
    /// The program's name.
    pub program: &'static str,
    /// The program's subject.
    pub about: &'static str,
    /// The donor's name.
    pub donor: &'static str,
    /// `uname -m` of the host.
    pub arch: &'static str,
    /// The host, the linker, the kind of program.
    pub way: String,
    /// The amount of the program's work.
    pub length: Length,
    /// The variable that changes the emulated system, with its value. QEMU reads it in place of an option, which a
    /// program would have to pass on to its children.
    #[serde(skip)]
    emulator: Option<(&'static str, u64)>,
}

/// The result of a run.
#[derive(Debug, Serialize)]
pub struct Run<'a> {
    /// The cell of the run.
    #[serde(flatten)]
    pub cell: &'a Cell,
    /// The fault. `None` if the run passed.
    pub failure: Option<&'a str>,
    /// The program's own notes on steps that this machine prevented.
    pub notes: &'a [String],
    /// The time from linking to the end, in seconds.
    pub seconds: f64,
}

impl Cell {
    /// Makes the cell of a program with a donor, linked one way.
    pub fn new(program: &'static conformance::Program, donor: &'static str, way: LinkSetup, length: Length) -> Cell {
        let arch = way.host.arch().name();
        Cell { program: program.name, about: program.about, donor, arch, way: way.name(), length, emulator: None }
    }

    /// Returns the cell for a system with pages of `kib` KiB.
    pub fn with_pages(self, kib: u32) -> Cell {
        Cell {
            way: format!("{}/{kib}k-pages", self.way),
            emulator: Some(("QEMU_PAGESIZE", u64::from(kib) << 10)),
            ..self
        }
    }

    /// Returns the cell for a system whose programs have addresses of this many bits.
    pub fn with_address_bits(self, bits: u32) -> Cell {
        Cell { way: format!("{}/{bits}-bits", self.way), emulator: Some(("QEMU_RESERVED_VA", 1 << bits)), ..self }
    }

    /// Returns the name of its test.
    pub fn name(&self) -> String {
        format!("{}/{}/{}/{}", self.program, self.donor, self.way, self.length)
    }

    /// Returns the environment variables that set the program's amount of work.
    pub fn environment(&self) -> Vec<(String, String)> {
        let (percent, longer) = match self.length {
            Length::Percent(percent) => (percent, None),
            Length::Longer { variable, value } => (100, Some((variable.to_owned(), value.to_owned()))),
        };
        let scale = ("ALLOGRAFT_SCALE".to_owned(), percent.to_string());
        let emulator = self.emulator.map(|(variable, value)| (variable.to_owned(), value.to_string()));
        std::iter::once(scale).chain(longer).chain(emulator).collect()
    }
}

/// Writes the list of all cells, so that an incomplete table can be recognised.
///
/// # Errors
/// Those of the file system.
pub fn announce(folder: &Path, cells: &[Cell]) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    fs::write(folder.join("cells.json"), serde_json::to_vec_pretty(cells)?)
}

/// Writes the result of a run.
///
/// # Errors
/// Those of the file system.
pub fn keep(folder: &Path, run: &Run<'_>) -> io::Result<()> {
    let runs = folder.join("runs");
    fs::create_dir_all(&runs)?;
    let name = run.cell.name().replace('/', " ").replace('%', "");
    fs::write(runs.join(format!("{name}.json")), serde_json::to_vec_pretty(run)?)
}

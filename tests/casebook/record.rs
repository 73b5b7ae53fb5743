//! What the conformance runs of the slow tier leave behind: one file each, of which `cargo xtask conformance` makes a table.

use std::fs;
use std::io;
use std::path::Path;

use serde::Serialize;

use crate::link::Way;

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
    /// How much of the program's work is done, in percent.
    pub percent: u32,
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
    pub fn new(program: &'static conformance::Program, donor: &'static str, way: Way, percent: u32) -> Cell {
        let arch = way.host.arch().name();
        Cell { program: program.name, about: program.about, donor, arch, way: way.name(), percent }
    }

    /// The name of its test.
    pub fn name(&self) -> String {
        format!("{}/{}/{}/{}%", self.program, self.donor, self.way, self.percent)
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

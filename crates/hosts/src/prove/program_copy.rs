//! A copy of a program that loads its donor from memory, for the self-test before the program's own paths name
//! anything.

use std::path::Path;

use transplant::Executable;

use crate::error::Error;
use crate::host::executable::parsed;
use crate::host::needed::Destination;
use crate::prove::runner::{InMemory, from_memory};

/// A copy of a program that loads its donor from memory.
pub(crate) struct ProgramCopy {
    program: Vec<u8>,
    /// Keeps the library in memory as long as this value.
    _library: InMemory,
}

impl ProgramCopy {
    /// Parses the program. Messages name it `host`.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn read(&self, host: &Path) -> Result<Executable<'_>, Error> {
        parsed(host, &self.program)
    }
}

/// The copy of a grafted program for its self-test; `None` if the graft itself can be run. A program that will be in a
/// different place or root folder loads its donor from memory: its paths name nothing there yet.
pub(crate) fn program_copy(
    host: &Path,
    destination: Destination<'_>,
    graft: &Executable<'_>,
) -> Result<Option<ProgramCopy>, Error> {
    let Some(name) = graft.loads().filter(|_| destination.is_elsewhere()) else {
        return Ok(None);
    };
    let library = destination.library(graft.bytes(), &name)?;
    let library = library.map_err(|none| Error::SelfTest { path: host.to_owned(), said: none.why })?;
    let library = from_memory(host, &library.bytes)?;
    let program = graft.loading(library.path().as_bytes());
    let program = program
        .ok_or_else(|| Error::SelfTest { path: host.to_owned(), said: "its donor has too long a name".to_owned() })?;
    Ok(Some(ProgramCopy { program, _library: library }))
}

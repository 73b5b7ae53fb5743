//! A program that takes its donor from memory, since its paths name nothing yet.

use std::path::Path;

use transplant::Executable;

use crate::error::Error;
use crate::host::executable::parsed;
use crate::host::needed::Destination;
use crate::prove::runner::{InMemory, from_memory};

/// A program that takes its donor from memory.
pub(crate) struct Moved {
    program: Vec<u8>,
    /// It is there as long as this is.
    _library: InMemory,
}

impl Moved {
    /// Reads the program. Messages name it `host`.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn read(&self, host: &Path) -> Result<Executable<'_>, Error> {
        parsed(host, &self.program)
    }
}

/// The copy of a grafted program that is run before it is placed; `None` if the graft itself can be. A program that
/// will be elsewhere, or in another root folder, takes its donor from memory: its paths name nothing there yet.
pub(crate) fn moved(host: &Path, destination: Destination<'_>, graft: &Executable<'_>) -> Result<Option<Moved>, Error> {
    let Some(name) = graft.loads().filter(|_| destination.is_elsewhere()) else {
        return Ok(None);
    };
    let library = destination.library(graft.bytes(), &name)?;
    let library = library.map_err(|none| Error::SelfTest { path: host.to_owned(), said: none.why })?;
    let library = from_memory(host, &library.bytes)?;
    let program = graft.loading(library.path().as_bytes());
    let program = program
        .ok_or_else(|| Error::SelfTest { path: host.to_owned(), said: "its donor has too long a name".to_owned() })?;
    Ok(Some(Moved { program, _library: library }))
}

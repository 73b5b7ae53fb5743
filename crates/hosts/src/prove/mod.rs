//! Grafts that may be placed: verified by the independent reader and, where they are programs, proven by running.
//!
//! | module | what lives there |
//! | --- | --- |
//! | `proven` | bytes that may be placed |
//! | `self_test` | the self-test of an executable, and the user's own trial |
//! | `loader` | the run of a grafted dynamic loader |
//! | `merged` | the run of a merged dynamic program |
//! | `runner` | runs from memory or by an emulator; the end of a test |
//! | `patience` | the time limit of a test |
//! | `prepared` | one host from its bytes to a graft that is ready to be placed |
//! | `program_copy` | a copy of a program that loads its donor from memory |

mod loader;
mod merged;
pub(crate) mod patience;
pub(crate) mod prepared;
mod program_copy;
pub(crate) mod proven;
pub(crate) mod runner;
pub(crate) mod self_test;

use std::path::Path;

use format::Linked;
use inspector::verify::Verified;

use crate::error::Error;
use crate::host::Operation;
use crate::host::executable::parsed;
use crate::host::needed::Destination;
use crate::prove::proven::Proven;
use crate::request::Request;

/// The outcome of running a graft.
#[derive(Debug, Default)]
pub(crate) struct TestRun {
    /// Each trial with its outcome.
    pub(crate) tried: Vec<String>,
    /// Whether the self-test was waived and could not be run.
    pub(crate) untested: bool,
    /// Remarks for the user: clauses whose subject is the host.
    pub(crate) notes: Vec<String>,
}

/// Proves the verified graft of the file at `path`. `stock` is the content of its stock file, `operation` the edits.
/// For an executable, this runs the self-test and the trial that `request` names; an archive has nothing to run.
///
/// # Errors
/// The self-test failed, or could not be run and was not waived; or stock and graft behave differently.
pub(crate) fn prove(
    path: &Path,
    stock: &[u8],
    operation: &Operation,
    verified: Verified,
    request: &Request,
) -> Result<(Proven, TestRun), Error> {
    let mut trial = TestRun::default();
    if let Operation::Executable(_) = operation {
        let graft = parsed(path, verified.bytes())?;
        let copy = program_copy::program_copy(path, Destination::new(path, request), &graft)?;
        let runnable = copy.as_ref().map(|copy| copy.read(path)).transpose()?;
        let program = runnable.as_ref().unwrap_or(&graft);
        let root = request.root.as_deref();
        match self_test::run(path, root, program, request.patience) {
            Ok(passed) => trial.tried.push(format!("self-test: {passed}")),
            Err(Error::Untested { arch, loader, .. }) if request.untested => {
                trial.untested = true;
                trial.notes.push(format!("has not been tested: {}", Error::nothing_runs(arch, loader.as_deref())));
            }
            Err(error) => return Err(error),
        }
        if graft.kind() == Linked::Loader && !trial.untested {
            trial.tried.push(loader::start_program(path, root, stock, &graft, request.patience)?);
        }
        if let Some(arguments) = &request.arguments {
            trial.tried.push(self_test::compare(path, root, graft.arch(), [stock, program.bytes()], arguments)?);
        }
    }
    Ok((Proven::new(verified), trial))
}

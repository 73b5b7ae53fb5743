//! Grafts that may be placed: verified by the independent reader and, where they are programs, proven by running.

use std::path::Path;

use format::Linked;
use inspector::verify::{Seal, Verified};

use crate::error::Error;
use crate::host::Operation;
use crate::needed::Destination;
use crate::request::Request;
use crate::{loader_test, needed, self_test};

/// A graft of which everything has been checked that can be. Only this is placed.
pub(crate) struct Proven(Verified);

/// The checksum of a proven graft whose bytes were dropped. It recognises the graft when it is made again.
#[derive(Debug, Clone)]
pub(crate) struct ProvenDigest(Seal);

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

/// Proves the verified graft of the file at `path`, whose stock file holds `stock`, by the operation that made it. Of
/// an executable, the self-test is run, and what `request` asks for; of an archive there is nothing to run.
///
/// # Errors
/// The self-test failed, or could not be run and was not waived; stock and graft differ.
pub(crate) fn prove(
    path: &Path,
    stock: &[u8],
    operation: &Operation,
    verified: Verified,
    request: &Request,
) -> Result<(Proven, TestRun), Error> {
    let mut trial = TestRun::default();
    if let Operation::Executable(_) = operation {
        let graft = self_test::executable(path, verified.bytes())?;
        let moved = needed::moved(path, Destination::of(path, request), &graft)?;
        let runnable = moved.as_ref().map(|moved| moved.read(path)).transpose()?;
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
            trial.tried.push(loader_test::start_program(path, root, stock, &graft, request.patience)?);
        }
        if let Some(arguments) = &request.arguments {
            trial.tried.push(self_test::compare(path, root, graft.arch(), [stock, program.bytes()], arguments)?);
        }
    }
    Ok((Proven(verified), trial))
}

impl Proven {
    /// The bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }

    /// Their SHA-256.
    pub(crate) fn sha256(&self) -> &str {
        self.0.sha256()
    }

    /// A file that holds donors and no host: there is nothing to run.
    pub(crate) fn of_donors(verified: Verified) -> Proven {
        Proven(verified)
    }

    pub(crate) fn digest(&self) -> ProvenDigest {
        ProvenDigest(self.0.seal())
    }
}

impl ProvenDigest {
    /// The checksum.
    pub(crate) fn sha256(&self) -> &str {
        self.0.sha256()
    }

    /// The same graft, made again; `None` if it is another.
    pub(crate) fn confirm(&self, bytes: Vec<u8>) -> Option<Proven> {
        self.0.confirm(bytes).map(Proven)
    }
}

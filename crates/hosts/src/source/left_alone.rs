//! The programs of a folder or an image that are left alone, each with the reason. The user named the whole, so a
//! program that cannot be grafted does not keep the others from it.

use std::path::Path;

use format::{Linked, Note};
use inspector::Link;
use transplant::{Executable, Refusal};

use crate::error::Error;
use crate::error::skipped::Skipped;
use crate::file::signature::{Signature, signature_of};

const DYNAMIC: &str = "a dynamic program: its malloc is that of a library";

/// Checks by its content that the file at `path` is a host. The error names the file if it is a program, which the user
/// may expect to be grafted.
pub(crate) fn check(path: &Path, bytes: &[u8]) -> Result<(), Option<Skipped>> {
    if signature_of(bytes) != Signature::Executable {
        return Ok(());
    }
    let executable = match Executable::read(bytes) {
        Ok(executable) => executable,
        // It is for an unsupported architecture, or damaged: the inspector reads more kinds of files.
        Err(_) => {
            return match inspector::inspect(bytes) {
                Ok(report) if report.kind != inspector::Kind::Executable => Err(None),
                Ok(report) if report.link == Some(Link::Dynamic) => Err(Some(Skipped::new(path, DYNAMIC))),
                // Its plan will be refused with the reason.
                Ok(_) => Ok(()),
                Err(error) => Err(Some(Skipped::new(path, error.to_string()))),
            };
        }
    };
    match executable.kind() {
        Linked::Program | Linked::Loader => Ok(()),
        Linked::Dynamic => Err(Some(dynamic(path, &executable))),
        Linked::Library => Err(None),
    }
}

/// The dynamic program at `path` with the reason why it is left alone.
fn dynamic(path: &Path, program: &Executable<'_>) -> Skipped {
    if program.is_merged() {
        let [note, _] = transplant::notes(program.bytes());
        let donor = note.and_then(|note| Note::parse(&note).ok()).map_or("a donor".to_owned(), |note| note.donor);
        return Skipped::new(
            path,
            format!("a dynamic program that carries a graft already: {donor} is merged into it"),
        );
    }
    match program.loads() {
        Some(library) => {
            let library = String::from_utf8_lossy(&library).into_owned();
            Skipped::new(path, format!("a dynamic program that carries a graft already: it loads `{library}`"))
        }
        None => Skipped { by_name: true, ..Skipped::new(path, DYNAMIC) },
    }
}

/// Whether a file with this error is left alone: the file is not one for this graft. A graft that was made and failed
/// its checks is a bug, and a graft without its backup an accident: both have to be reported.
pub(crate) fn is_left_alone(error: &Error) -> bool {
    matches!(
        error,
        Error::DonorNeeded { .. }
            | Error::Executable { .. }
            | Error::Foreign { .. }
            | Error::Live { .. }
            | Error::Malformed { .. }
            | Error::NoDonorFor { .. }
            | Error::NoForm { .. }
            | Error::NoStrings { .. }
            | Error::NotBuilt { .. }
            | Error::NothingToGraft
            | Error::Refused { .. }
            | Error::StockNeeded { .. }
            | Error::TooSlow { .. }
            | Error::Unsupported { .. }
            | Error::Untested { .. }
    )
}

/// The program `bytes` at `path`, which is left alone because of `error`.
pub(crate) fn skipped(path: &Path, error: &Error, bytes: &[u8]) -> Skipped {
    let reason = match error {
        Error::Executable { refusal, .. } => serving(error, bytes).unwrap_or_else(|| refusal.to_string()),
        Error::Live { why, .. } => format!("it {why}"),
        error => error.to_string(),
    };
    Skipped { by_name: matches!(error, Error::Live { .. }), ..Skipped::new(path, reason) }
}

/// Names the allocator of a program without mallocng, where that is known.
fn serving(error: &Error, bytes: &[u8]) -> Option<String> {
    let is_other = error.has_no_mallocng() || matches!(error, Error::Executable { refusal: Refusal::NoMalloc, .. });
    let report = is_other.then(|| inspector::inspect(bytes).ok()).flatten()?;
    let (name, version) = (report.malloc.name.as_str(), report.malloc.version.as_deref());
    match name {
        inspector::name::NONE => Some("it has no malloc".to_owned()),
        inspector::name::UNKNOWN | inspector::name::MALLOCNG => None,
        name => Some(format!("its malloc is {name}{}", version.map(|it| format!(" {it}")).unwrap_or_default())),
    }
}

//! The linked programs under a folder, for the message that it has no `libc.a` to graft. `graft` leaves programs in a
//! folder alone: a folder of programs is more often a system than a wish to change each of them.

use std::fs;
use std::path::Path;

use inspector::Kind;

use crate::error::programs::Programs;
use crate::error::{Error, IoContext};
use crate::file::names::is_backup;
use crate::file::signature::{Signature, signature};
use crate::file::temporaries::is_temporary;

/// Enough for a message; the folder may be a whole system.
const MOST: usize = 100;

/// Returns the programs under `folder`. Symbolic links are not followed. Files and folders that cannot be read are
/// not counted: this only tells what else there is.
///
/// # Errors
/// `folder` itself cannot be read.
pub(crate) fn programs(folder: &Path) -> Result<Programs, Error> {
    let mut waiting = vec![fs::read_dir(folder).context(folder, "read")?];
    let mut programs = Programs::default();
    while let Some(entries) = waiting.pop() {
        for entry in entries.flatten() {
            let (path, Ok(kind)) = (entry.path(), entry.file_type()) else { continue };
            if kind.is_dir() {
                waiting.extend(fs::read_dir(&path));
            } else if kind.is_file() && !is_temporary(&entry.file_name()) && !is_backup(&path) && is_program(&path) {
                if programs.paths.len() == MOST {
                    programs.more = true;
                    waiting.clear();
                    break;
                }
                programs.paths.push(path);
            }
        }
    }
    programs.paths.sort();
    Ok(programs)
}

fn is_program(path: &Path) -> bool {
    let is_linked = matches!(signature(path), Ok(Signature::Executable));
    let report = is_linked.then(|| inspector::inspect(&fs::read(path).ok()?).ok()).flatten();
    report.is_some_and(|report| report.kind == Kind::Executable)
}

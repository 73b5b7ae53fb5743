//! Verification of dynamic programs that load their donor.

use inspector::InspectError;
use inspector::verify::Check;
use transplant::Executable;

use super::{Examined, Examiner, WITHOUT_STOCK, not_run, rebuild};
use crate::host::donor_candidate::{donor_candidates, unmatched};
use crate::host::needed::needed_file;

/// Makes the checks that execute nothing: of the program, of the shared object that the loader takes, and of what this
/// allograft would have made.
pub(super) fn read(examiner: &Examiner<'_>, graft: &[u8]) -> Result<Examined, InspectError> {
    let Examiner { path, root, stock, .. } = *examiner;
    let mut checks = inspector::verify::needed(graft, stock)?;
    let executable = match Executable::read(graft) {
        Ok(executable) => executable,
        Err(refusal) => {
            checks.push(Check::new("donor", false, refusal.to_string()));
            let left = not_run("bytes", "a check before it failed");
            return Ok(Examined { checks, not_run: vec![left], complete: false });
        }
    };
    let library = needed_file(path, root, &executable).unwrap_or_else(|error| Some(Err(error.to_string())));
    let library = library.unwrap_or_else(|| Err("the program names none".to_owned()));
    let library = match library {
        Ok(file) => {
            checks.push(inspector::verify::needed_library(graft, &file.path.display().to_string(), &file.bytes)?);
            file.bytes
        }
        Err(why) => {
            checks.push(Check::new("library", false, why));
            Vec::new()
        }
    };
    let (mut left_out, mut complete) = (Vec::new(), false);
    let ours = donor_candidates(path, &executable).next().filter(|ours| ours.is_named().is_ok());
    match ours {
        Some(ours) => {
            let same = ours.library() == Some(library.as_slice());
            let detail = if same { "the shared object is" } else { "the shared object is not" };
            checks.push(Check::new("donor", same, format!("{detail} what this allograft emits")));
            match stock.map(|stock| rebuild(examiner, &ours, graft, stock)).transpose()? {
                Some(Ok(bytes)) => {
                    checks.push(bytes);
                    complete = true;
                }
                Some(Err(left)) => left_out.push(left),
                None => left_out.push(not_run("bytes", WITHOUT_STOCK)),
            }
        }
        None => match unmatched(&executable) {
            Ok(reason) => left_out.extend(["donor", "bytes"].map(|name| not_run(name, &reason))),
            Err(fault) => {
                checks.push(Check::new("donor", false, fault));
                left_out.push(not_run("bytes", "a check before it failed"));
            }
        },
    }
    Ok(Examined { checks, not_run: left_out, complete })
}

//! Where `-o` may write: one rule for every target.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::error::{Error, IoContext, is_missing};
use crate::file::names::{folder_of, host_of_sidecar};

fn refuse(out: &Path, reason: &'static str, help: &'static str) -> Error {
    Error::Out { out: out.to_owned(), reason, help }
}

/// A name that is free, in a folder that exists; without a slash at the end.
fn new_name(out: &Path) -> Result<PathBuf, Error> {
    let place = out.file_name().map(|name| out.with_file_name(name)).unwrap_or_default();
    if folder_of(&place).is_dir() {
        Ok(place)
    } else {
        Err(refuse(out, "there is no such folder to write it in", "make the folder first"))
    }
}

/// The file to write for `-o out`, which may be there already and must not be `host`, the file that is read, if there
/// is one.
///
/// # Errors
/// A folder, a special file, the host itself, the name of a backup or a record, and a folder that is not there.
pub(crate) fn file(out: &Path, host: Option<&Path>) -> Result<PathBuf, Error> {
    let own = host.map(|host| fs::metadata(host).context(host, "read")).transpose()?;
    let is_own =
        |there: &fs::Metadata| own.as_ref().is_some_and(|own| (own.dev(), own.ino()) == (there.dev(), there.ino()));
    let place = match fs::metadata(out) {
        Ok(there) if there.is_dir() => return Err(refuse(out, "it is a folder", "name the file to write")),
        Ok(there) if is_own(&there) => return Err(Error::OutIsTarget { out: out.to_owned() }),
        Ok(there) if !there.is_file() => {
            return Err(refuse(out, "it is a special file", "name the file to write"));
        }
        // Where the name is a link, the file behind it is replaced.
        Ok(_) => out.canonicalize().context(out, "write")?,
        Err(error) if is_missing(&error) => new_name(out)?,
        Err(error) => return Err(error).context(out, "write"),
    };
    match host_of_sidecar(&place) {
        Some(_) => Err(refuse(&place, "this name is that of a backup or a record", "choose another name")),
        None => Ok(place),
    }
}

/// The folder to make for a copy of the folder `root`: absent or empty, and not inside of `root`.
///
/// # Errors
/// Everything else.
pub(crate) fn folder(out: &Path, root: &Path) -> Result<PathBuf, Error> {
    let (place, real) = match fs::metadata(out) {
        Ok(there) if there.is_dir() => {
            let real = out.canonicalize().context(out, "write")?;
            if real == root {
                return Err(Error::OutIsTarget { out: out.to_owned() });
            }
            if fs::read_dir(&real).context(out, "read")?.next().is_some() {
                return Err(refuse(
                    out,
                    "the folder is not empty",
                    "name a folder that does not exist yet; one that an interrupted run has made is whole",
                ));
            }
            (real.clone(), real)
        }
        Ok(_) => return Err(refuse(out, "it is a file, and the target is a folder", "name a folder to write")),
        Err(error) if is_missing(&error) => {
            let place = new_name(out)?;
            let folder = folder_of(&place);
            let real = folder.canonicalize().context(folder, "find")?;
            (place, real)
        }
        Err(error) => return Err(error).context(out, "write"),
    };
    if real.starts_with(root) {
        return Err(refuse(out, "it lies inside of the target", "name a folder outside of it"));
    }
    Ok(place)
}

//! The rule for where `-o` may write, the same for every target: it replaces no file that the user could miss.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::error::{Error, IoContext, is_missing};
use crate::file::host_file::HostFile;
use crate::file::names::{folder_of, host_of_sidecar};
use crate::file::signature::{Signature, is_tar};

fn refuse(out: &Path, reason: &'static str, help: &'static str) -> Error {
    Error::Out { out: out.to_owned(), reason, help }
}

/// Checks that `out` is a free name in an existing folder. Returns it without a slash at the end.
fn new_name(out: &Path) -> Result<PathBuf, Error> {
    let place = out.file_name().map(|name| out.with_file_name(name)).unwrap_or_default();
    if folder_of(&place).is_dir() {
        Ok(place)
    } else {
        Err(refuse(out, "there is no such folder to write it in", "make the folder first"))
    }
}

/// The file to write for `-o out`. It may exist, but must not be `host`, the file that is read.
///
/// # Errors
/// `out` is a folder, a special file, the host itself, or the name of a backup or a record; or its folder is missing.
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
        // If the name is a link, the file that it points to is replaced.
        Ok(_) => out.canonicalize().context(out, "write")?,
        Err(error) if is_missing(&error) => new_name(out)?,
        Err(error) => return Err(error).context(out, "write"),
    };
    match host_of_sidecar(&place) {
        Some(_) => Err(refuse(&place, "this name is that of a backup or a record", "choose another name")),
        None => Ok(place),
    }
}

/// The file to write a graft of `host` to. An existing file is replaced only if it is empty, a copy of the host, or a
/// graft of the host's kind; with `force`, in any case. Returns with it the file that is replaced.
///
/// # Errors
/// As for [`file`]; or an existing file would be lost.
pub(crate) fn graft(out: &Path, host: &HostFile, force: bool) -> Result<(PathBuf, Option<HostFile>), Error> {
    let place = file(out, Some(host.path()))?;
    if !place.exists() {
        return Ok((place, None));
    }
    let there = HostFile::open(place.clone())?;
    match force || may_be_replaced(&there, host)? {
        true => Ok((place, Some(there))),
        false => Err(Error::OutIsOther { out: out.to_owned(), host: host.path().to_owned() }),
    }
}

/// Whether the file is empty, a copy of the host, or a graft of the host's kind. Packed bundles and images are not
/// unpacked for this check: any file of the same format may be replaced.
fn may_be_replaced(there: &HostFile, host: &HostFile) -> Result<bool, Error> {
    if there.start().is_empty() {
        return Ok(true);
    }
    let kind = host.signature();
    if !matches!(kind, Signature::Archive | Signature::Executable) {
        return Ok(there.signature() == kind && is_tar(there.start()) == is_tar(host.start()));
    }
    let (found, stock) = (there.bytes()?, host.bytes()?);
    if found == stock {
        return Ok(true);
    }
    let (Ok(report), Ok(of_stock)) = (inspector::inspect(found), inspector::inspect(stock)) else {
        return Ok(false);
    };
    let named = donors::find(&report.malloc.name).is_some() || report.strings == inspector::Strings::Grafted;
    let carries = named || transplant::carries_graft(found);
    Ok(carries && report.kind == of_stock.kind && report.arch == of_stock.arch)
}

/// The folder to make. It must be missing or empty, and not inside `root`, the folder that is copied.
///
/// # Errors
/// It is neither, or is inside `root`.
pub(crate) fn folder(out: &Path, root: Option<&Path>) -> Result<PathBuf, Error> {
    let (place, real) = match fs::metadata(out) {
        Ok(there) if there.is_dir() => {
            let real = out.canonicalize().context(out, "write")?;
            if Some(&*real) == root {
                return Err(Error::OutIsTarget { out: out.to_owned() });
            }
            if fs::read_dir(&real).context(out, "read")?.next().is_some() {
                return Err(refuse(
                    out,
                    "the folder is not empty",
                    "name a folder that does not exist yet; a folder that an interrupted run has made is complete",
                ));
            }
            (real.clone(), real)
        }
        Ok(_) => return Err(refuse(out, "it is a file, and a folder is written", "name a folder to write")),
        Err(error) if is_missing(&error) => {
            let place = new_name(out)?;
            let folder = folder_of(&place);
            let real = folder.canonicalize().context(folder, "find")?;
            (place, real)
        }
        Err(error) => return Err(error).context(out, "write"),
    };
    if root.is_some_and(|root| real.starts_with(root)) {
        return Err(refuse(out, "it is inside the target", "name a folder outside of it"));
    }
    Ok(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_graft_may_replace() {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            fs::write(&path, bytes).unwrap();
            path
        };
        let tar = [&[b'x'; 257][..], b"ustar", &[0; 250]].concat();
        let own = fs::read(std::env::current_exe().unwrap()).unwrap();
        let hosts = [put("libc.a", b"!<arch>\n"), put("sdk.tar.gz", b"\x1f\x8b\x08host"), put("app.tar", &tar)];
        let [libc, bundle, image] = &hosts;
        let program = put("program", &own);
        let others = [
            (put("empty", b""), vec![libc, bundle, image, &program]),
            (put("text", b"int main(void);\n"), vec![]),
            (put("binary", &[0, 1, 2, 255]), vec![]),
            (put("copy.a", b"!<arch>\n"), vec![libc]),
            (put("other.tar.gz", b"\x1f\x8b\x08other"), vec![bundle]),
            (put("other.tar", &[&tar[..], b"more"].concat()), vec![image]),
            (put("copy", &own), vec![&program]),
            (put("other.zip", b"PK\x03\x04"), vec![]),
        ];
        for (there, may) in &others {
            for host in hosts.iter().chain([&program]) {
                let file = HostFile::open(host.clone()).unwrap();
                let (kept, forced) = (graft(there, &file, false), graft(there, &file, true));
                assert!(forced.is_ok(), "{} {}", there.display(), host.display());
                match may.contains(&host) {
                    true => assert!(kept.is_ok(), "{} {}", there.display(), host.display()),
                    false => assert!(matches!(kept, Err(Error::OutIsOther { .. })), "{}: {kept:?}", there.display()),
                }
            }
        }
    }
}

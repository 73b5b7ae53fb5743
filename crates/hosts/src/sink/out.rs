//! The rule for where `-o` may write, the same for every target: it replaces no file that the user could miss.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::digest;
use crate::error::{Error, IoContext, is_missing};
use crate::file::host_file::HostFile;
use crate::file::names::{folder_of, host_of_sidecar};

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

/// The file to write a graft of `host` to. An existing file is replaced only if it is empty, a copy of the host, or
/// `is_graft` says that it is a graft of the host's kind; with `force`, in any case. Returns with it the file that is
/// replaced, unless that cannot be read.
///
/// # Errors
/// As for [`file`]; or an existing file would be lost, or cannot be read to tell.
pub(crate) fn graft(
    out: &Path,
    host: &HostFile,
    force: bool,
    is_graft: impl FnOnce(&HostFile) -> Result<bool, Error>,
) -> Result<(PathBuf, Option<HostFile>), Error> {
    let place = file(out, Some(host.path()))?;
    if !place.exists() {
        return Ok((place, None));
    }
    let there = match HostFile::open(place.clone()) {
        Err(_) if force => return Ok((place, None)),
        there => there?,
    };
    match force || there.start().is_empty() || is_copy(&there, host)? || is_graft(&there)? {
        true => Ok((place, Some(there))),
        false => Err(Error::OutIsOther { out: out.to_owned(), host: host.path().to_owned() }),
    }
}

/// Checks that a stock file with this SHA-256 may be written to `out`, which [`file()`] has accepted.
///
/// # Errors
/// A file is there already, and is neither empty nor that stock file; or it cannot be read.
pub(crate) fn stock(out: &Path, sha256: &str) -> Result<(), Error> {
    let found = File::open(out).and_then(|there| Ok((there.metadata()?.len(), digest::of_file(&there)?)));
    match found {
        Ok((0, _)) => Ok(()),
        Ok((_, there)) if there == sha256 => Ok(()),
        Ok(_) => {
            let reason = "another file is there, and would be lost";
            Err(refuse(out, reason, "choose another name, or delete that file"))
        }
        Err(error) if is_missing(&error) => Ok(()),
        Err(error) => Err(error).context(out, "read"),
    }
}

fn is_copy(there: &HostFile, host: &HostFile) -> Result<bool, Error> {
    let size = |file: &HostFile| Ok::<_, Error>(file.file().metadata().context(file.path(), "read")?.len());
    if there.start() != host.start() || size(there)? != size(host)? {
        return Ok(false);
    }
    // Opened again, because a bundle or an image may be too large for memory.
    let digest = |path: &Path| File::open(path).and_then(|file| digest::of_file(&file)).context(path, "read");
    Ok(digest(there.path())? == digest(host.path())?)
}

/// Whether an archive or an executable carries a graft, and is of the host's kind and architecture.
///
/// # Errors
/// One of the two cannot be read.
pub(crate) fn is_graft_of(there: &HostFile, host: &HostFile) -> Result<bool, Error> {
    let (found, stock) = (there.bytes()?, host.bytes()?);
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
    use fixtures::program::Build;

    use super::*;

    #[test]
    fn what_a_graft_may_replace() {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            fs::write(&path, bytes).unwrap();
            path
        };
        let own = fs::read(Build::PLAIN.program(folder.path(), "built", "int main(void) { return 0; }")).unwrap();
        let hosts = [put("libc.a", b"!<arch>\n"), put("sdk.tar.gz", b"\x1f\x8b\x08host"), put("program", &own)];
        let [libc, bundle, program] = &hosts;
        let others = [
            (put("empty", b""), vec![libc, bundle, program]),
            (put("text", b"int main(void);\n"), vec![]),
            (put("binary", &[0, 1, 2, 255]), vec![]),
            (put("copy.a", b"!<arch>\n"), vec![libc]),
            (put("copy.tar.gz", b"\x1f\x8b\x08host"), vec![bundle]),
            (put("other.tar.gz", b"\x1f\x8b\x08tsoh"), vec![]),
            (put("copy", &own), vec![program]),
            (put("changed", &[&own[..own.len() - 1], &[!own[own.len() - 1]]].concat()), vec![]),
            (put("other.zip", b"PK\x03\x04"), vec![]),
        ];
        for (there, may) in &others {
            for host in &hosts {
                let file = HostFile::open(host.clone()).unwrap();
                let kept = graft(there, &file, false, |there| is_graft_of(there, &file));
                match may.contains(&host) {
                    true => assert!(kept.is_ok(), "{} {}", there.display(), host.display()),
                    false => assert!(matches!(kept, Err(Error::OutIsOther { .. })), "{}: {kept:?}", there.display()),
                }
                assert!(graft(there, &file, false, |_| Ok(true)).is_ok(), "{}", there.display());
                let forced = graft(there, &file, true, |_| unreachable!("a forced graft replaces any file"));
                assert!(forced.is_ok_and(|(_, replaced)| replaced.is_some()), "{}", there.display());
            }
        }
    }

    #[test]
    fn what_stock_may_replace() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("stock.tar");
        let stock = |bytes: &[u8]| super::stock(&place, &digest::sha256(bytes));
        assert!(stock(b"stock").is_ok());
        for (there, may) in [(&b""[..], true), (b"stock", true), (b"other", false)] {
            fs::write(&place, there).unwrap();
            assert_eq!(stock(b"stock").is_ok(), may, "{there:?}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_replaced_by_force_only() {
        let folder = tempfile::tempdir().unwrap();
        let (host, there) = (folder.path().join("libc.a"), folder.path().join("there"));
        fs::write(&host, b"!<arch>\n").unwrap();
        // A file that even root cannot read: its first read fails with EIO.
        std::os::unix::fs::symlink("/proc/self/mem", &there).unwrap();
        let host = HostFile::open(host).unwrap();
        assert!(matches!(graft(&there, &host, false, |_| Ok(true)), Err(Error::Io { .. })));
        assert!(graft(&there, &host, true, |_| Ok(true)).is_ok_and(|(_, replaced)| replaced.is_none()));
    }
}

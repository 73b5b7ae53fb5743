//! A file of its own, made from a donor rather than from a host.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use crate::conditions::Conditions;
use crate::error::{Error, IoContext};
use crate::lock::FolderLocks;
use crate::pending::Pending;
use crate::place::sweep;
use crate::recognise::is_missing;
use crate::record::{folder_of, host_of_companion, temporary};
use crate::transaction::{Deed, Transaction, sync_folder};

/// Writes `bytes` to the file `out`, in one step: whoever looks sees what was there before or all of them.
///
/// # Errors
/// When `out` is a folder or a special file, or its folder is missing or cannot be written to.
pub fn write(out: &Path, bytes: &[u8]) -> Result<(), Error> {
    write_under(out, bytes, &Conditions::default()).map(Pending::settle)
}

/// The same, undecided yet, under special conditions.
///
/// # Errors
/// Those of [`write`].
pub fn write_under(out: &Path, bytes: &[u8], conditions: &Conditions<'_>) -> Result<Pending<()>, Error> {
    let refuse = |reason, help| Error::Out { out: out.to_owned(), reason, help };
    let out = &match fs::metadata(out) {
        Ok(there) if there.is_dir() => return Err(refuse("it is a folder", "name the file to write")),
        Ok(there) if !there.is_file() => return Err(refuse("it is a special file", "name the file to write")),
        // Where the name is a link, the file behind it is replaced.
        Ok(_) => out.canonicalize().context(out, "write")?,
        Err(error) if !is_missing(&error) => return Err(error).context(out, "write"),
        Err(_) if !folder_of(out).is_dir() => {
            return Err(refuse("there is no such folder to write it in", "make the folder first"));
        }
        Err(_) => out.to_owned(),
    };
    if host_of_companion(out).is_some() {
        return Err(refuse("this name is that of a backup or a record", "choose another name"));
    }
    let locks = FolderLocks::take([out.as_path()], conditions)?;
    sweep(out, &locks);
    let mut file =
        temporary(out, |name| File::options().write(true).create_new(true).open(name)).context(out, "write")?;
    file.as_file_mut().write_all(bytes).and_then(|()| file.as_file().sync_all()).context(out, "write")?;
    let mut transaction = Transaction::new(Deed::Write);
    transaction.swap(out, file.into_temp_path(), out)?;
    let _ = sync_folder(folder_of(out));
    Ok(Pending::new((), transaction, Some(locks)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_it_or_what_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("allograft.o");
        write(&out, b"first").unwrap();
        write(&out, b"second").unwrap();
        assert_eq!(fs::read(&out).unwrap(), b"second");
        let link = folder.path().join("link.o");
        std::os::unix::fs::symlink("allograft.o", &link).unwrap();
        write(&link, b"third").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&out).unwrap(), b"third");
        for wrong in [folder.path(), &folder.path().join("no/such/folder.o"), Path::new("/dev/null")] {
            assert!(matches!(write(wrong, b"x"), Err(Error::Out { .. })), "{}", wrong.display());
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "nothing else is left");
    }
}

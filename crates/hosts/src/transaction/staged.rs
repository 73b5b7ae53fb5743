//! Files and folders that are ready to take a name. A [`Transaction`](crate::transaction::Transaction) gives names to
//! no other type, and only this module makes it: from a proven graft, a container that was written from proven grafts
//! and read back, a stock file or a record. So code that would place unverified bytes does not compile.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use tempfile::TempPath;

use crate::digest;
use crate::error::{Error, IoContext};
use crate::file::attributes::{self, LostAttribute};
use crate::file::links;
use crate::file::temporaries::{TemporaryFolder, new_file, temporary};
use crate::prove::proven::Proven;
use crate::record::Record;

/// A file under a temporary name, in the folder of its final name.
#[derive(Debug)]
pub(crate) struct Staged(TempPath);

impl Staged {
    /// Writes a proven file for `place` and syncs it to disk, with mode, owner and extended attributes of `like`, or
    /// those of a new file. Returns the attributes that could not be kept, too.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn proven(
        place: &Path,
        proven: &Proven,
        like: Option<&File>,
    ) -> Result<(Staged, Vec<LostAttribute>), Error> {
        let mut file = match like {
            Some(_) => new_file(place)?,
            None => {
                let create = |name: &Path| File::options().write(true).create_new(true).open(name);
                temporary(place, create).context(place, "write")?
            }
        };
        file.as_file_mut().write_all(proven.bytes()).context(place, "write")?;
        let lost = like.map(|like| attributes::carry(like, file.as_file())).transpose().context(place, "write")?;
        file.as_file().sync_all().context(place, "write")?;
        Ok((Staged(file.into_temp_path()), lost.unwrap_or_default()))
    }

    /// The container that was written to `file` and synced, once `check` has read it back and accepted it.
    ///
    /// # Errors
    /// Those of `check`.
    pub(crate) fn container(file: TempPath, check: impl FnOnce(&Path) -> Result<(), Error>) -> Result<Staged, Error> {
        check(&file)?;
        Ok(Staged(file))
    }

    /// Makes a second name, a hard link, of the stock file at `path`, beside `host`.
    pub(crate) fn second_name(host: &Path, path: &Path) -> io::Result<Staged> {
        Ok(Staged(temporary(host, |name| links::link(path, name))?.into_temp_path()))
    }

    /// Copies the stock file at `path` to a file beside `host` and syncs it, with its times, and its attributes as far
    /// as the system permits. Returns those that could not be kept, too.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn copy(host: &Path, path: &Path) -> Result<(Staged, Vec<LostAttribute>), Error> {
        let from = File::open(path).context(path, "read")?;
        let mut copy = new_file(host)?;
        io::copy(&mut &from, copy.as_file_mut()).context(path, "copy")?;
        let lost = attributes::carry(&from, copy.as_file()).context(path, "copy")?;
        attributes::carry_times(&from, copy.as_file()).context(path, "copy")?;
        copy.as_file().sync_all().context(path, "copy")?;
        Ok((Staged(copy.into_temp_path()), lost))
    }

    /// The SHA-256 of its bytes.
    pub(crate) fn sha256(&self) -> io::Result<String> {
        File::open(&self.0).and_then(|file| digest::of_file(&file))
    }

    /// Writes the record of `host`. `like`: the host, open.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn record(host: &Path, record: &Record, like: &File) -> Result<Staged, Error> {
        record.written(host, like).map(Staged)
    }

    /// The file, for the transaction to rename.
    pub(crate) fn into_file(self) -> TempPath {
        self.0
    }
}

/// A folder under a temporary name.
pub(crate) struct StagedFolder(TemporaryFolder);

impl StagedFolder {
    /// The folder that was written, synced to disk, once `check` has read it back and accepted it.
    ///
    /// The whole file system is synced in one call: for the thousands of files of a toolchain, syncs one by one would
    /// wait for the disk as many times. Without it, a loss of power after the rename could leave the folder empty, or
    /// with empty files.
    ///
    /// # Errors
    /// Those of `check`; the folder cannot be synced to disk.
    pub(crate) fn container(
        folder: TemporaryFolder,
        check: impl FnOnce(&Path) -> Result<(), Error>,
    ) -> Result<StagedFolder, Error> {
        check(folder.path())?;
        let handle = File::open(folder.path()).context(folder.path(), "open")?;
        rustix::fs::syncfs(&handle).map_err(io::Error::from).context(folder.path(), "sync")?;
        Ok(StagedFolder(folder))
    }

    /// The folder, for the transaction to rename.
    pub(crate) fn into_folder(self) -> TemporaryFolder {
        self.0
    }
}

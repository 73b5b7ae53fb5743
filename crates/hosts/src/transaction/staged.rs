//! Files and folders that are ready to take a name. A [`Transaction`](crate::transaction::Transaction) gives names to
//! nothing else, and only this module makes them, from what may have one: a graft that was proven, a container that was
//! written from proven grafts and read again, a stock file, a record.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use tempfile::TempPath;

use crate::error::{Error, IoContext};
use crate::file::attributes::{self, Lost};
use crate::file::links;
use crate::file::temporaries::{TemporaryFolder, new_file, temporary};
use crate::prove::proven::Proven;
use crate::record::Record;

/// A file under a temporary name, beside the one that it will have.
#[derive(Debug)]
pub(crate) struct Staged(TempPath);

impl Staged {
    /// A proven file for `place`, safely on disk, with mode, owner and extended attributes of `like`, or as a new file
    /// has them; and what could not be kept.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn proven(place: &Path, proven: &Proven, like: Option<&File>) -> Result<(Staged, Vec<Lost>), Error> {
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

    /// A container that was written to `file`, safely on disk, once `check` has read it again and found it good.
    ///
    /// # Errors
    /// Those of `check`.
    pub(crate) fn container(file: TempPath, check: impl FnOnce(&Path) -> Result<(), Error>) -> Result<Staged, Error> {
        check(&file)?;
        Ok(Staged(file))
    }

    /// A second name of the stock file at `path`, beside `host`: a hard link.
    pub(crate) fn second_name(host: &Path, path: &Path) -> io::Result<Staged> {
        Ok(Staged(temporary(host, |name| links::link(path, name))?.into_temp_path()))
    }

    /// A copy of the stock file at `path`, beside `host`, safely on disk, with its times and with its attributes as far
    /// as the system permits; and what could not be kept.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn copy(host: &Path, path: &Path) -> Result<(Staged, Vec<Lost>), Error> {
        let from = File::open(path).context(path, "read")?;
        let mut copy = new_file(host)?;
        io::copy(&mut &from, copy.as_file_mut()).context(path, "copy")?;
        let lost = attributes::carry(&from, copy.as_file()).context(path, "copy")?;
        attributes::carry_times(&from, copy.as_file()).context(path, "copy")?;
        copy.as_file().sync_all().context(path, "copy")?;
        Ok((Staged(copy.into_temp_path()), lost))
    }

    /// The record of `host`, which is the file `like`.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn record(host: &Path, record: &Record, like: &File) -> Result<Staged, Error> {
        record.written(host, like).map(Staged)
    }

    /// The file, for the one that gives it its name.
    pub(crate) fn into_file(self) -> TempPath {
        self.0
    }
}

/// A folder under a temporary name.
pub(crate) struct StagedFolder(TemporaryFolder);

impl StagedFolder {
    /// A folder that was written, safely on disk, once `check` has read it again and found it good.
    ///
    /// All that the file system has not written yet goes to disk, in one call: a sync of each file and folder would
    /// take a toolchain's thousands of files as many waits for the disk. Without it, a loss of power behind the rename
    /// could leave the name, and below it empty files or nothing.
    ///
    /// # Errors
    /// Those of `check`; it cannot be written to disk.
    pub(crate) fn container(
        folder: TemporaryFolder,
        check: impl FnOnce(&Path) -> Result<(), Error>,
    ) -> Result<StagedFolder, Error> {
        check(folder.path())?;
        let handle = File::open(folder.path()).context(folder.path(), "open")?;
        rustix::fs::syncfs(&handle).map_err(io::Error::from).context(folder.path(), "sync")?;
        Ok(StagedFolder(folder))
    }

    /// The folder, for the one that gives it its name.
    pub(crate) fn into_folder(self) -> TemporaryFolder {
        self.0
    }
}

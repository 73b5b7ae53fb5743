//! Stock archives, the source of members that a foreign allocator's script has removed from a `libc.a`.

use std::fs;
use std::path::{Path, PathBuf};

use surgery::archive::Archive;
use surgery::plan::{self, Restoration};

use crate::error::{Error, IoContext};
use crate::file::signature::{Signature, signature_of};

/// The archives that are read from a folder: the C library, and those with C++'s operators.
const NAMES: [&str; 3] = ["libc.a", "libc++abi.a", "libstdc++.a"];

/// Archives in memory.
#[derive(Debug, Default)]
pub(crate) struct Stock(Vec<(PathBuf, Vec<u8>)>);

impl Stock {
    /// The archives at `paths`, and those in the folders among them, in the order of their paths.
    pub(crate) fn read(paths: &[PathBuf]) -> Result<Stock, Error> {
        let mut stock = Stock::default();
        for path in paths {
            let before = stock.0.len();
            match fs::metadata(path).context(path, "read")?.is_dir() {
                true => stock.gather(path)?,
                false => stock.take(path)?,
            }
            if stock.0.len() == before {
                return Err(Error::NoStock { path: path.clone() });
            }
        }
        Ok(stock)
    }

    fn take(&mut self, path: &Path) -> Result<(), Error> {
        let bytes = fs::read(path).context(path, "read")?;
        if signature_of(&bytes) == Signature::Archive {
            parse(path, &bytes)?;
            self.0.push((path.to_owned(), bytes));
        }
        Ok(())
    }

    fn gather(&mut self, folder: &Path) -> Result<(), Error> {
        let entries = fs::read_dir(folder).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let mut entries = entries.context(folder, "read")?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let path = entry.path();
            let kind = entry.file_type().context(&path, "read")?;
            if kind.is_dir() {
                self.gather(&path)?;
            } else if kind.is_file() && NAMES.iter().any(|name| entry.file_name() == *name) {
                self.take(&path)?;
            }
        }
        Ok(())
    }

    /// The members to restore to `archive`, which holds a foreign allocator.
    pub(crate) fn restore(&self, archive: &Archive<'_>) -> Result<Restoration, Error> {
        let mut stock = Vec::new();
        for (path, bytes) in &self.0 {
            stock.push(parse(path, bytes)?);
        }
        Ok(plan::restore(archive, &stock))
    }
}

/// Parses an archive. `path` is for messages.
pub(crate) fn parse<'a>(path: &Path, bytes: &'a [u8]) -> Result<Archive<'a>, Error> {
    Archive::parse(bytes).map_err(|source| Error::Malformed { path: path.to_owned(), source })
}

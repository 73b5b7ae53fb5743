//! The destinations of grafts: in place over their hosts, a file, a folder, a bundle or an image.
//!
//! | module | what lives there |
//! | --- | --- |
//! | `out` | the rule for where `-o` may write |
//! | `folder` | a copy of a folder with grafts in it |
//! | `emitted` | a file made from a donor alone, and files for a build system |
//! | `bundle` | every `libc.a` of a packed bundle grafted |
//!
//! Every write goes through a [`Sink`] and its transaction, so that locks, leftovers of killed runs, dry runs and the
//! rollback after an error are in one place.

pub(crate) mod bundle;
pub(crate) mod emitted;
pub(crate) mod folder;
pub(crate) mod out;

use std::path::Path;

use crate::error::Error;
use crate::error::rollback::Purpose;
use crate::file::lock::FolderLocks;
use crate::request::Request;
use crate::transaction::Transaction;
use crate::transaction::pending::Pending;
use crate::transaction::place::remove_leftovers;
use crate::watch::Watch;

/// Files that are about to be written. Their folders are locked, and leftovers of killed runs beside them are deleted.
/// In a dry run it is empty, and writes nothing.
pub(crate) struct Sink(Option<(FolderLocks, Transaction)>);

impl Sink {
    /// Opens `files` for a graft, unless the request is a dry run.
    ///
    /// # Errors
    /// A folder cannot be locked.
    pub(crate) fn of_graft<'f>(
        request: &Request,
        purpose: Purpose,
        files: impl IntoIterator<Item = &'f Path>,
        watch: &Watch<'_>,
    ) -> Result<Sink, Error> {
        if request.dry_run { Ok(Sink(None)) } else { Sink::open(purpose, files, watch) }
    }

    /// Opens `files`.
    ///
    /// # Errors
    /// A folder cannot be locked.
    pub(crate) fn open<'f>(
        purpose: Purpose,
        files: impl IntoIterator<Item = &'f Path>,
        watch: &Watch<'_>,
    ) -> Result<Sink, Error> {
        let files: Vec<&Path> = files.into_iter().collect();
        let locks = FolderLocks::take(files.iter().copied(), watch)?;
        for file in files {
            remove_leftovers(file, &locks);
        }
        Ok(Sink(Some((locks, Transaction::new(purpose)))))
    }

    /// Calls `write` to write the files and complete the result; in a dry run, only returns the result. It stays
    /// pending until it has been reported.
    ///
    /// # Errors
    /// Those of `write`, after a rollback.
    pub(crate) fn write<T>(
        self,
        mut result: T,
        write: impl FnOnce(&mut T, &mut Transaction) -> Result<(), Error>,
    ) -> Result<Pending<T>, Error> {
        let Some((locks, mut transaction)) = self.0 else { return Ok(Pending::nothing(result)) };
        match write(&mut result, &mut transaction) {
            Ok(()) => Ok(Pending::new(result, transaction, Some(locks))),
            Err(error) => Err(transaction.failed(error)),
        }
    }
}

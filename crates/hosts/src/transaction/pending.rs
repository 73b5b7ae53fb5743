//! Completed work that can still be rolled back, until its result has been reported: if standard output is closed or
//! full, the user would not know that files have changed.

use std::ops::Deref;

use crate::error::rollback::RollbackFailure;
use crate::file::lock::FolderLocks;
use crate::transaction::Transaction;

/// The result of an operation. Its files are all in place, and the files that they replaced are kept under temporary
/// names.
///
/// The caller commits it once it has reported the result, or rolls it back if the report fails. Dropping it rolls it
/// back.
#[must_use = "what is neither committed nor taken back is taken back in silence"]
pub struct Pending<T> {
    result: T,
    transaction: Option<Transaction>,
    /// Keeps other allografts out of these folders until the result is committed or rolled back.
    _locks: Option<FolderLocks>,
}

impl<T> Pending<T> {
    pub(crate) fn new(result: T, transaction: Transaction, locks: Option<FolderLocks>) -> Pending<T> {
        Pending { result, transaction: Some(transaction), _locks: locks }
    }

    /// The result of an operation that changed nothing.
    pub(crate) fn nothing(result: T) -> Pending<T> {
        Pending { result, transaction: None, _locks: None }
    }

    /// Changes the result by `add`.
    pub fn noted(mut self, add: impl FnOnce(&mut T)) -> Pending<T> {
        add(&mut self.result);
        self
    }

    pub(crate) fn map<U>(self, change: impl FnOnce(T) -> U) -> Pending<U> {
        Pending { result: change(self.result), transaction: self.transaction, _locks: self._locks }
    }

    /// Commits the changes: deletes the replaced files and, for hosts that are stock again, backup and record.
    pub fn commit(self) -> T {
        if let Some(transaction) = self.transaction {
            transaction.commit();
        }
        self.result
    }

    /// Restores every file.
    ///
    /// # Errors
    /// The files that could not be rolled back.
    pub fn roll_back(self) -> Result<(), RollbackFailure> {
        self.transaction.map_or(Ok(()), Transaction::roll_back)
    }
}

impl<T> Deref for Pending<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.result
    }
}

//! Completed work that can still be rolled back, until its result has been reported.

use std::ops::Deref;

use crate::error::rollback::RollbackFailure;
use crate::file::lock::FolderLocks;
use crate::transaction::Transaction;

/// The result of an operation whose files are all in place, and what they replaced still there under temporary names.
///
/// The caller commits it once it has reported the result, or takes it back if the report fails. Dropped, it is taken
/// back.
#[must_use = "what is neither committed nor taken back is taken back in silence"]
pub struct Pending<T> {
    result: T,
    transaction: Option<Transaction>,
    /// No other allograft works in these folders until it is decided.
    _locks: Option<FolderLocks>,
}

impl<T> Pending<T> {
    pub(crate) fn new(result: T, transaction: Transaction, locks: Option<FolderLocks>) -> Pending<T> {
        Pending { result, transaction: Some(transaction), _locks: locks }
    }

    /// Of an operation that changed nothing.
    pub(crate) fn nothing(result: T) -> Pending<T> {
        Pending { result, transaction: None, _locks: None }
    }

    /// Adds something to the result.
    pub fn noted(mut self, add: impl FnOnce(&mut T)) -> Pending<T> {
        add(&mut self.result);
        self
    }

    pub(crate) fn map<U>(self, change: impl FnOnce(T) -> U) -> Pending<U> {
        Pending { result: change(self.result), transaction: self.transaction, _locks: self._locks }
    }

    /// It stays. Deletes what was there before, and of hosts that are stock again, backup and record.
    pub fn commit(self) -> T {
        if let Some(transaction) = self.transaction {
            transaction.commit();
        }
        self.result
    }

    /// Every file as it was before.
    ///
    /// # Errors
    /// The files that could not be taken back.
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

//! Hard links and the atomic exchange of two names. Not every file system has them; tests can disable both.

use std::path::Path;
use std::{fs, io};

use rustix::fs::{CWD, RenameFlags, renameat_with};

/// Gives the file at `path` the second name `name`: a hard link. Some file systems have none; with
/// `fs.protected_hardlinks` only a file's owner may make one.
pub(crate) fn link(path: &Path, name: &Path) -> io::Result<()> {
    #[cfg(test)]
    lacking::LINKS.with(lacking::refuse)?;
    fs::hard_link(path, name)
}

/// Exchanges the names of two files or folders that are both there. Linux has it since 3.15, for most file systems.
pub(crate) fn exchange(one: &Path, other: &Path) -> io::Result<()> {
    #[cfg(test)]
    lacking::EXCHANGE.with(lacking::refuse)?;
    Ok(renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE)?)
}

/// Renames `path` to `name`, which has to be free.
pub(crate) fn move_to(path: &Path, name: &Path) -> io::Result<()> {
    match renameat_with(CWD, path, CWD, name, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::EXIST) => Err(rustix::io::Errno::EXIST.into()),
        // Where nothing can be asked of a rename: temporary names are as good as never taken.
        Err(_) => fs::rename(path, name),
    }
}

/// File systems without hard links, or without exchange, for tests.
#[cfg(test)]
pub(crate) mod lacking {
    use super::*;
    use std::cell::Cell;

    thread_local! {
        pub(crate) static LINKS: Cell<bool> = const { Cell::new(false) };
        pub(crate) static EXCHANGE: Cell<bool> = const { Cell::new(false) };
    }

    pub(super) fn refuse(lacking: &Cell<bool>) -> io::Result<()> {
        if lacking.get() { Err(rustix::io::Errno::INVAL.into()) } else { Ok(()) }
    }

    /// Does `work` on this thread without hard links and, if `exchange` too, without exchange.
    pub(crate) fn without<T>(links: bool, exchange: bool, work: impl FnOnce() -> T) -> T {
        LINKS.set(links);
        EXCHANGE.set(exchange);
        let done = work();
        LINKS.set(false);
        EXCHANGE.set(false);
        done
    }
}

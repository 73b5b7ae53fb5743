//! Hard links and the atomic exchange of two names. Some file systems lack one or both, so every caller has a fallback;
//! tests can disable each of them.

use std::path::Path;
use std::{fs, io};

use rustix::fs::{CWD, RenameFlags, renameat_with};

/// Gives the file at `path` the second name `name`: a hard link. Some file systems do not support them; with
/// `fs.protected_hardlinks` only a file's owner may make one.
pub(crate) fn link(path: &Path, name: &Path) -> io::Result<()> {
    #[cfg(test)]
    lacking::LINKS.with(lacking::refuse)?;
    fs::hard_link(path, name)
}

/// Exchanges the names of two existing files or folders. Linux can since 3.15, on most file systems.
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
        // Without `RENAME_NOREPLACE`: the target is a temporary name, which is random and so almost certainly free.
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

    /// Runs `work` with hard links disabled on this thread if `links`, and exchange if `exchange`.
    pub(crate) fn without<T>(links: bool, exchange: bool, work: impl FnOnce() -> T) -> T {
        LINKS.set(links);
        EXCHANGE.set(exchange);
        let done = work();
        LINKS.set(false);
        EXCHANGE.set(false);
        done
    }
}

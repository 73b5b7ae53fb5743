//! Remedies for errors. They are values rather than text, because only the program knows its commands and flags: it
//! puts them into words.

use std::io;
use std::path::PathBuf;

use format::{Arch, DonorKind};

use crate::error::foreign::ForeignWays;
use crate::error::needed::Emit;
use crate::error::programs::Programs;

/// A remedy for an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remedy {
    /// A sentence; for remedies that name no command or flag of the program.
    Advice(String),
    /// The remedy for an archive that was refused.
    Archive(surgery::plan::Remedy),
    /// Remedies for an archive in which another allocator is in libc's place: string functions alone, or a donor
    /// instead of that allocator.
    Foreign(Box<ForeignWays>),
    /// The remedy for an executable that was refused.
    Executable(transplant::Remedy),
    /// Install an emulator, graft on a machine that runs such programs, or do without the self-test.
    Emulate {
        /// The programs' architecture.
        arch: Arch,
    },
    /// Name the root folder that has the loader and the libraries of a program for another architecture.
    NameRoot,
    /// Write the shared object that the program is to load.
    Emit(Emit),
    /// Request no shared object.
    WithoutNeeded,
    /// Have the program load a file by a path that other users cannot replace, or merge the donor into it.
    NeedTrusted,
    /// A bug in allograft: ask for a report. Another donor may work.
    Report,
    /// Let the self-test take longer.
    WaitLonger,
    /// Confirm that the running system's loader is to be replaced, or try the graft elsewhere first.
    ConfirmLive,
    /// Request no trial run: only executables are run before they are placed.
    RunNothing,
    /// Leave out the destination: the target is then replaced, with a backup.
    GraftInPlace,
    /// Write to a different file, or confirm that this one may be lost.
    NameAnotherOut,
    /// Look up the donors' options.
    ListOptions,
    /// Look up the donors' architectures.
    ListArchitectures,
    /// Look up the architectures for which musl's `libc.a` can be grafted: no other archive can.
    ListGraftable,
    /// Graft the programs of a folder, each by its name.
    GraftPrograms(Programs),
    /// Graft these programs, which a folder's graft leaves alone, by their names.
    GraftByName(Vec<PathBuf>),
    /// Look up the allocators of the programs in a folder.
    InspectFolder {
        /// The folder.
        folder: PathBuf,
    },
    /// Name a folder with grafts, or the graft itself.
    NameGraft,
    /// Undo the graft: that gives stock back.
    Undo,
    /// Name the donor that has the option, or set none.
    NameDonor,
    /// Graft the stock archive, or keep what it carries.
    GraftStockOrKeep {
        /// The kind of donor that it carries.
        surplus: DonorKind,
    },
    /// Graft the folder first.
    GraftFirst {
        /// The folder.
        folder: PathBuf,
    },
    /// Graft the host of this backup, or undo its graft.
    HostOfBackup {
        /// The host.
        host: PathBuf,
    },
    /// Undo the backup's graft, then the host's.
    UndoBackup {
        /// The backup.
        backup: PathBuf,
        /// The host.
        host: PathBuf,
    },
    /// Name the stock file of a graft whose backup is missing, or get it again.
    NameStock {
        /// The graft.
        host: PathBuf,
        /// How to get it again.
        again: &'static str,
    },
    /// Put the backup in the host's place by hand, then undo again.
    CopyBackup {
        /// The backup.
        backup: PathBuf,
        /// The host.
        host: PathBuf,
        /// Whether the host may be running, so that it is replaced and not written to.
        may_run: bool,
        /// Whether the host has changed since it was grafted; otherwise its record is missing.
        changed: bool,
    },
    /// The graft was written to a file of its own, and its stock file is where it was.
    WrittenElsewhere,
    /// Remove the obstacle, then undo these hosts' grafts: that brings stock back, or completes the undo.
    Resume {
        /// Whether the failed command was a graft; otherwise it was an undo.
        grafting: bool,
        /// The hosts.
        hosts: Vec<PathBuf>,
    },
    /// Remove the obstacle, then delete these files.
    Delete {
        /// The files.
        files: Vec<PathBuf>,
    },
    /// Clear the obstacle, or write the graft elsewhere. Nothing was changed.
    Elsewhere(Obstacle),
}

/// Why a host cannot be replaced where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Obstacle {
    /// It belongs to another user.
    Permission,
    /// The file system is mounted read-only.
    ReadOnly,
    /// The file system or a quota is full, or a file would be too large.
    NoRoom,
    /// The files beside the host would have names that are too long.
    LongName,
}

/// The remedy for an error of the system.
pub(crate) fn of_io(error: &io::Error) -> Remedy {
    const MFILE: Option<i32> = Some(rustix::io::Errno::MFILE.raw_os_error());
    let advice = match error.kind() {
        io::ErrorKind::PermissionDenied => return Remedy::Elsewhere(Obstacle::Permission),
        io::ErrorKind::ReadOnlyFilesystem => return Remedy::Elsewhere(Obstacle::ReadOnly),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            return Remedy::Elsewhere(Obstacle::NoRoom);
        }
        io::ErrorKind::InvalidFilename => return Remedy::Elsewhere(Obstacle::LongName),
        io::ErrorKind::NotFound => "look whether the path is right; nothing was changed",
        io::ErrorKind::OutOfMemory => "free some memory, or raise its limit (`ulimit -v`); nothing was changed",
        _ if error.raw_os_error() == MFILE => "raise the limit of open files (`ulimit -n`); nothing was changed",
        _ => "the system's log may say more (`dmesg`); once it is mended, run the command again; nothing was changed",
    };
    Remedy::Advice(advice.to_owned())
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;
    use crate::error::Error;

    #[test]
    fn every_error_of_the_system_has_a_help_line_of_its_own() {
        let remedy = |errno: Errno| Error::Io { path: "x".into(), action: "write", source: errno.into() }.remedy();
        for (errno, obstacle) in [
            (Errno::NAMETOOLONG, Obstacle::LongName),
            (Errno::FBIG, Obstacle::NoRoom),
            (Errno::ACCESS, Obstacle::Permission),
            (Errno::ROFS, Obstacle::ReadOnly),
        ] {
            assert_eq!(remedy(errno), Remedy::Elsewhere(obstacle), "{errno:?}");
        }
        let read = Error::Io { path: "x".into(), action: "read", source: Errno::ACCESS.into() }.remedy();
        assert!(matches!(read, Remedy::Advice(advice) if advice.contains("permission")));
        for (errno, part) in
            [(Errno::MFILE, "ulimit -n"), (Errno::IO, "dmesg"), (Errno::NOMEM, "memory"), (Errno::NOENT, "path")]
        {
            let Remedy::Advice(advice) = remedy(errno) else { panic!("{errno:?}") };
            assert!(advice.contains(part), "{errno:?}: {advice}");
        }
    }
}

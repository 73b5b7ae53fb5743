//! Remedies for errors. The program words them, since commands and flags are its own.

use std::path::PathBuf;

use format::{Arch, DonorKind};

/// A remedy for an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remedy {
    /// In words, since it takes nothing of this program.
    Advice(String),
    /// About an archive that was refused.
    Archive(surgery::plan::Remedy),
    /// About an executable that was refused.
    Executable(transplant::Remedy),
    /// Install an emulator, graft on a machine that runs such programs, or do without the self-test.
    Emulate {
        /// The programs' architecture.
        arch: Arch,
    },
    /// It is a fault of this program's: report it. ForeignAllocator donor may fit.
    Report,
    /// Confirm that the running system's loader is to be replaced, or try the graft elsewhere first.
    ConfirmLive,
    /// Only executables are run before they are placed: ask for nothing of the kind.
    RunNothing,
    /// Name no other place to write to: the target is replaced then, with a backup.
    GraftInPlace,
    /// Look up the donors' options.
    ListOptions,
    /// Look up the donors' architectures.
    ListArchitectures,
    /// Look up the architectures on which musl's `libc.a` can be grafted: nothing else can.
    ListGraftable,
    /// Stock again is what taking a graft back gives.
    Undo,
    /// Name the donor whose option it is, or set no option.
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
    /// Graft the host of this backup, or take its graft back.
    HostOfBackup {
        /// The host.
        host: PathBuf,
    },
    /// Take the backup's graft back, graft it, and take the host's back.
    UndoBackup {
        /// The backup.
        backup: PathBuf,
        /// The host.
        host: PathBuf,
    },
    /// The graft was written elsewhere than its stock file, which is where it was.
    WrittenElsewhere,
    /// Once what is in the way is mended, take these hosts' grafts back: stock again, or the rest of what was begun.
    Resume {
        /// Whether they were being grafted; otherwise their grafts were being taken back.
        grafting: bool,
        /// The hosts.
        hosts: Vec<PathBuf>,
    },
    /// Once what is in the way is mended, delete these files.
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
    /// It belongs to somebody else.
    Permission,
    /// The file system is mounted read-only.
    ReadOnly,
    /// The file system or a quota is full, or a file would be too large.
    NoRoom,
    /// The files beside the host would have names that are too long.
    LongName,
}

//! The errors of this crate, with their exit codes. This room uses no other, because every room returns its types.
//!
//! | module | what lives there |
//! | --- | --- |
//! | `advice` | the remedy for each error |
//! | `foreign` | the possible grafts of an archive with another allocator |
//! | `host_kind` | the kind of a host, so that help fits it |
//! | `needed` | a dynamic program that cannot load its donor |
//! | `packed` | faults of a packed bundle |
//! | `programs` | programs in a folder without a `libc.a` to graft |
//! | `rollback` | files that could not be rolled back after a failure |
//! | `skipped` | a file that is left alone |
//! | `remedy` | the kinds of remedies; the program has the words for them |

mod advice;
pub(crate) mod foreign;
pub(crate) mod host_kind;
pub(crate) mod needed;
pub(crate) mod packed;
pub(crate) mod programs;
pub(crate) mod remedy;
pub(crate) mod rollback;
pub(crate) mod skipped;

use std::io;
use std::path::{Path, PathBuf};

use format::{DonorKind, Linked};
use rustix::io::Errno;

use self::foreign::{ForeignWays, by_contents};
use self::host_kind::HostKind;
use self::needed::NeededError;
use self::packed::{PackedError, in_entry};
use self::programs::Programs;
use self::rollback::RollbackFailure;
use self::skipped::{Skipped, by_reason};

/// A failed operation. Every host is unchanged, except after [`Error::RollbackFailed`].
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A system call failed: not found, permission denied, disk full.
    #[error("cannot {action} `{}`: {source}", .path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The operation, as a verb: "read", "write".
        action: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// Neither a folder nor a file whose first bytes are known.
    #[error("`{}` is {found}; expected a static archive (libc.a), an executable, a folder with these, or a packed Swift SDK bundle", .path.display())]
    Unrecognised {
        /// The target.
        path: PathBuf,
        /// The kind of file that was found.
        found: String,
    },
    /// It starts like an archive, and is damaged.
    #[error("`{}` is malformed: {source}", .path.display())]
    Malformed {
        /// The archive.
        path: PathBuf,
        /// The offset and the fault.
        source: surgery::archive::ArchiveError,
    },
    /// A packed bundle that is damaged or that must not be trusted.
    #[error("`{}`{}: {problem}", .path.display(), in_entry(.entry))]
    Packed {
        /// The bundle.
        path: PathBuf,
        /// The entry with the fault.
        entry: Option<String>,
        /// The fault.
        problem: PackedError,
    },
    /// A file of a known kind that cannot be grafted.
    #[error("`{}` is {kind}: {reason}", .path.display())]
    Unsupported {
        /// The target.
        path: PathBuf,
        /// Its kind, with an article.
        kind: &'static str,
        /// The reason.
        reason: &'static str,
        /// The remedy.
        help: &'static str,
    },
    /// An archive like musl's that would not work after a graft.
    #[error("`{}`: {refusal}", .path.display())]
    Refused {
        /// The archive.
        path: PathBuf,
        /// The reason.
        refusal: Box<surgery::plan::Refusal>,
    },
    /// An archive in which another allocator is in libc's place, and the request does not say what to do about it.
    #[error("`{}`: {refusal}{}", .path.display(), by_contents(.ways))]
    Foreign {
        /// The archive.
        path: PathBuf,
        /// The member and the symbol that show it.
        refusal: Box<surgery::plan::Refusal>,
        /// The grafts that are possible all the same.
        ways: Box<ForeignWays>,
    },
    /// The donor's object or one of its `--set` options does not fit.
    #[error("donor `{donor}`: {source}")]
    Donor {
        /// The donor's name.
        donor: String,
        /// The donor's or the option's fault.
        source: surgery::donor::DonorError,
    },
    /// This build was made without the objects for the host's architecture.
    #[error("`{}` is for {arch}, and this build of allograft was made without `{donor}` for it", .path.display())]
    NotBuilt {
        /// The host.
        path: PathBuf,
        /// The donor's name.
        donor: &'static str,
        /// Its architecture.
        arch: format::Arch,
    },
    /// The donor does not exist for the host's architecture.
    #[error("`{}` is for {arch}; donor `{donor}` exists for {offered} only", .path.display())]
    NoDonorFor {
        /// The archive.
        path: PathBuf,
        /// The donor's name.
        donor: String,
        /// The host's architecture.
        arch: format::Arch,
        /// The donor's architectures.
        offered: String,
    },
    /// An executable in which something is missing or doubtful.
    #[error("`{}` cannot be grafted: {refusal}", .path.display())]
    Executable {
        /// The executable.
        path: PathBuf,
        /// The reason.
        refusal: transplant::Refusal,
    },
    /// The donor is not built for such a file.
    #[error("donor `{donor}` cannot be put into {} such as `{}`", .kind.described(), .path.display())]
    NoForm {
        /// The file.
        path: PathBuf,
        /// The donor's name.
        donor: &'static str,
        /// The kind of file.
        kind: Linked,
    },
    /// Replacing the target needs a confirmation, which was not given.
    #[error("`{}` {why}", .path.display())]
    Live {
        /// The file.
        path: PathBuf,
        /// A clause whose subject is the file.
        why: String,
    },
    /// The string functions of executables for that architecture cannot be exchanged.
    #[error("the string functions of `{}` cannot be exchanged: they are proven in linked executables for x86_64, and it is for {arch}", .path.display())]
    NoStrings {
        /// The executable.
        path: PathBuf,
        /// Its architecture.
        arch: format::Arch,
    },
    /// A linked file for which no allocator was requested: there, string functions come only with one.
    #[error("nothing can be grafted into `{}` without a donor: it is {}", .path.display(), .kind.described())]
    DonorNeeded {
        /// The file.
        path: PathBuf,
        /// Its architecture.
        arch: format::Arch,
        /// Its kind.
        kind: Linked,
    },
    /// The donor's form for executables is unsound: a fault of this build.
    #[error("donor `{donor}`: {source}")]
    Blob {
        /// The donor's name.
        donor: String,
        /// The fault.
        source: transplant::BlobError,
    },
    /// A graft that the independent reader did not accept.
    #[error("the graft of `{}` does not pass its verification: {unsound}", .path.display())]
    Unsound {
        /// The host.
        path: PathBuf,
        /// The checks that failed.
        unsound: inspector::verify::Unsound,
    },
    /// A trial run was requested for a target that is not an executable.
    #[error("`{}` is not an executable, so there is nothing to run before it is placed", .path.display())]
    NothingToRun {
        /// The target.
        path: PathBuf,
    },
    /// A grafted executable failed its self-test.
    #[error("the graft of `{}` failed its self-test: {said}", .path.display())]
    SelfTest {
        /// The executable.
        path: PathBuf,
        /// Its output.
        said: String,
    },
    /// The self-test of a grafted executable used up its processor time, so it is not known whether the graft is right.
    #[error("the self-test of the graft of `{}` took too long to tell whether the graft is right", .path.display())]
    TooSlow {
        /// The executable.
        path: PathBuf,
    },
    /// A grafted executable could not be tested: this machine cannot run it.
    #[error("the graft of `{}` cannot be tested: {}", .path.display(), Error::nothing_runs(*.arch, .loader.as_deref()))]
    Untested {
        /// The executable.
        path: PathBuf,
        /// Its architecture.
        arch: format::Arch,
        /// Its loader, if that is missing.
        loader: Option<String>,
    },
    /// A dynamic program cannot load its donor.
    #[error(transparent)]
    Needed(#[from] NeededError),
    /// `--try`: stock and graft behave differently.
    #[error("the graft of `{}` behaves differently from stock: {differs}", .path.display())]
    Differs {
        /// The executable.
        path: PathBuf,
        /// The difference.
        differs: String,
    },
    /// Neither an allocator nor string functions were requested.
    #[error("there is nothing to graft: neither a donor nor string functions")]
    NothingToGraft,
    /// An option was set, but no allocator was requested that could have it.
    #[error("option `{name}` belongs to an allocator, but none is grafted")]
    OptionWithoutDonor {
        /// The option.
        name: String,
    },
    /// Undoing needs stock's members, and they are not available.
    #[error("`{}` carries grafted {}, and its stock file, which has its own, is not beside it", .path.display(), stock_functions(*.surplus))]
    StockNeeded {
        /// The host.
        path: PathBuf,
        /// The kind of donor that the host carries and that was not requested.
        surplus: DonorKind,
    },
    /// No Swift SDK of this name is installed, or several are.
    #[error("{} Swift SDK `{id}` in `{}`", if *.matches == 0 { "there is no installed" } else { "there is more than one" }, .folder.display())]
    SwiftSdk {
        /// The requested name.
        id: String,
        /// The folder of the installed ones.
        folder: PathBuf,
        /// The number of SDKs with this name.
        matches: usize,
        /// The names of all.
        installed: Vec<String>,
    },
    /// A file or folder named as stock without an archive in it.
    #[error("`{}` holds no archive to take members from", .path.display())]
    NoStock {
        /// The file or folder that was named as stock.
        path: PathBuf,
    },
    /// The bundle holds no `libc.a` at all.
    #[error("no `libc.a` under `{}`", .folder.display())]
    NoHost {
        /// The bundle.
        folder: PathBuf,
    },
    /// The folder holds neither a `libc.a` nor a program.
    #[error("no `libc.a` and no program under `{}`", .folder.display())]
    NoHostInFolder {
        /// The folder.
        folder: PathBuf,
    },
    /// The folder holds programs, but none that can be grafted.
    #[error("no program under `{}` can be grafted: {}", .folder.display(), by_reason(.skipped))]
    NoProgramGraftable {
        /// The folder.
        folder: PathBuf,
        /// Each one with the reason.
        skipped: Vec<Skipped>,
    },
    /// The folder holds no graft, and neither a `libc.a` nor a program that could be one.
    #[error("no graft with its backup under `{}`, and neither a `libc.a` nor a program", .folder.display())]
    NothingToUndo {
        /// The folder.
        folder: PathBuf,
    },
    /// A container image that cannot be read.
    #[error("{0}")]
    Image(Box<images::Error>),
    /// A container image that has changed since it was grafted, or that differs from what was to be written.
    #[error("`{}`: {reason}", .path.display())]
    ImageChanged {
        /// The image.
        path: PathBuf,
        /// The fault.
        reason: String,
    },
    /// The image holds no static program and no `libc.a`.
    #[error("no static executable and no `libc.a` in `{}`", .path.display())]
    NoHostInImage {
        /// The image.
        path: PathBuf,
    },
    /// The image holds programs, but none that can be grafted.
    #[error("nothing in `{}` can be grafted: {}", .path.display(), by_reason(.skipped))]
    NothingGraftableInImage {
        /// The image.
        path: PathBuf,
        /// Each one with the reason.
        skipped: Vec<Skipped>,
        /// A kind of program in it that the donor does not go into.
        no_form: Option<Linked>,
    },
    /// The folder holds no graft.
    #[error("no graft under `{}`", .folder.display())]
    NoGraft {
        /// The folder.
        folder: PathBuf,
    },
    /// The folder holds `libc.a`s, but none that can be grafted.
    #[error("no `libc.a` under `{}` can be grafted: {}", .folder.display(), by_reason(.skipped))]
    NothingGraftable {
        /// The folder.
        folder: PathBuf,
        /// Each one with the reason.
        skipped: Vec<Skipped>,
        /// The programs in the folder.
        programs: Programs,
    },
    /// The target is a backup that an earlier graft made.
    #[error("`{}` is the backup of `{}`", .path.display(), .host.display())]
    IsBackup {
        /// The target.
        path: PathBuf,
        /// The host that it belongs to.
        host: PathBuf,
    },
    /// The host was changed between the plan and its execution.
    #[error("`{}` changed while it was being worked on", .path.display())]
    ChangedMeanwhile {
        /// The host.
        path: PathBuf,
    },
    /// The record beside a host cannot be read.
    #[error("`{}` is malformed: {reason}", .path.display())]
    MalformedRecord {
        /// The record.
        path: PathBuf,
        /// The fault.
        reason: String,
    },
    /// `undo`: the host is neither the graft on record nor stock.
    #[error("`{}` has changed since it was grafted: found sha256 {found}, expected {expected}", .path.display())]
    ChangedSince {
        /// The host.
        path: PathBuf,
        /// SHA-256 of the host.
        found: String,
        /// SHA-256 of the graft on record.
        expected: String,
        /// The backup.
        backup: PathBuf,
        /// The kind of the host; `None` if it cannot be read.
        kind: Option<HostKind>,
    },
    /// `undo`: a graft without a backup.
    #[error("`{}` is a graft whose backup `{}` is missing", .path.display(), .backup.display())]
    BackupMissing {
        /// The host.
        path: PathBuf,
        /// Where the backup should be.
        backup: PathBuf,
        /// The kind of the host; `None` if it cannot be read.
        kind: Option<HostKind>,
    },
    /// `undo`: the backup is not the stock file that the record names.
    #[error("the backup `{}` has changed: found sha256 {found}, expected {expected}", .backup.display())]
    BackupChanged {
        /// The backup.
        backup: PathBuf,
        /// SHA-256 of the backup.
        found: String,
        /// SHA-256 of the stock host on record.
        expected: String,
        /// The kind of the host; `None` if it cannot be read.
        kind: Option<HostKind>,
    },
    /// `undo`: the file that was named as stock is not the one that the record names.
    #[error("`{}` is not the stock file of `{}`: found sha256 {found}, expected {expected}", .path.display(), .host.display())]
    NotItsStock {
        /// The file.
        path: PathBuf,
        /// The host.
        host: PathBuf,
        /// SHA-256 of the file.
        found: String,
        /// SHA-256 of the stock host on record.
        expected: String,
    },
    /// `undo`: a graft with a backup, but no record to connect them.
    #[error("`{}` is a graft without a record: `{}` is missing", .path.display(), .record.display())]
    RecordMissing {
        /// The host.
        path: PathBuf,
        /// Where the record should be.
        record: PathBuf,
        /// The backup.
        backup: PathBuf,
        /// The kind of the host; `None` if it cannot be read.
        kind: Option<HostKind>,
    },
    /// `undo`: a graft with neither backup nor record, such as `-o` writes.
    #[error("`{}` carries a graft, but has no backup or record beside it", .path.display())]
    NoBackup {
        /// The host.
        path: PathBuf,
    },
    /// `undo`: the backup is a graft as well.
    #[error("`{}` is a graft, and so is its backup `{}`", .path.display(), .backup.display())]
    BackupGrafted {
        /// The host.
        path: PathBuf,
        /// The backup.
        backup: PathBuf,
    },
    /// A file has the name of a backup or a record, but allograft did not make it.
    #[error("`{}` has the name of a backup or a record, but allograft did not make it: {reason}", .path.display())]
    ForeignSidecar {
        /// The file.
        path: PathBuf,
        /// The evidence.
        reason: String,
    },
    /// It failed, and not every step could be rolled back.
    #[error("{cause}; {failure}")]
    RollbackFailed {
        /// The error.
        cause: Box<Error>,
        /// The files that remain changed.
        failure: RollbackFailure,
    },
    /// `undo`: a system call failed. There is no other place to write to.
    #[error(transparent)]
    InUndo(Box<Error>),
    /// `-o` names the target.
    #[error("cannot write to `{}`: it is the target itself", .out.display())]
    OutIsTarget {
        /// The argument of `-o`.
        out: PathBuf,
    },
    /// `-o` names a file that is neither a graft of the target nor a copy of it, and would be lost.
    #[error("`{}` exists and is not a graft of `{}`", .out.display(), .host.display())]
    OutIsOther {
        /// The argument of `-o`.
        out: PathBuf,
        /// The target.
        host: PathBuf,
    },
    /// `-o` cannot write there.
    #[error("cannot write to `{}`: {reason}", .out.display())]
    Out {
        /// The argument of `-o`.
        out: PathBuf,
        /// The reason.
        reason: &'static str,
        /// The remedy.
        help: &'static str,
    },
}

fn stock_functions(kind: DonorKind) -> &'static str {
    match kind {
        DonorKind::Malloc => "malloc",
        DonorKind::Strings => "string functions",
    }
}

/// The remedy for a build that leaves out an architecture.
pub const NOT_BUILT: &str =
    "take a release, or an optimised build, which have every architecture; or build with ALLOGRAFT_ARCHES=all";

impl Error {
    /// Whether an executable was refused because it has nothing of mallocng.
    pub fn has_no_mallocng(&self) -> bool {
        use transplant::Refusal::{NoMallocng, TableUnused};
        matches!(self, Error::Executable { refusal: NoMallocng | TableUnused, .. })
    }

    /// Whether the path names nothing: the file or a folder on the way is missing, or its links form a circle.
    pub fn is_missing(&self) -> bool {
        let source = match self {
            Error::Io { source, .. } => source,
            Error::InUndo(error) => return error.is_missing(),
            _ => return false,
        };
        let missing = [Errno::NOENT, Errno::NOTDIR, Errno::LOOP, Errno::NAMETOOLONG];
        source.raw_os_error().is_some_and(|number| missing.iter().any(|missing| missing.raw_os_error() == number))
    }

    /// 2: wrong usage, or input that cannot be read or written, or is malformed. 3: refused, because it would not be
    /// safe. 4: failed, and not every step could be rolled back.
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::Refused { refusal, .. } if refusal.is_damage() => 2,
            Error::Packed { problem, .. } if problem.is_damage() => 2,
            Error::Executable { refusal, .. } if refusal.is_damage() => 2,
            Error::Differs { .. } => 1,
            Error::Needed(error) => error.exit_code(),
            Error::InUndo(error) => error.exit_code(),
            Error::RollbackFailed { .. } => RollbackFailure::EXIT_CODE,
            Error::Io { .. }
            | Error::Unrecognised { .. }
            | Error::Malformed { .. }
            | Error::Donor { .. }
            | Error::Blob { .. }
            | Error::NothingToGraft
            | Error::DonorNeeded { .. }
            | Error::NothingToRun { .. }
            | Error::OptionWithoutDonor { .. }
            | Error::SwiftSdk { .. }
            | Error::NoStock { .. }
            | Error::NoHost { .. }
            | Error::NoHostInFolder { .. }
            | Error::NothingToUndo { .. }
            | Error::NoGraft { .. }
            | Error::Image(_)
            | Error::NoHostInImage { .. }
            | Error::MalformedRecord { .. }
            | Error::OutIsTarget { .. }
            | Error::Out { .. } => 2,
            Error::Packed { .. }
            | Error::Unsupported { .. }
            | Error::OutIsOther { .. }
            | Error::Refused { .. }
            | Error::Foreign { .. }
            | Error::NoDonorFor { .. }
            | Error::NotBuilt { .. }
            | Error::Executable { .. }
            | Error::NoForm { .. }
            | Error::Live { .. }
            | Error::NoStrings { .. }
            | Error::Unsound { .. }
            | Error::SelfTest { .. }
            | Error::Untested { .. }
            | Error::TooSlow { .. }
            | Error::StockNeeded { .. }
            | Error::NothingGraftable { .. }
            | Error::NoProgramGraftable { .. }
            | Error::NothingGraftableInImage { .. }
            | Error::ImageChanged { .. }
            | Error::IsBackup { .. }
            | Error::ChangedMeanwhile { .. }
            | Error::ChangedSince { .. }
            | Error::BackupMissing { .. }
            | Error::BackupChanged { .. }
            | Error::NotItsStock { .. }
            | Error::RecordMissing { .. }
            | Error::NoBackup { .. }
            | Error::BackupGrafted { .. }
            | Error::ForeignSidecar { .. } => 3,
        }
    }

    pub(crate) fn nothing_runs(arch: format::Arch, loader: Option<&str>) -> String {
        if let Some(loader) = loader {
            return format!("its loader `{loader}` is not on this machine, which is not for {arch}");
        }
        format!("this machine runs no programs for {arch}, and there is no emulator (qemu-{arch}-static, qemu-{arch})")
    }
}

/// Adds the failed action and its path to the system's error.
pub(crate) trait IoContext<T> {
    fn context(self, path: &Path, action: &'static str) -> Result<T, Error>;
}

impl<T> IoContext<T> for io::Result<T> {
    fn context(self, path: &Path, action: &'static str) -> Result<T, Error> {
        self.map_err(|source| Error::Io { path: path.to_owned(), action, source })
    }
}

/// Whether the error says that the file does not exist.
pub(crate) fn is_missing(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

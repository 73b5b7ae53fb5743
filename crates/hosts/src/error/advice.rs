//! The remedy for each error.

use std::path::Path;

use format::{Arch, Linked};

use super::host_kind::HostKind;
use super::remedy::{Obstacle, Remedy, of_io};
use super::{Error, NOT_BUILT};

impl Error {
    /// The remedy.
    pub fn remedy(&self) -> Remedy {
        let advice = match self {
            // A user who may not read a file gains nothing by writing the result elsewhere.
            Error::Io { source, action: "read" | "find", .. }
                if source.kind() == std::io::ErrorKind::PermissionDenied =>
            {
                "get the permission, or work as a user who has it; nothing was changed".to_owned()
            }
            Error::Io { source, .. } => return of_io(source),
            Error::InUndo(error) => match error.remedy() {
                Remedy::Elsewhere(obstacle) => in_place_only(obstacle).to_owned(),
                other => return other,
            },
            Error::Needed(error) => return error.remedy(),
            Error::Unrecognised { found, .. } if found == "a script" => {
                "name the program that the script starts; `libc.a` and folders are taken, too".to_owned()
            }
            Error::Unrecognised { .. } => {
                "name the `libc.a` of a musl toolchain, a linked program, or the folder of a toolchain, sysroot or SDK"
                    .to_owned()
            }
            Error::Malformed { source: surgery::archive::ArchiveError::Bsd { .. }, .. } => {
                "name an archive for Linux, as GNU ar and llvm-ar write it".to_owned()
            }
            Error::Malformed { .. } => {
                "the archive is damaged or incomplete: get it again from where it came from, then graft".to_owned()
            }
            Error::Unsupported { help, .. } | Error::Out { help, .. } => (*help).to_owned(),
            Error::Packed { problem, .. } => problem.help().to_owned(),
            Error::Refused { refusal, .. } => return Remedy::Archive(refusal.remedy()),
            Error::Foreign { ways, .. } => return Remedy::Foreign(ways.clone()),
            Error::Executable { refusal, .. } => return Remedy::Executable(refusal.remedy()),
            Error::NoForm { kind, .. } => these_can(|donor| donor.goes_into_some(*kind)),
            Error::Live { .. } => return Remedy::ConfirmLive,
            Error::NoStrings { .. } => return Remedy::Executable(transplant::Remedy::WithoutStrings),
            Error::Untested { arch, loader: None, .. } => return Remedy::Emulate { arch: *arch },
            Error::Untested { loader: Some(_), .. } => return Remedy::NameRoot,
            Error::TooSlow { .. } => return Remedy::WaitLonger,
            Error::SelfTest { .. } => match rustix::process::getrlimit(rustix::process::Resource::As).current {
                None => "the stock file is as it was; please report this with the program".to_owned(),
                Some(limit) => format!(
                    "the stock file is as it was. The self-test may need more address space than the {} MiB of the \
                     limit here (`ulimit -v`): raise it; if that does not help, please report this with the program",
                    limit >> 20
                ),
            },
            Error::Unsound { .. } => return Remedy::Report,
            Error::NothingToRun { .. } => return Remedy::RunNothing,
            Error::OutIsTarget { .. } => return Remedy::GraftInPlace,
            Error::OutIsOther { .. } => return Remedy::NameAnotherOut,
            Error::Differs { .. } => {
                "the stock file is as it was. If the program prints the time or the like, try it with other arguments"
                    .to_owned()
            }
            Error::Donor { .. } | Error::Blob { .. } => return Remedy::ListOptions,
            Error::NoDonorFor { .. } => return Remedy::ListArchitectures,
            Error::NotBuilt { .. } => NOT_BUILT.to_owned(),
            Error::NothingToGraft => return Remedy::Undo,
            Error::DonorNeeded { arch, kind, .. } => donor_needed(*arch, *kind),
            Error::OptionWithoutDonor { .. } => return Remedy::NameDonor,
            Error::StockNeeded { surplus, .. } => return Remedy::GraftStockOrKeep { surplus: *surplus },
            Error::SwiftSdk { installed, .. } if installed.is_empty() => {
                "install one with `swift sdk install`, or name its bundle".to_owned()
            }
            Error::SwiftSdk { installed, .. } => format!("installed are: {}", installed.join(", ")),
            Error::NoStock { .. } => "name a stock `libc.a`, a `libc++abi.a`, or a folder that holds them".to_owned(),
            Error::NothingGraftable { programs, .. } if !programs.paths.is_empty() => {
                return Remedy::GraftPrograms(programs.clone());
            }
            Error::NoProgramGraftable { folder, skipped } => {
                let paths: Vec<_> = skipped.iter().filter(|it| it.by_name).map(|it| it.path.clone()).collect();
                return match paths.is_empty() {
                    true => Remedy::InspectFolder { folder: folder.clone() },
                    false => Remedy::GraftByName(paths),
                };
            }
            Error::NothingToUndo { .. } => return Remedy::NameGraft,
            Error::NoHost { .. } | Error::NoHostInFolder { .. } => {
                "name a folder of a musl toolchain, such as /usr/lib/musl or a rustup toolchain with a musl target, or a \
                 folder of programs"
                    .to_owned()
            }
            Error::NoGraft { folder } => return Remedy::GraftFirst { folder: folder.clone() },
            Error::NothingGraftable { .. } => return Remedy::ListGraftable,
            Error::Image(error) => error.help().to_owned(),
            Error::ImageChanged { .. } => {
                format!("{}; nothing was written", HostKind::stock_again(Some(HostKind::Image)))
            }
            Error::NothingGraftableInImage { no_form: Some(kind), .. } => {
                these_can(|donor| donor.goes_into_some(*kind))
            }
            Error::NoHostInImage { .. } | Error::NothingGraftableInImage { .. } => {
                "build the image's programs against a grafted `libc.a`, or link them statically with musl: then they \
                 can be grafted in the image"
                    .to_owned()
            }
            Error::IsBackup { host, .. } => return Remedy::HostOfBackup { host: host.clone() },
            Error::ChangedMeanwhile { .. } => "nothing was changed; run the command again".to_owned(),
            Error::MalformedRecord { path, .. } => {
                format!("compare the host with its backup, put the right one in place and delete `{}`", path.display())
            }
            Error::ChangedSince { path, backup, kind, .. } => return copy_of_backup(path, backup, *kind, true),
            Error::RecordMissing { path, backup, kind, .. } => return copy_of_backup(path, backup, *kind, false),
            Error::BackupMissing { path, kind, .. } => {
                return Remedy::NameStock { host: path.clone(), again: HostKind::stock_again(*kind) };
            }
            Error::BackupChanged { kind, .. } => {
                format!("{}; grafting it afterwards makes a new backup", HostKind::stock_again(*kind))
            }
            Error::NotItsStock { host, .. } => {
                format!("name the file that `{}` was before it was grafted: nothing was changed", host.display())
            }
            Error::BackupGrafted { backup, path } => {
                return Remedy::UndoBackup { backup: backup.clone(), host: path.clone() };
            }
            Error::ForeignSidecar { .. } => {
                "nothing was changed, and allograft leaves such a file alone: move it away, then run the command again"
                    .to_owned()
            }
            Error::RollbackFailed { failure, .. } => return failure.remedy(),
            Error::NoBackup { .. } => return Remedy::WrittenElsewhere,
        };
        Remedy::Advice(advice)
    }
}

/// The remedy of an undo that cannot tell whether the backup is the host's stock file.
fn copy_of_backup(host: &Path, backup: &Path, kind: Option<HostKind>, changed: bool) -> Remedy {
    let may_run = HostKind::may_be_running(kind);
    Remedy::CopyBackup { backup: backup.to_owned(), host: host.to_owned(), may_run, changed }
}

/// The help for a system call that failed during an undo, which has no other place to write to.
fn in_place_only(obstacle: Obstacle) -> &'static str {
    match obstacle {
        Obstacle::Permission => "run it as a user who may write there; nothing was changed",
        Obstacle::ReadOnly => "make the file system writable, then run the command again; nothing was changed",
        Obstacle::NoRoom => "make room, then run the command again; nothing was changed",
        Obstacle::LongName => "give the file, its backup and its record a shorter name; nothing was changed",
    }
}

/// Returns the help for a linked file for which no allocator was requested.
fn donor_needed(arch: Arch, kind: Linked) -> String {
    let has_strings = |donor: &donors::Donor| match kind {
        Linked::Program => donor.blob_with_strings(arch).is_some(),
        Linked::Loader => donor.loader_with_strings(arch).is_some(),
        Linked::Dynamic | Linked::Library => false,
    };
    match donors::defaults().find(|donor| has_strings(donor)) {
        Some(donor) => format!(
            "in linked files, string functions come with an allocator: name a donor too, such as {}",
            donor.name
        ),
        None if kind == Linked::Dynamic => {
            "name a donor: a dynamic program has no string functions of its own".to_owned()
        }
        None => format!(
            "name a donor, without string functions: they are grafted into linked files for x86_64 only, and this \
             one is for {arch}"
        ),
    }
}

/// Lists the donors that `supports` accepts.
fn these_can(supports: impl Fn(&donors::Donor) -> bool) -> String {
    let names: Vec<&str> = donors::all().iter().filter(|donor| supports(donor)).map(|donor| donor.name).collect();
    format!("these can: {}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn string_functions_in_linked_files_need_a_donor() {
        assert!(donor_needed(Arch::X86_64, Linked::Program).contains("name a donor too, such as snmalloc"));
        assert!(donor_needed(Arch::Aarch64, Linked::Program).contains("for x86_64 only, and this one is for aarch64"));
        assert!(donor_needed(Arch::X86_64, Linked::Dynamic).contains("has no string functions of its own"));
    }

    /// The help for each kind of host fits it: only an archive is a toolchain's `libc.a`.
    #[test]
    fn help_fits_the_kind_of_host() {
        const OF_ARCHIVES: [&str; 2] = ["libc.a", "toolchain"];
        let linked = |kind| Some(HostKind::Linked(kind));
        let kinds = [
            (Some(HostKind::Archive), "install the toolchain's `libc.a` again", false),
            (linked(Linked::Program), "link the program again", true),
            (linked(Linked::Loader), "install the package of musl's dynamic loader again", true),
            (linked(Linked::Dynamic), "install the program's package again", true),
            (linked(Linked::Library), "install the library's package again", true),
            (Some(HostKind::Bundle), "get the bundle again", false),
            (Some(HostKind::Image), "get the stock image again", false),
            (None, "get the stock file again", true),
        ];
        let path = || Path::new("host").to_owned();
        let [found, expected] = [String::new(), String::new()];
        for (kind, again, renamed) in kinds {
            let backup = path();
            for error in [
                Error::BackupMissing { path: path(), backup: backup.clone(), kind },
                Error::BackupChanged { backup: backup.clone(), found: found.clone(), expected: expected.clone(), kind },
            ] {
                let help = match error.remedy() {
                    Remedy::Advice(help) => help,
                    Remedy::NameStock { again, .. } => again.to_owned(),
                    other => panic!("{other:?}"),
                };
                assert!(help.starts_with(again), "{kind:?}: {help}");
                let is_archive = kind == Some(HostKind::Archive);
                assert!(is_archive || !OF_ARCHIVES.iter().any(|word| help.contains(word)), "{kind:?}: {help}");
            }
            let (found, expected) = (found.clone(), expected.clone());
            for error in [
                Error::ChangedSince { path: path(), found, expected, backup: backup.clone(), kind },
                Error::RecordMissing { path: path(), record: path(), backup: backup.clone(), kind },
            ] {
                // A file that may be running is replaced by a rename.
                let Remedy::CopyBackup { may_run, .. } = error.remedy() else { panic!("{error:?}") };
                assert_eq!(may_run, renamed, "{kind:?}");
            }
        }
        // A folder's grafts are files of their own; the folder itself has only this.
        assert!(matches!(Error::NoGraft { folder: path() }.remedy(), Remedy::GraftFirst { .. }));
    }

    /// `undo` cannot write to a different place, so no help of it says so.
    #[test]
    fn undo_has_no_other_place_to_write_to() {
        for errno in [rustix::io::Errno::ACCESS, rustix::io::Errno::ROFS, rustix::io::Errno::NOSPC] {
            let error = Error::Io { path: "host".into(), action: "replace", source: errno.into() };
            assert!(matches!(error.remedy(), Remedy::Elsewhere(_)), "{errno}");
            let Remedy::Advice(help) = Error::InUndo(Box::new(error)).remedy() else { panic!("{errno}") };
            assert!(help.ends_with("; nothing was changed") && !help.contains("elsewhere"), "{errno}: {help}");
        }
    }
}

//! The remedy for each error.

use format::{Arch, Linked};

use super::remedy::{Remedy, of_io};
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
            Error::Needed(error) => return error.remedy(),
            Error::Unrecognised { .. } => {
                "name the `libc.a` of a musl toolchain, a linked program, or the folder of a toolchain, sysroot or SDK"
                    .to_owned()
            }
            Error::Malformed { source: surgery::archive::ArchiveError::Bsd { .. }, .. } => {
                "name an archive for Linux, as GNU ar and llvm-ar write it".to_owned()
            }
            Error::Malformed { .. } => "the file is damaged or incomplete: install it again, then graft".to_owned(),
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
            Error::SelfTest { .. } => "the stock file is as it was; please report this with the program".to_owned(),
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
            Error::NoHost { programs, .. } | Error::NothingGraftable { programs, .. } if !programs.paths.is_empty() => {
                return Remedy::GraftPrograms(programs.clone());
            }
            Error::NothingToUndo { .. } => return Remedy::NameGraft,
            Error::NoHost { .. } => {
                "name a folder of a musl toolchain, such as /usr/lib/musl or a rustup toolchain with a musl target"
                    .to_owned()
            }
            Error::NoGraft { folder } => return Remedy::GraftFirst { folder: folder.clone() },
            Error::NothingGraftable { .. } => return Remedy::ListGraftable,
            Error::Image(error) => error.help().to_owned(),
            Error::ImageChanged { .. } => {
                "take the stock image from where it came from; nothing was written".to_owned()
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
            Error::ChangedSince { path, backup, .. } => format!(
                "if you want stock all the same: `cp -p {} {}`, then undo again; if the new file is to stay, graft it",
                backup.display(),
                path.display()
            ),
            Error::BackupMissing { .. } | Error::BackupChanged { .. } => {
                "install the toolchain's `libc.a` again; grafting it afterwards makes a new backup".to_owned()
            }
            Error::RecordMissing { path, backup, .. } => format!(
                "if you trust the backup: `cp -p {} {}`, then undo again; grafting again writes a new record if the \
                 backup fits",
                backup.display(),
                path.display()
            ),
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
}

//! The help texts of errors, with this program's commands and flags. The core crates know neither.

use std::path::PathBuf;

use format::DonorKind;
use hosts::{Emit, Grafts, Obstacle, Operation, Remedy};

use crate::command::graft::shell_quoted;

/// Returns the text after `help:`.
pub(crate) fn help(remedy: &Remedy) -> String {
    match remedy {
        Remedy::Advice(advice) => advice.clone(),
        Remedy::Archive(remedy) => of_archive(*remedy).to_owned(),
        Remedy::Executable(remedy) => of_executable(*remedy).to_owned(),
        Remedy::Emulate { arch } => format!(
            "install QEMU's emulator of programs (`qemu-{arch}`, of the package qemu-user), or graft on a machine \
             that runs {arch} programs. `--untested` goes without the self-test"
        ),
        Remedy::NameRoot => {
            "`--root` names the root folder that has it with the program's libraries; so does the variable \
             QEMU_LD_PREFIX, for programs outside of it. `--untested` goes without the self-test"
                .to_owned()
        }
        Remedy::Emit(emit) => emitted(emit),
        Remedy::WithoutNeeded => "leave `--needed` out, or name a dynamic program".to_owned(),
        Remedy::NeedTrusted => {
            "name an absolute path that only root can change with `--needed`; or leave it out: then the donor is merged \
             into the program"
                .to_owned()
        }
        Remedy::Report => {
            "nothing was changed; please report this with the file. Another donor may fit it: `--donor NAME`".to_owned()
        }
        Remedy::WaitLonger => {
            "the stock file is as it was. `--patience` lets the self-test take more seconds of processor time".to_owned()
        }
        Remedy::ConfirmLive => "try it first, elsewhere: `-o OUT`. `--yes` replaces it all the same".to_owned(),
        Remedy::RunNothing => "leave `--try` and `--untested` out: they are for executables".to_owned(),
        Remedy::GraftInPlace => "leave `-o` out to graft in place, with a backup".to_owned(),
        Remedy::ListOptions => "`allograft donors` lists each donor's options with their ranges".to_owned(),
        Remedy::ListArchitectures => "`allograft donors` lists the architectures of every donor".to_owned(),
        Remedy::ListGraftable => {
            "only musl's `libc.a` can be grafted, on the architectures that `allograft donors` lists".to_owned()
        }
        Remedy::Undo => "stock's own malloc and string functions again: that is `allograft undo`".to_owned(),
        Remedy::NameDonor => "name the donor with `--donor`, or leave `--set` out".to_owned(),
        Remedy::GraftStockOrKeep { surplus: DonorKind::Malloc } => {
            "graft the stock `libc.a`, or keep an allocator: `--donor NAME`".to_owned()
        }
        Remedy::GraftStockOrKeep { surplus: DonorKind::Strings } => {
            "graft the stock `libc.a`, or keep the string functions: `--strings on`".to_owned()
        }
        Remedy::GraftFirst { folder } => format!("graft it first: `allograft graft {}`", folder.display()),
        Remedy::HostOfBackup { host } => {
            format!("graft `{0}`, or get stock back with `allograft undo {0}`", host.display())
        }
        Remedy::UndoBackup { backup, host } => format!(
            "the backup was grafted by itself: `allograft undo {}`, then `allograft graft {}` and undo",
            backup.display(),
            host.display()
        ),
        Remedy::WrittenElsewhere => {
            "it was written with `-o`, or moved away from its backup; stock is where you took it from".to_owned()
        }
        Remedy::Resume { grafting: true, hosts } => {
            format!("once this is mended, `allograft undo` gives stock back: {}", listed(hosts))
        }
        Remedy::Resume { grafting: false, hosts } => {
            format!("once this is mended, `allograft undo` does the rest: {}", listed(hosts))
        }
        Remedy::Delete { files } => format!("delete what was written, once this is mended: {}", listed(files)),
        Remedy::Elsewhere(obstacle) => elsewhere(*obstacle).to_owned(),
    }
}

fn emitted(emit: &Emit) -> String {
    let options: String = emit.options.split_whitespace().map(|option| format!(" --set {option}")).collect();
    let Emit { donor, arch, libc, library, searched, .. } = emit;
    let path = shell_quoted(&library.display().to_string());
    let folder = if *searched { ", in a folder that its loader searches" } else { "" };
    format!(
        "write the file: `allograft emit --donor {donor} --target {arch}-linux-{libc} --as shared{options} -o {path}`{folder}. \
         Its donor and options have to be those of the graft"
    )
}

/// Adds the commands and flags that the notes of a report on grafts need.
pub(crate) fn add_words(grafts: &mut Grafts) {
    let lacking = |lost: String| format!("has a backup that {lost}; `allograft undo` cannot give that back");
    for host in &mut grafts.hosts {
        if host.untested {
            host.tried.insert(0, "self-test: not run (--untested)".to_owned());
        }
        if let Operation::Archive(operation) = &host.operation
            && let Some(missing) = operation.foreign.as_ref().map(|foreign| &foreign.restoration.missing)
            && !missing.is_empty()
        {
            let missing = missing.join("`, `");
            host.notes
                .push(format!("lacks `{missing}`, which stock has: `--stock` with a stock libc.a brings it back"));
        }
        host.notes.extend(host.backup_lacks.drain(..).map(lacking));
    }
    if let Some(bundle) = &mut grafts.bundle {
        bundle.notes.extend(bundle.backup_lacks.drain(..).map(lacking));
    }
}

fn listed(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| format!("`{}`", path.display())).collect::<Vec<_>>().join(", ")
}

fn elsewhere(obstacle: Obstacle) -> &'static str {
    match obstacle {
        Obstacle::Permission => {
            "run it as the owner of the toolchain, or write the graft elsewhere with `-o OUT`; nothing was changed"
        }
        Obstacle::ReadOnly => "write the graft elsewhere with `-o OUT`; nothing was changed",
        Obstacle::NoRoom => "make room, or write the graft elsewhere with `-o OUT`; nothing was changed",
        Obstacle::LongName => {
            "files beside the host have names that are up to 26 bytes longer than its own: give it a shorter one, or \
             write the graft elsewhere with `-o OUT`; nothing was changed"
        }
    }
}

fn of_archive(remedy: surgery::plan::Remedy) -> &'static str {
    use surgery::plan::Remedy;
    match remedy {
        Remedy::Advice(advice) => advice,
        Remedy::LinkDonor => {
            "its malloc is in another library (zig 0.16 and later: libzigc.a), where members cannot be exchanged: \
             put the donor first on the link line, as `allograft emit --as object` writes it"
        }
        Remedy::ListArchitectures => "`allograft donors` lists the architectures",
        Remedy::ListOptions => "`allograft donors` lists the options with their ranges",
        Remedy::AnotherDonor => "this is a fault of the donor's build: try another one with --donor",
        Remedy::TakeGraftBack => "`allograft undo`, or get the archive from its package again, and graft that",
        Remedy::ReplaceForeign => {
            "graft the stock libc.a of this toolchain; or replace that allocator: --force, and --stock with a stock \
             libc.a of the same musl version for what has been lost"
        }
        Remedy::BringWhatIsLost => {
            "name an archive that has it, or a folder of such, with --stock: libc.a for C functions, libc++abi.a or \
             libstdc++.a for C++'s operators (_Znw..., _Zdl...)"
        }
        Remedy::WithoutStrings => {
            "this libc's string functions are not musl's: graft an allocator without them, --strings off"
        }
    }
}

fn of_executable(remedy: transplant::Remedy) -> &'static str {
    use transplant::Remedy;
    match remedy {
        Remedy::Advice(advice) => advice,
        Remedy::Inspect => "`allograft inspect` says what serves malloc in it",
        Remedy::GraftStock => "graft the stock file: `allograft undo` gives it back where it was grafted in place",
        Remedy::WithoutStrings => "leave `--strings on` out: the allocator can be grafted without",
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::CommandFactory;
    use format::Arch;

    use super::*;
    use crate::arguments::Arguments;

    /// Returns one remedy of each kind that names a command or a flag. A new variant must be added to `help` and then
    /// here.
    fn remedies() -> Vec<Remedy> {
        use surgery::plan::Remedy as OfArchive;
        use transplant::Remedy as OfExecutable;
        let path = || PathBuf::from("libc.a");
        let archive = [
            OfArchive::LinkDonor,
            OfArchive::ListArchitectures,
            OfArchive::ListOptions,
            OfArchive::AnotherDonor,
            OfArchive::TakeGraftBack,
            OfArchive::ReplaceForeign,
            OfArchive::BringWhatIsLost,
            OfArchive::WithoutStrings,
        ];
        let executable = [OfExecutable::Inspect, OfExecutable::GraftStock, OfExecutable::WithoutStrings];
        let obstacles = [Obstacle::Permission, Obstacle::ReadOnly, Obstacle::NoRoom, Obstacle::LongName];
        let others = [
            Remedy::Emulate { arch: Arch::Aarch64 },
            Remedy::Emit(Emit {
                donor: "mimalloc".to_owned(),
                options: "purge_delay=0 allow_thp=1".to_owned(),
                arch: Arch::X86_64,
                libc: "gnu",
                library: path(),
                searched: true,
            }),
            Remedy::WithoutNeeded,
            Remedy::NeedTrusted,
            Remedy::NameRoot,
            Remedy::Report,
            Remedy::WaitLonger,
            Remedy::ConfirmLive,
            Remedy::RunNothing,
            Remedy::GraftInPlace,
            Remedy::ListOptions,
            Remedy::ListArchitectures,
            Remedy::ListGraftable,
            Remedy::Undo,
            Remedy::NameDonor,
            Remedy::GraftStockOrKeep { surplus: DonorKind::Malloc },
            Remedy::GraftStockOrKeep { surplus: DonorKind::Strings },
            Remedy::GraftFirst { folder: path() },
            Remedy::HostOfBackup { host: path() },
            Remedy::UndoBackup { backup: path(), host: path() },
            Remedy::WrittenElsewhere,
            Remedy::Resume { grafting: true, hosts: vec![path()] },
            Remedy::Resume { grafting: false, hosts: vec![path()] },
        ];
        let archive = archive.into_iter().map(Remedy::Archive);
        let executable = executable.into_iter().map(Remedy::Executable);
        archive.chain(executable).chain(obstacles.into_iter().map(Remedy::Elsewhere)).chain(others).collect()
    }

    #[test]
    fn every_command_and_flag_of_a_remedy_exists() {
        let program = Arguments::command();
        let takes = |command: &str, flag: &str| {
            let command = program.find_subcommand(command).unwrap_or_else(|| panic!("no command {command}"));
            command.get_arguments().any(|argument| match flag.strip_prefix("--") {
                Some(long) => argument.get_long() == Some(long),
                None => argument.get_short() == flag.chars().nth(1),
            })
        };
        for remedy in remedies() {
            let text = help(&remedy);
            let mut named = 0;
            // A flag belongs to the command before it, or to `graft` if there is none.
            let mut command = "graft";
            let words: Vec<&str> = text.split([' ', '`', ',', ';', ':']).filter(|word| !word.is_empty()).collect();
            for (index, word) in words.iter().enumerate() {
                if *word == "allograft" {
                    command = words[index + 1];
                    assert!(program.find_subcommand(command).is_some(), "{text}: no command `{command}`");
                    named += 1;
                } else if word.starts_with('-') {
                    assert!(takes(command, word), "{text}: `{command}` has no `{word}`");
                    named += 1;
                }
            }
            assert!(named > 0, "{remedy:?} names nothing of this program: let it be advice");
        }
    }

    /// The core crates leave commands and flags to this file.
    #[test]
    fn the_cores_name_no_command() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let hosts =
            ["error/mod", "error/advice", "sink/out", "prove/mod", "host/archive", "transaction/place", "sink/folder"]
                .map(|name| format!("hosts/src/{name}.rs"));
        let refusals = ["surgery/src/plan/refusal.rs", "transplant/src/refusal.rs"].map(str::to_owned);
        for file in hosts.into_iter().chain(refusals) {
            let text = std::fs::read_to_string(crates.join(&file)).unwrap();
            let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
            for line in code.filter(|line| !line.contains("cp -p")) {
                assert!(!line.contains("`allograft ") && !line.contains("--"), "{file}: {line}");
            }
        }
    }
}

//! Tests: every command and flag that a help text names is one that there is.

use std::path::{Path, PathBuf};

use format::{Arch, DonorKind};
use hosts::{Emit, ForeignWays, Obstacle, Programs, Remedy, Replacement};

use crate::arguments::parser;
use crate::remedy::help;

/// Returns one remedy of each kind that names a command or a flag. A new variant must be added to `help` and then
/// here.
fn remedies() -> Vec<Remedy> {
    use surgery::plan::Remedy as OfArchive;
    use transplant::Remedy as OfExecutable;
    let path = || PathBuf::from("libc.a");
    let foreign = |strings, replacement| {
        let ways = ForeignWays { contents: None, strings, replacement, lost: vec!["wcsdup"], musl: None };
        Remedy::Foreign(Box::new(ways))
    };
    let archive = [
        OfArchive::LinkDonor,
        OfArchive::ListArchitectures,
        OfArchive::ListOptions,
        OfArchive::AnotherDonor,
        OfArchive::TakeGraftBack,
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
        foreign(true, Replacement::Possible),
        foreign(true, Replacement::NeedsStock(vec!["_Znwm".to_owned(), "strdup".to_owned()])),
        foreign(false, Replacement::Impossible("it is part of libc".to_owned())),
        Remedy::WithoutNeeded,
        Remedy::NeedTrusted,
        Remedy::NameRoot,
        Remedy::Report,
        Remedy::WaitLonger,
        Remedy::ConfirmLive,
        Remedy::RunNothing,
        Remedy::GraftInPlace,
        Remedy::NameAnotherOut,
        Remedy::ListOptions,
        Remedy::ListArchitectures,
        Remedy::ListGraftable,
        Remedy::GraftPrograms(Programs { paths: vec![path(); 7], more: true }),
        Remedy::GraftByName(vec![path(); 4]),
        Remedy::InspectFolder { folder: path() },
        Remedy::NameGraft,
        Remedy::Undo,
        Remedy::NameDonor,
        Remedy::GraftStockOrKeep { surplus: DonorKind::Malloc },
        Remedy::GraftStockOrKeep { surplus: DonorKind::Strings },
        Remedy::GraftFirst { folder: path() },
        Remedy::HostOfBackup { host: path() },
        Remedy::UndoBackup { backup: path(), host: path() },
        Remedy::CopyBackup { backup: path(), host: path(), may_run: true, changed: true },
        Remedy::NameStock { host: path(), again: "link it again" },
        Remedy::WrittenElsewhere,
        Remedy::Resume { grafting: true, hosts: vec![path()] },
        Remedy::Resume { grafting: false, hosts: vec![path()] },
    ];
    let archive = archive.into_iter().map(Remedy::Archive);
    let executable = executable.into_iter().map(Remedy::Executable);
    archive.chain(executable).chain(obstacles.into_iter().map(Remedy::Elsewhere)).chain(others).collect()
}

/// The commands of a help are for a shell, whatever is in the paths.
#[test]
fn paths_are_words_of_the_commands() {
    let (backup, host) = (PathBuf::from("it's stock"), PathBuf::from("a b"));
    let copy =
        |may_run, changed| help(&Remedy::CopyBackup { backup: backup.clone(), host: host.clone(), may_run, changed });
    for changed in [true, false] {
        let renamed = copy(true, changed);
        assert!(
            renamed.contains(r"`cp -p 'it'\''s stock' 'a b.new' && mv 'a b.new' 'a b'`, then `allograft undo` again"),
            "{renamed}"
        );
        let written = copy(false, changed);
        assert!(written.contains(r"`cp -p 'it'\''s stock' 'a b'`, then `allograft undo` again"), "{written}");
    }
    for remedy in [
        Remedy::GraftFirst { folder: host.clone() },
        Remedy::HostOfBackup { host: host.clone() },
        Remedy::NameStock { host: host.clone(), again: "link it again" },
        Remedy::UndoBackup { backup: host.clone(), host: host.clone() },
        Remedy::GraftPrograms(Programs { paths: vec![host.clone()], more: false }),
        Remedy::GraftByName(vec![host.clone()]),
        Remedy::InspectFolder { folder: host.clone() },
    ] {
        let text = help(&remedy);
        assert!(
            text.contains(" 'a b'`")
                && !text.contains("ft a b")
                && !text.contains("undo a b")
                && !text.contains("inspect a b"),
            "{text}"
        );
    }
}

#[test]
fn every_command_and_flag_of_a_remedy_exists() {
    // Building it gives each command the flags of all.
    let mut program = parser();
    program.build();
    let takes = |command: &str, flag: &str| {
        let command = program.find_subcommand(command).unwrap_or_else(|| panic!("no command {command}"));
        command.get_arguments().any(|argument| match flag.strip_prefix("--") {
            Some(long) => argument.get_long() == Some(long),
            None => argument.get_short() == flag.chars().nth(1),
        })
    };
    for remedy in remedies() {
        // `cp` is a command of the system.
        let text = help(&remedy).replace("cp -p ", "cp ");
        let mut named = 0;
        // A flag belongs to the command before it, or to `graft` without one.
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

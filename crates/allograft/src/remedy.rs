//! The help texts of errors, with this program's commands and flags. The core crates know neither.

use std::path::{Path, PathBuf};

use format::DonorKind;
use hosts::{Emit, ForeignWays, Grafts, Obstacle, Operation, Programs, Remedy, Replacement};

use crate::shell::shell_quoted;

/// Returns the text after `help:`.
pub(crate) fn help(remedy: &Remedy) -> String {
    match remedy {
        Remedy::Advice(advice) => advice.clone(),
        Remedy::Archive(remedy) => of_archive(*remedy).to_owned(),
        Remedy::Executable(remedy) => of_executable(*remedy).to_owned(),
        Remedy::Foreign(ways) => foreign(ways),
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
        Remedy::NameAnotherOut => "name another file; `--force` replaces it".to_owned(),
        Remedy::ListOptions => "`allograft donors NAME` lists a donor's options with their ranges".to_owned(),
        Remedy::ListArchitectures => "`allograft donors -v` lists the architectures of every donor".to_owned(),
        Remedy::ListGraftable => {
            "only musl's `libc.a` can be grafted, on the architectures that `allograft donors -v` lists".to_owned()
        }
        Remedy::GraftPrograms(programs) => of_programs(programs),
        Remedy::GraftByName(paths) => {
            format!("a folder's graft leaves dynamic and set-id programs alone; each by its name: {}", grafts_of(paths))
        }
        Remedy::InspectFolder { folder } => {
            format!("`allograft inspect {}` says what serves malloc in each", word(folder))
        }
        Remedy::NameGraft => {
            "name a graft, or a folder with grafts and their backups; what was written with `-o` has no backup".to_owned()
        }
        Remedy::Undo => "stock's own malloc and string functions again: that is `allograft undo`".to_owned(),
        Remedy::NameDonor => "name the donor with `--donor`, or leave `--set` out".to_owned(),
        Remedy::GraftStockOrKeep { surplus: DonorKind::Malloc } => {
            "graft the stock `libc.a`, or keep an allocator: `--donor NAME`".to_owned()
        }
        Remedy::GraftStockOrKeep { surplus: DonorKind::Strings } => {
            "graft the stock `libc.a`, or keep the string functions: `--strings on`".to_owned()
        }
        Remedy::GraftFirst { folder } => format!("graft it first: `allograft graft {}`", word(folder)),
        Remedy::HostOfBackup { host } => {
            format!("graft `{}`, or get stock back with `allograft undo {}`", host.display(), word(host))
        }
        Remedy::UndoBackup { backup, host } => format!(
            "the backup was grafted by itself: `allograft undo {}`, then `allograft graft {}` and undo",
            word(backup),
            word(host)
        ),
        Remedy::NameStock { host, again } => format!(
            "if you have the stock file: `allograft undo --stock FILE {}`; else {again}, and grafting it afterwards makes a \
             new backup",
            word(host)
        ),
        Remedy::CopyBackup { backup, host, may_run, changed } => {
            let command = copy_of_backup(backup, host, *may_run);
            match changed {
                true => format!(
                    "if you want stock all the same: `{command}`, then `allograft undo` again; if the new file is to \
                     stay, graft it"
                ),
                false => format!(
                    "if you trust the backup: `{command}`, then `allograft undo` again; grafting again writes a \
                     new record if the backup fits"
                ),
            }
        }
        Remedy::WrittenElsewhere => {
            "it was written with `-o`, or moved away from its backup: stock is where you took it from. A program that was \
             linked with a graft, by `allograft cc` or a Cargo build with a donor, is linked again, with the stock libc.a"
                .to_owned()
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

/// The path as a word for a shell.
fn word(path: &Path) -> String {
    shell_quoted(&path.display().to_string())
}

/// The command that puts the backup in its host's place: by a rename if the host may be running.
fn copy_of_backup(backup: &Path, host: &Path, may_run: bool) -> String {
    match may_run {
        true => {
            let new = shell_quoted(&format!("{}.new", host.display()));
            format!("cp -p {} {new} && mv {new} {}", word(backup), word(host))
        }
        false => format!("cp -p {} {}", word(backup), word(host)),
    }
}

/// The flags that help where another allocator is in libc's place.
fn foreign(ways: &ForeignWays) -> String {
    let release = ways.musl.as_ref().map(|release| format!(" of musl {release}")).unwrap_or_default();
    let quoted = |names: &[&str]| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let mut parts = Vec::new();
    if ways.strings {
        parts.push(
            "`allograft graft --donor strings` grafts the string functions alone, and leaves that allocator".to_owned(),
        );
    }
    let replaces = "`allograft graft --force` puts the donor in its place";
    parts.push(match &ways.replacement {
        Replacement::Possible if ways.lost.is_empty() => replaces.to_owned(),
        Replacement::Possible => {
            format!("{replaces}, and `--stock` with a stock libc.a{release} brings back {}", quoted(&ways.lost))
        }
        Replacement::NeedsStock(symbols) => {
            let names: Vec<&str> = symbols.iter().map(String::as_str).collect();
            let operators = names.iter().any(|name| name.starts_with("_Z"));
            let with = if operators { ", or a folder that has it and libc++abi.a," } else { "" };
            format!(
                "{replaces}, with `--stock` and a stock libc.a{release}{with} for what only that allocator has: {}",
                shortened(&names)
            )
        }
        Replacement::Impossible(reason) => format!("a donor cannot take its place: {reason}"),
    });
    if parts.len() == 1 && matches!(ways.replacement, Replacement::Impossible(_)) {
        parts.push("graft the stock libc.a of this toolchain; `allograft inspect` says what this one carries".into());
    }
    parts.join("; ")
}

/// The commands that graft the programs of a folder.
fn of_programs(programs: &Programs) -> String {
    let more = if programs.more { ", or others" } else { "" };
    format!(
        "in a folder with a `libc.a`, `graft` takes programs by their own names: {}{more}; `allograft inspect` with the \
         folder says what is in each",
        grafts_of(&programs.paths)
    )
}

/// The commands that graft these files, the first few in full.
fn grafts_of(paths: &[PathBuf]) -> String {
    const SHOWN: usize = 3;
    let shown: Vec<String> = paths.iter().take(SHOWN).map(|path| format!("`allograft graft {}`", word(path))).collect();
    match paths.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{}, and {more} more", shown.join(", ")),
    }
}

/// The first few names, and how many more there are.
fn shortened(names: &[&str]) -> String {
    const SHOWN: usize = 4;
    let shown: Vec<String> = names.iter().take(SHOWN).map(|name| format!("`{name}`")).collect();
    match names.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

fn emitted(emit: &Emit) -> String {
    let options: String = emit.options.split_whitespace().map(|option| format!(" --set {option}")).collect();
    let Emit { donor, arch, libc, library, searched, .. } = emit;
    let path = word(library);
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
            "run it as a user who may write there, or write the graft elsewhere with `-o OUT`; nothing was changed"
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
        Remedy::ListArchitectures => "`allograft donors -v` lists the architectures",
        Remedy::ListOptions => "`allograft donors NAME` lists the options with their ranges",
        Remedy::AnotherDonor => "this is a fault of the donor's build: try another one with --donor",
        Remedy::TakeGraftBack => "`allograft undo`, or get the archive from its package again, and graft that",
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

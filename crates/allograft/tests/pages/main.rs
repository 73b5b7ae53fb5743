//! Runs the pages of `docs/toolchains` and `docs/contributing`. Every section is a test, in a folder of its own. With
//! `$ALLOGRAFT_PAGES`, runs the pages of that folder instead.
//!
//! Comments in the page, which readers do not see, control this program:
//!
//! | comment | |
//! | --- | --- |
//! | `<!-- page: slow; needs zig go -->` | before the first `## `: for every section; `slow` marks it ignored |
//! | `<!-- section: slow; needs go -->` | for the section that it is in |
//! | `needs workspace` | in either: the folder is a copy of this repository, with a build folder of its own |
//! | `<!-- file: main.c -->` | the next block is the content of that file |
//! | `<!-- skip: why -->` | the next block is not run |
//! | `<!-- run` ... `-->` | commands that readers need not see |
//!
//! A block in `sh` is a script that must succeed. In a `console` block, each line that starts with `$ ` is a command,
//! and lines that start with `> ` continue it. A command must succeed, or end with the code in a comment `# exit code
//! 1` at its end. The lines below it are its whole output; `...` stands for any text, and on a line of its own for any
//! lines. A command without output lines may print anything. In the output, the folder is `/src`. The text before the
//! first `## ` runs at the start of every section.

mod page;
mod shell;
mod tools;
mod workspace;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};

use page::{Page, Section};

fn main() -> ExitCode {
    let mut trials = vec![
        Trial::test("harness/what_is_printed", || check(shell::self_check())),
        Trial::test("harness/what_is_read", || check(page::self_check())),
    ];
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let folders = match std::env::var_os("ALLOGRAFT_PAGES") {
        Some(folder) => vec![PathBuf::from(folder)],
        None => vec![docs.join("toolchains"), docs.join("contributing")],
    };
    for path in folders.iter().flat_map(|folder| pages(folder)) {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let page = Page::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        trials.extend(page.sections.into_iter().map(|section| trial(&name, section)));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// The pages in a folder, in order of their names.
fn pages(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut pages: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|ending| ending == "md"))
        .collect();
    pages.sort();
    pages
}

fn trial(page: &str, section: Section) -> Trial {
    let missing = section.needs.iter().find_map(|need| tools::missing(need));
    let name = match &missing {
        Some(missing) => format!("{page}/{} (left out: {missing})", section.title),
        None => format!("{page}/{}", section.title),
    };
    let slow = section.slow;
    let left_out = missing.is_some();
    let trial = Trial::test(name, move || if left_out { Ok(()) } else { check(shell::run(&section)) });
    trial.with_ignored_flag(slow || left_out)
}

fn check(result: Result<(), String>) -> Result<(), Failed> {
    result.map_err(Failed::from)
}

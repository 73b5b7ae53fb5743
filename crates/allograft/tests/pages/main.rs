//! Runs README.md and every page of `docs`. Every section that runs something is a test, in a folder of its own. In
//! `docs/toolchains` and `docs/contributing`, every section has to. With `$ALLOGRAFT_PAGES`, runs the pages of that
//! folder instead, as strictly.
//!
//! Comments in the page, which readers do not see, control this program:
//!
//! | comment | |
//! | --- | --- |
//! | `<!-- page: slow; needs zig go -->` | before the first `## `: for every section; `slow` marks it ignored |
//! | `<!-- section: slow; needs go -->` | for the section that it is in |
//! | `needs workspace` | in either: the folder is a copy of this repository, with a build folder of its own |
//! | `<!-- file: main.c -->` | the next block is the content of that file |
//! | `<!-- quotes: README.md -->` | the next block has to be the content of that file of the repository; it is not run |
//! | `<!-- skip: why -->` | the next block is not run |
//! | `<!-- run` ... `-->` | commands that readers need not see |
//!
//! A block in `sh` is a script that must succeed. In a `console` block, each line that starts with `$ ` is a command,
//! and lines that start with `> ` continue it. A command must succeed, or end with the code in a comment `# exit code
//! 1` at its end. The lines below it are its whole output; `...` matches any text, and on a line of its own any lines.
//! A command without output lines may print anything. In the output, the folder is `/src`. The text before the first
//! `## ` runs at the start of every section. Blocks in other languages are for reading, and may hold no command: so
//! every command in a block is either run, or has a comment that says why not.

mod page;
mod shell;
mod tools;
mod workspace;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use fixtures::trials::in_group;
use libtest_mimic::{Failed, Trial};

use page::{Page, Section};

fn main() -> ExitCode {
    let mut trials = vec![
        Trial::test("harness/what_is_printed", || check(shell::self_check())),
        Trial::test("harness/what_is_read", || check(page::self_check())),
    ];
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let paths = match std::env::var_os("ALLOGRAFT_PAGES") {
        Some(folder) => pages(Path::new(&folder)),
        None => [vec![root.join("README.md"), root.join("CONTRIBUTING.md")], pages(&root.join("docs"))].concat(),
    };
    for path in paths {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let page = Page::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        if let Some(title) = page.idle.as_ref().filter(|_| is_strict(&path)) {
            panic!("{}: nothing is run under `{title}`", path.display());
        }
        trials.extend(page.sections.into_iter().map(|section| trial(&name, section)));
    }
    fixtures::trials::run(trials)
}

/// Whether every section of the page has to run something.
fn is_strict(page: &Path) -> bool {
    let folder = page.parent().and_then(Path::file_name);
    std::env::var_os("ALLOGRAFT_PAGES").is_some()
        || folder.is_some_and(|name| name == "toolchains" || name == "contributing")
}

/// The pages in a folder and below it, in order of their names.
fn pages(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    let below = |path: PathBuf| if path.is_dir() { pages(&path) } else { vec![path] };
    paths.into_iter().flat_map(below).filter(|path| path.extension().is_some_and(|ending| ending == "md")).collect()
}

fn trial(page: &str, section: Section) -> Trial {
    let missing = section.needs.iter().find_map(|need| tools::missing(need));
    let name = match &missing {
        Some(missing) => format!("{page}/{} (left out: {missing})", section.title),
        None => format!("{page}/{}", section.title),
    };
    let group = group(&section).or(missing.is_some().then_some("minutes"));
    let left_out = missing.is_some();
    let trial = Trial::test(name, move || if left_out { Ok(()) } else { check(shell::run(&section)) });
    in_group(trial, group)
}

/// Returns the group of slow tests that a section belongs to, by the tools that it needs.
fn group(section: &Section) -> Option<&'static str> {
    let needs = |tool: &str| section.needs.iter().any(|need| need == tool);
    let groups = [
        ("workspace", "workspace"),
        ("rust-musl", "rust"),
        ("bazel", "bazel"),
        ("xz", "projects"),
        ("zig", "zig-musl"),
    ];
    let group = groups.into_iter().find(|(tool, _)| needs(tool)).map(|(_, group)| group);
    group.or(section.slow.then_some("minutes"))
}

fn check(result: Result<(), String>) -> Result<(), Failed> {
    result.map_err(Failed::from)
}

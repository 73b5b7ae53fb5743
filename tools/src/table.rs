//! Everything that building and testing needs beside cargo, a C compiler and Python's pip, in one table, with sizes,
//! checks and users. Tools that a selection of tests does not need are not fetched.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context, Result, bail};
use fixtures::wheels::{BUILD_SYSTEMS, FOR_MUSL};
use zigcc::Arch;

use crate::debian::Item;
use crate::{
    corpus, debian, folder, glibcs, installed, musls, projects, released, rust, schema, sources, system, toolchains,
    wheels, windows, zig,
};

/// A row of the table.
pub struct Tool {
    /// Its name, as in `cargo xtask setup NAME`.
    pub name: &'static str,
    /// A description.
    pub about: &'static str,
    /// The size of what is fetched, in MB.
    pub megabytes: u32,
    /// The kind of check.
    pub checked: Checked,
    /// Its users: crates of the workspace, with whatever depends on them; test programs; groups of slow tests.
    pub needed_by: &'static [&'static str],
    /// The tools that it is made with.
    made_with: &'static [&'static str],
    source: Source,
}

/// The check of a download.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checked {
    /// By a SHA-256 in this repository.
    Sha256,
    /// By the signature of Debian's archive.
    Debian,
    /// Nothing is fetched.
    Made,
}

#[derive(Clone, Copy)]
enum Source {
    Debian(Item),
    /// A function that fetches missing files.
    Other(fn() -> Result<()>),
    /// A function that makes missing files with zig.
    Zig(fn(&zigcc::Zig) -> Result<()>),
}

use Checked::{Debian, Made, Sha256};
use Source::{Other, Zig};

/// All tools. A tool that needs others comes after them.
pub const TOOLS: &[Tool] = &[
    tool("zig", "the compiler of donors, programs and cases", 90, Sha256, &["zigcc"], Zig(|_| Ok(()))),
    tool("lld", "zig's lld, under the name that compilers call", 0, Made, &["fixtures"], Zig(zig::install_lld)),
    tool("sources", "the donors' sources that cargo does not fetch", 170, Sha256, &["donors"], Other(sources::install)),
    tool(
        "musl",
        "Debian's musl for this machine",
        1,
        Debian,
        &["fixtures", "demo"],
        Source::Debian(Item::Musl(Arch::X86_64)),
    ),
    tool("loader", "its libc.so", 1, Debian, &["fixtures"], Source::Debian(Item::Loader(Arch::X86_64))),
    tool("musl-aarch64", "Debian's musl", 10, Debian, ARCHIVES, Source::Debian(Item::Musl(Arch::Aarch64))),
    tool("loader-aarch64", "its libc.so", 10, Debian, LOADERS, Source::Debian(Item::Loader(Arch::Aarch64))),
    tool("glibc-aarch64", "Debian's glibc", 13, Debian, AARCH64, Source::Debian(Item::Glibc(Arch::Aarch64))),
    tool("musl-i686", "Debian's musl", 10, Debian, ARCHIVES, Source::Debian(Item::Musl(Arch::I686))),
    tool("musl-arm", "Debian's musl", 10, Debian, ARCHIVES, Source::Debian(Item::Musl(Arch::Arm))),
    tool("qemu", "emulators of foreign programs", 45, Debian, FOREIGN, Source::Debian(Item::Qemu)),
    tool("elf-tools", "programs that change ELF files", 2, Debian, ELF_TOOLS, Source::Debian(Item::ElfTools)),
    tool("build-systems", "CMake, Ninja and Meson", 35, Sha256, BUILDERS, Other(|| wheels::install(&BUILD_SYSTEMS))),
    tool("projects", "other people's projects: sources", 6, Sha256, PROJECTS, Other(projects::prepare)),
    tool("zig-musl", "zig's musl for this machine", 0, Made, ZIG_MUSL, Zig(|zig| zig::install_musl(zig, Arch::X86_64))),
    tool("zig-cxx", "zig's C++ library", 0, Made, ZIG_CXX, Zig(|zig| zig::install_cxx(zig, Arch::X86_64))),
    tool("zig-aarch64", "zig's musl", 0, Made, AARCH64, Zig(|zig| zig::install_musl(zig, Arch::Aarch64))),
    tool("zig-riscv64", "zig's musl", 0, Made, RISCV64, Zig(|zig| zig::install_musl(zig, Arch::Riscv64))),
    tool("corpus", "released programs", 370, Sha256, &["corpus", "released", "install"], Other(corpus::prepare)),
    tool("schema", "CycloneDX's schema and a validator", 5, Sha256, &["schema"], Other(schema::prepare)),
    tool("crates", "a project of crates.io", 20, Sha256, &["projects"], Other(projects::prepare_crates)),
    tool("bazel", "Bazel", 42, Sha256, &["bazel", "projects"], Other(toolchains::prepare_bazel)),
    made_with(
        &["zig", "musl", "musl-aarch64"],
        tool("rust", "Rust with musl targets; minutes to build", 250, Debian, RUST, Other(rust::prepare)),
    ),
    tool("musls", "releases of musl, compiled", 4, Sha256, &["musls"], Other(musls::prepare)),
    tool("glibcs", "newer releases of glibc", 50, Debian, &["glibcs"], Other(glibcs::prepare)),
    tool("windows", "Wine and mingw-w64's gcc", 170, Debian, &["windows"], Other(windows::prepare)),
    tool("programs", "programs for musl", 90, Sha256, &["system"], Other(|| wheels::install(&FOR_MUSL))),
    tool("system", "a Debian with many programs; 2.2 GB", 700, Debian, &["system", "install"], Other(system::prepare)),
    tool("installed", "a Debian as installed; 2.8 GB", 750, Debian, &["installed"], Other(installed::prepare)),
    tool("released", "released static programs", 370, Sha256, &["released"], Other(released::prepare)),
    tool("zigs", "several releases of zig", 180, Sha256, &["zigs", "toolchains"], Other(zig::install_others)),
    tool(
        "toolchains",
        "compilers of other languages; 3.9 GB",
        730,
        Debian,
        &["toolchains"],
        Other(toolchains::prepare),
    ),
];

const RUST: &[&str] = &["rust", "projects"];
const FOREIGN: &[&str] =
    &["zig-musls", "rust", "aarch64", "riscv64", "arm", "i686", "foreign", "allograft cli", "trial trials"];
const AARCH64: &[&str] = &["aarch64", "zig-musls", "foreign", "rust"];
const RISCV64: &[&str] = &["riscv64", "zig-musls", "foreign"];
const ARCHIVES: &[&str] = &["inspector", "surgery", "aarch64", "i686", "arm", "zig-musls", "foreign", "rust"];
const LOADERS: &[&str] = &["transplant", "allograft cli", "aarch64", "foreign"];
const ZIG_MUSL: &[&str] = &["zig-musl", "zig-musls", "foreign"];
const ZIG_CXX: &[&str] = &["zig-musl"];
const ELF_TOOLS: &[&str] = &["allograft cli"];
const BUILDERS: &[&str] = &["allograft cli", "allograft pages", "allograft projects"];
const PROJECTS: &[&str] = &["allograft pages", "allograft projects", "projects"];

const fn tool(
    name: &'static str,
    about: &'static str,
    megabytes: u32,
    checked: Checked,
    needed_by: &'static [&'static str],
    source: Source,
) -> Tool {
    Tool { name, about, megabytes, checked, needed_by, made_with: &[], source }
}

const fn made_with(made_with: &'static [&'static str], tool: Tool) -> Tool {
    Tool { made_with, ..tool }
}

/// Fetches or makes the tools of `needs`, unless they exist, and reports each on stderr. `needs` are words of
/// [`Tool::needed_by`]. Several processes may do this at once, and each may be killed at any time: a file that is in
/// place is complete.
///
/// # Errors
/// When one cannot be fetched. Without apt, Debian's packages are left out, with a warning.
pub fn prepare(needs: &BTreeSet<String>) -> Result<()> {
    install(&chosen(|tool| tool.needed_by.iter().any(|by| needs.contains(*by))))
}

/// Fetches or makes the tools of these names, and the tools that they are made with.
///
/// # Errors
/// As [`prepare`]; also if a name is unknown.
pub fn prepare_named(names: &[&str]) -> Result<()> {
    if let Some(unknown) = names.iter().find(|name| !TOOLS.iter().any(|tool| tool.name == **name)) {
        bail!("there is no tool `{unknown}`\nhelp: `cargo xtask setup` lists them");
    }
    install(&chosen(|tool| names.contains(&tool.name)))
}

/// Returns the tools that are wanted, and those that they are made with, in the order of the table.
fn chosen(is_wanted: impl Fn(&Tool) -> bool) -> Vec<&'static Tool> {
    let wanted = TOOLS.iter().filter(|tool| is_wanted(tool));
    let parts: BTreeSet<&str> = wanted.flat_map(|tool| tool.made_with).copied().collect();
    TOOLS.iter().filter(|tool| is_wanted(tool) || parts.contains(tool.name)).collect()
}

fn install(chosen: &[&Tool]) -> Result<()> {
    let tools = fixtures::tools();
    fs::create_dir_all(&tools).with_context(|| format!("cannot make `{}`", tools.display()))?;
    let _lock = folder::lock(&tools.join(".setup.lock"))?;
    let make = |tool: &&Tool| {
        match tool.source {
            Source::Debian(_) => Ok(()),
            Source::Other(prepare) => prepare(),
            Source::Zig(prepare) => zig::install(&tools).and_then(|zig| prepare(&zig)),
        }
        .with_context(|| format!("`{}` ({}) cannot be prepared", tool.name, tool.about))
    };
    let (first, last): (Vec<&Tool>, Vec<&Tool>) = chosen.iter().partition(|tool| tool.made_with.is_empty());
    // All packages of Debian together, since their lists are fetched once; meanwhile the tools from other registries.
    let items = chosen.iter().filter_map(|tool| match tool.source {
        Source::Debian(item) => Some(item),
        _ => None,
    });
    let items: Vec<Item> = items.collect();
    std::thread::scope(|scope| {
        let debian = scope.spawn(|| debian::install(&tools, &items));
        let others = first.iter().try_for_each(make);
        others.and(debian.join().unwrap_or_else(|_| bail!("a thread died")))
    })?;
    last.iter().try_for_each(make)
}

/// Returns the table as text.
pub fn shown() -> String {
    let mut text = String::new();
    for tool in TOOLS {
        let size = if tool.megabytes > 0 { format!("{} MB", tool.megabytes) } else { String::new() };
        let checked = match tool.checked {
            Sha256 => "sha256",
            Debian => "signature",
            Made => "made here",
        };
        let needed_by = tool.needed_by.join(", ");
        text += &format!("{:<15} {:<50} {size:>7}  {checked:<9}  {needed_by}\n", tool.name, tool.about);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::groups::GROUPS;

    #[test]
    fn every_tool_is_needed_by_something_that_exists() {
        let crates = ["zigcc", "fixtures", "donors", "demo", "foreign", "inspector", "surgery", "transplant"];
        let programs = ["allograft cli", "allograft pages", "allograft projects", "trial trials"];
        for tool in TOOLS {
            for by in tool.needed_by {
                let known = crates.contains(by) || programs.contains(by) || GROUPS.iter().any(|it| it.name == *by);
                assert!(known, "{} is needed by `{by}`", tool.name);
            }
        }
        let names: BTreeSet<&str> = TOOLS.iter().map(|tool| tool.name).collect();
        assert_eq!(names.len(), TOOLS.len());
    }

    #[test]
    fn a_tool_comes_with_those_that_it_is_made_with() {
        for tool in TOOLS {
            let names: Vec<&str> = chosen(|it| it.name == tool.name).iter().map(|it| it.name).collect();
            assert_eq!(names, [tool.made_with, &[tool.name]].concat(), "not all, or not before it");
            let parts = TOOLS.iter().filter(|it| tool.made_with.contains(&it.name));
            assert!(parts.into_iter().all(|it| it.made_with.is_empty()), "{}: made in more than two steps", tool.name);
        }
        assert!(TOOLS.iter().any(|tool| !tool.made_with.is_empty()));
    }
}

//! The tools of building and testing beside cargo, a C compiler and Python's pip: fetched, checked, unpacked into the
//! build folder, without root.
//!
//! | module | what lives there |
//! | --- | --- |
//! | [`table`] | all tools: downloads, checks, users |
//! | [`groups`] | groups of slow tests |
//! | [`folder`] | folders that tools are put into |
//! | [`command`] | running other programs, cargo among them |
//! | [`workspace`] | folders of the checkout |
//! | [`packages`] | packages of the registries of Python, npm and Debian |
//! | [`debian`] | Debian's packages, unpacked and never installed |
//! | [`sources`] | the packages of the lock file, the donors' recipes, and sources from Debian |
//! | [`zig`] | zig, its lld and its musl |
//! | [`wheels`] | programs from Python's registry |
//! | [`projects`] | other people's projects: sources |
//! | [`corpus`] | released programs |
//! | [`schema`] | the schema of CycloneDX documents |
//! | [`musls`] | releases of musl, and its libc.so built like other distributions' |
//! | [`glibcs`] | newer releases of glibc |
//! | `rust` | a Rust toolchain with musl targets |
//! | [`system`] | a Debian with many programs |
//! | [`installed`] | a Debian with many programs, installed |
//! | [`released`] | released static programs to graft |
//! | [`toolchains`] | compilers of other languages |
//! | [`windows`] | Wine and a compiler for Windows |

pub mod command;
pub mod corpus;
pub mod debian;
pub mod folder;
pub mod glibcs;
pub mod groups;
pub mod installed;
#[cfg(test)]
mod language;
#[cfg(test)]
mod modules;
pub mod musls;
pub mod packages;
pub mod projects;
pub mod released;
mod rust;
pub mod schema;
pub mod sources;
pub mod system;
pub mod table;
pub mod toolchains;
pub mod wheels;
pub mod windows;
pub mod workspace;
pub mod zig;

use std::collections::BTreeSet;

use anyhow::Result;

/// Prepares most experiments: the tools for building, and one musl for this machine. zig's musl takes a minute to
/// compile, so it is made only if Debian's is unavailable.
///
/// # Errors
/// As [`table::prepare`].
pub fn prepare_for_one() -> Result<()> {
    table::prepare(&words(&["zigcc", "donors", "demo"]))?;
    musl_of_zig()
}

/// Prepares the demo, which has two of the donors, and returns the variables for its build. None if the tests have been
/// prepared already: then it shares their build.
///
/// # Errors
/// As [`table::prepare`].
pub fn prepare_for_demo() -> Result<Vec<(String, String)>> {
    if sources::are_there()? {
        prepare_for_one()?;
        return Ok(Vec::new());
    }
    table::prepare(&words(&["zigcc", "demo"]))?;
    musl_of_zig()?;
    let variables = [(zigcc::arches::ARCHES, "native"), ("ALLOGRAFT_DONORS", "snmalloc,mimalloc3")];
    Ok(variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into())
}

fn musl_of_zig() -> Result<()> {
    match fixtures::debian_musl_if_present(fixtures::Arch::X86_64) {
        Some(_) => Ok(()),
        None => table::prepare_named(&["zig-musl"]),
    }
}

/// Prepares releases, and the proof on other compilers: the tools for building, and a musl for every architecture.
///
/// # Errors
/// As [`table::prepare`].
pub fn prepare_for_every_architecture() -> Result<()> {
    table::prepare(&words(&["zigcc", "donors", "fixtures", "foreign", "zig-musl"]))
}

fn words(words: &[&str]) -> BTreeSet<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

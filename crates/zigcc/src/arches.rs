//! The architectures that a build embeds objects for.
//!
//! All five take minutes to compile, and most work needs one. So an unoptimised build has all donors for the machine
//! that it is for, and only the default ones for the others; an optimised build, which may be installed, has all for
//! all.

use std::env;

use crate::{Arch, Error};

/// The environment variable with the architectures that have all donors: `all`, names with commas between them in
/// addition to the machine's own, or `native`: then the others have none.
pub const ARCHES: &str = "ALLOGRAFT_ARCHES";

/// Returns the architectures to compile for, in the order of [`Arch::ALL`]. For build scripts: has cargo run the script
/// again when the variable changes.
///
/// # Errors
/// [`Error::Arches`] if the variable names something else.
pub fn chosen() -> Result<Vec<Arch>, Error> {
    println!("cargo::rerun-if-env-changed={ARCHES}");
    let optimised = env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let wanted = env::var(ARCHES).unwrap_or_default();
    let target = env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    parse(&wanted, optimised, &target)
}

/// Whether the other architectures have the default donors.
pub fn others_have_defaults() -> bool {
    env::var(ARCHES).unwrap_or_default() != "native"
}

fn parse(wanted: &str, optimised: bool, target: &str) -> Result<Vec<Arch>, Error> {
    // rustc's names of the processors.
    let target = if target == "x86" { "i686" } else { target };
    match wanted {
        "all" => Ok(Arch::ALL.to_vec()),
        "" if optimised => Ok(Arch::ALL.to_vec()),
        "" | "native" => Ok(Arch::from_name(target).map_or(Arch::ALL.to_vec(), |arch| vec![arch])),
        names => {
            let named: Option<Vec<Arch>> = names.split(',').map(|name| Arch::from_name(name.trim())).collect();
            let mut arches = named.ok_or_else(|| Error::Arches { found: names.to_owned() })?;
            arches.extend(Arch::from_name(target));
            arches.sort();
            arches.dedup();
            Ok(arches)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unoptimised_build_has_the_machines_own() {
        let arches = |wanted: &str, optimised| parse(wanted, optimised, "x86_64").map_err(|error| error.to_string());
        assert_eq!(arches("", false), Ok(vec![Arch::X86_64]));
        assert_eq!(arches("", true), Ok(Arch::ALL.to_vec()));
        assert_eq!(arches("native", true), Ok(vec![Arch::X86_64]));
        assert_eq!(arches("all", false), Ok(Arch::ALL.to_vec()));
        assert_eq!(arches("riscv64, arm,riscv64", true), Ok(vec![Arch::X86_64, Arch::Riscv64, Arch::Arm]));
        assert_eq!(parse("native", true, "x86").ok(), Some(vec![Arch::I686]));
        assert_eq!(parse("", false, "powerpc64").ok(), Some(Arch::ALL.to_vec()), "a machine that hosts are not for");
        let error = arches("x86_64,amd64", false).unwrap_err();
        assert!(error.contains("x86_64,amd64") && error.contains(ARCHES), "{error}");
    }
}

//! C programs that must work with a grafted libc, built for every architecture.

use format::{Arch, Compressed};

/// A program. It takes no arguments. It prints one line `ok NAME` and exits with 0, or prints a line that begins with
/// `FAIL: ` on stderr and exits with another code. If it hangs, its watchdog ends it with 3.
///
/// It reads these environment variables: `ALLOGRAFT_SCALE`, the length of its loops in percent (default 100);
/// `ALLOGRAFT_HANG_SECONDS`, the time after which a forked child counts as hanging (default 20); `ALLOGRAFT_FIGURES`,
/// to print its measurements as notes. Three programs have a variable in place of a scaled length: `fork_stress` has
/// `ALLOGRAFT_FORKS`, `short_threads` has `ALLOGRAFT_THREADS`, `pipeline` has `ALLOGRAFT_PIPELINE_SECONDS`.
#[derive(Debug)]
pub struct Program {
    /// The name. The source has the same name with `.c`.
    pub name: &'static str,
    /// The subject, in one phrase.
    pub about: &'static str,
    /// The time limit in seconds at scale 100, on a slow or emulated machine.
    pub seconds: u32,
    source: &'static str,
    objects: [Compressed; Arch::ALL.len()],
}

/// The embedded start object and runtime library of an architecture.
#[derive(Debug)]
struct Toolchain {
    arch: Arch,
    start: &'static [u8],
    runtime: &'static [u8],
}

include!(concat!(env!("OUT_DIR"), "/embedded/programs.rs"));

/// Whether this build has the objects for an architecture. A build of all architectures has
/// (`crates/zigcc/src/arches.rs`); of the others, the functions below return empty files.
pub fn is_built_for(arch: Arch) -> bool {
    TOOLCHAINS.iter().any(|toolchain| toolchain.arch == arch)
}

fn toolchain(arch: Arch, file: fn(&Toolchain) -> &'static [u8]) -> &'static [u8] {
    TOOLCHAINS.iter().find(|toolchain| toolchain.arch == arch).map_or(&[], file)
}

/// Returns every program, sorted by name.
pub fn programs() -> &'static [Program] {
    &PROGRAMS
}

/// Returns the program of that name.
pub fn find(name: &str) -> Option<&'static Program> {
    PROGRAMS.iter().find(|program| program.name == name)
}

impl Program {
    /// Returns the relocatable object, which is position-independent. It links with any musl from 1.2.2 on.
    pub fn object(&self, arch: Arch) -> &[u8] {
        // The objects are in the order of `Arch::ALL`, which is the order of the variants.
        self.objects[arch as usize].bytes()
    }
}

/// Returns the C source of a program. It includes `check.h`, see [`header`].
pub fn source(program: &Program) -> &'static str {
    program.source
}

/// Returns `check.h`, which every program's source includes.
pub fn header() -> &'static str {
    include_str!("../programs/check.h")
}

/// Returns an object with `_start` for a static program that is not position-independent (musl's `crt1.o`), for hosts
/// that lack one. With it, `crti.o` and `crtn.o` are not needed: musl's `libc.a` has what they would define.
pub fn start_object(arch: Arch) -> &'static [u8] {
    toolchain(arch, |toolchain| toolchain.start)
}

/// Returns a static archive of the functions that compilers call implicitly (arithmetic on 128-bit floats,
/// multiplication of complex numbers, division on 32-bit processors) and of those that zig's `libc.a` leaves to zig.
/// Link it in one group with the `libc.a`, after it.
pub fn runtime_library(arch: Arch) -> &'static [u8] {
    toolchain(arch, |toolchain| toolchain.runtime)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_of_their_architecture() {
        // e_type 1 (relocatable) and e_machine of the ELF header.
        let machines = [62u8, 183, 243, 3, 40];
        assert!(Arch::ALL.into_iter().any(is_built_for));
        for (arch, machine) in Arch::ALL.into_iter().zip(machines).filter(|(arch, _)| is_built_for(*arch)) {
            let objects = programs().iter().map(|program| program.object(arch)).chain([start_object(arch)]);
            for object in objects {
                assert_eq!(&object[..4], b"\x7fELF");
                assert_eq!((object[16], object[18]), (1, machine));
            }
            assert!(runtime_library(arch).starts_with(b"!<arch>\n"));
        }
    }

    #[test]
    fn objects_hold_no_path_of_the_machine_that_built_them() {
        let here = env!("CARGO_MANIFEST_DIR").as_bytes();
        for program in programs() {
            for arch in Arch::ALL {
                let found = program.object(arch).windows(here.len()).any(|window| window == here);
                assert!(!found, "{} for {}", program.name, arch.name());
            }
        }
    }

    #[test]
    fn every_program_says_what_it_is_about() {
        assert!(programs().len() >= 21);
        for program in programs() {
            assert!(!program.about.is_empty() && program.seconds >= 60, "{program:?}");
            assert_eq!(find(program.name).map(|found| found.name), Some(program.name));
            assert!(source(program).contains("#include \"check.h\""));
        }
        assert!(header().contains("define CHECK("));
    }
}

//! The groups of slow tests. A test names its own: as the first word of its reason to be ignored, or as its kind.

use zigcc::Arch;

/// A group of slow tests.
#[derive(Debug)]
pub struct Group {
    /// Its name.
    pub name: &'static str,
    /// A description of its tests.
    pub about: &'static str,
    /// The architectures that the build needs beside this machine's.
    pub arches: &'static [Arch],
    /// The parts of ten that its tests are spread over. CI runs one part for each landing. Tests that share a large
    /// download are in one part.
    pub parts: &'static [u64],
    /// Whether each part has all of its tests.
    pub in_each: bool,
}

/// The number of parts.
pub const PARTS: u64 = 10;

/// All groups. Each part has tests of one foreign architecture only, as a build takes a minute for each.
pub const GROUPS: &[Group] = &[
    group("minutes", "long runs on this machine", &[], &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]),
    group("aarch64", "programs for aarch64, emulated", &[Arch::Aarch64], &[0, 1, 2, 3]),
    group("riscv64", "programs for riscv64, emulated", &[Arch::Riscv64], &[4, 5]),
    group("i686", "programs for i686", &[Arch::I686], &[6, 7]),
    group("arm", "programs for arm, emulated", &[Arch::Arm], &[8, 9]),
    Group {
        in_each: true,
        // Any change of a type can break them.
        ..group("workspace", "pages that change this program's source", &[], &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
    },
    group("zig-musl", "hosts and C++ libraries that zig compiles", &[], &[2, 5]),
    group("zig-musls", "hosts that zig compiles, for three architectures", &[], &[6]),
    group("zigs", "several releases of zig, each with a musl of its own", &[], &[9]),
    group("corpus", "released programs", &[], &[1]),
    group("schema", "the schema of bills of materials", &[], &[1]),
    group("projects", "other people's projects, built and tested", &[], &[0]),
    group("bazel", "Bazel", &[], &[0]),
    group("musls", "releases of musl, and its libc.so as others build it", &[], &[4]),
    group("glibcs", "newer releases of glibc", &[], &[6]),
    group("windows", "programs for Windows, under Wine", &[], &[4]),
    group("system", "a Debian with many programs", &[], &[5]),
    group("installed", "programs of a Debian as installed, at work", &[], &[7]),
    group("released", "released static programs, at work", &[], &[3]),
    group("toolchains", "compilers of other languages", &[], &[9]),
    group("rust", "Rust with musl targets", &[Arch::Aarch64], &[0]),
    group("systemd", "a Debian with systemd, which reads a unit", &[], &[1]),
    group("install", "packages, installed into a root folder", &[], &[]),
    group("site", "the site, with mdBook", &[], &[8]),
    group("child", "parts of other tests, which start them in a process of their own", &[], &[]),
    group("hours", "an hour each: releases made twice, wasmtime built", &[], &[]),
];

const fn group(name: &'static str, about: &'static str, arches: &'static [Arch], parts: &'static [u64]) -> Group {
    Group { name, about, arches, parts, in_each: false }
}

impl Group {
    /// Returns the group of that name.
    pub fn find(name: &str) -> Option<&'static Group> {
        GROUPS.iter().find(|group| group.name == name)
    }

    /// Whether the part runs the test of that name.
    pub fn is_in(&self, part: u64, test: &str) -> bool {
        if self.in_each { self.parts.contains(&part) } else { self.part_of(test) == Some(part) }
    }

    fn part_of(&self, test: &str) -> Option<u64> {
        // FNV-1a: the parts are the same on every machine.
        let hash = test
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        let count = u64::try_from(self.parts.len()).unwrap_or(1);
        // Its last characters have hardly reached the upper bits yet.
        let mixed = (hash ^ (hash >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32;
        (count > 0).then(|| self.parts[usize::try_from(mixed % count).unwrap_or(0)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_has_one_foreign_architecture_at_most() {
        for part in 0..PARTS {
            let of_part = GROUPS.iter().filter(|group| group.parts.contains(&part));
            let mut arches: Vec<Arch> = of_part.flat_map(|group| group.arches.iter().copied()).collect();
            arches.dedup();
            assert!(arches.len() <= 1, "part {part}: {arches:?}");
        }
        assert!(GROUPS.iter().all(|group| group.parts.iter().all(|part| *part < PARTS)));
    }

    #[test]
    fn tests_are_spread_over_the_parts_of_their_group() {
        let group = Group::find("minutes").unwrap();
        let mut counts = [0_u32; PARTS as usize];
        for number in 0..1000 {
            counts[group.part_of(&format!("conformance/threads/{number}")).unwrap() as usize] += 1;
        }
        assert!(counts.iter().all(|count| (60..140).contains(count)), "{counts:?}");
        assert!((0..PARTS).all(|part| !Group::find("hours").unwrap().is_in(part, "a")));
        assert!((0..PARTS).all(|part| Group::find("workspace").unwrap().is_in(part, "a")));
    }
}

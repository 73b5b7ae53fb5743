//! Every program passes on stock musl: Debian's and zig's, static and static-pie, native and emulated. The default tier
//! runs them on Debian's for this machine.

use fixtures::Arch;
use fixtures::trials::in_group;
use libtest_mimic::Trial;

use crate::linking::Host;

/// Returns the trials `stock/HOST/ARCHITECTURE/PROGRAM`.
pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    let mut add = |name: &str, arch: Arch, group: Option<&'static str>, host: fn(Arch) -> Host| {
        trials.extend(conformance::programs().iter().map(|program| {
            let trial = Trial::test(format!("stock/{name}/{arch}/{}", program.name), move || {
                host(arch).check(program, &[], &[])
            });
            in_group(trial, group)
        }));
    };
    for arch in Arch::ALL {
        let foreign = (!fixtures::native(arch)).then(|| arch.name());
        if fixtures::DEBIAN.contains(&arch) {
            add("debian", arch, foreign, |arch| Host::debian(arch, "-no-pie"));
        }
        if fixtures::ZIG.contains(&arch) {
            add("zig", arch, foreign.or(Some("zig-musl")), |arch| Host::bare(arch, fixtures::zig_musl(arch)));
        }
        if foreign.is_none() {
            add("debian-pie", arch, None, |arch| Host::debian(arch, "-static-pie"));
        }
    }
    trials
}

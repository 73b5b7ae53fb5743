//! Every program passes on stock musl: Debian's and zig's, static and static-pie, native and emulated. Emulated
//! programs run in the slow tier, except for a few.

use fixtures::Arch;
use libtest_mimic::Trial;

use crate::linking::Host;

/// The programs that the default tier runs emulated, on Debian's musl for aarch64.
const EMULATED: [&str; 4] = ["family", "libc_callers", "thread_exit", "threads"];

/// Returns the trials `stock/HOST/ARCHITECTURE/PROGRAM`.
pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for arch in Arch::ALL {
        let mut hosts = Vec::new();
        if fixtures::DEBIAN.contains(&arch) {
            hosts.push((format!("stock/debian/{}", arch.name()), Host::debian(arch, "-no-pie")));
        }
        if fixtures::ZIG.contains(&arch) {
            hosts.push((format!("stock/zig/{}", arch.name()), Host::bare(arch, fixtures::zig_musl(arch))));
        }
        if fixtures::native(arch) {
            hosts.push((format!("stock/debian-pie/{}", arch.name()), Host::debian(arch, "-static-pie")));
        }
        for (name, host) in hosts {
            trials.extend(conformance::programs().iter().map(|program| {
                let host = host.clone();
                let fast =
                    fixtures::runs_here(arch) || (name == "stock/debian/aarch64" && EMULATED.contains(&program.name));
                Trial::test(format!("{name}/{}", program.name), move || host.check(program, &[], &[]))
                    .with_ignored_flag(!fast)
            }));
        }
    }
    trials
}

//! Programs linked from grafts of every donor, linked and stripped in all usual ways. The inspector names the donor,
//! but not if the program has its own malloc.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use casebook::bench::{Bench, Donors, Host};
use casebook::link::{LinkSetup, Linker, Mode};
use fixtures::Arch;
use fixtures::trials::in_group;
use libtest_mimic::{Failed, Trial};

/// The ways to compile a program.
const LEVELS: [&str; 5] = ["-O0", "-O1", "-O2", "-O3", "-flto"];

pub(crate) fn trials(bench: &Arc<Bench>) -> Vec<Trial> {
    let mut trials = Vec::new();
    let donors = donors::all().iter().map(|donor| Donors::both(donor.name)).chain([Donors::STOCK]);
    for donors in donors {
        for host in [Host::Debian(Arch::X86_64), Host::Debian(Arch::Aarch64), Host::Zig(Arch::X86_64)] {
            if !donors.exist_for(host.arch()) {
                continue;
            }
            for linker in [Linker::Gnu, Linker::Lld] {
                for level in LEVELS {
                    // GNU ld on this machine links neither for foreign architectures nor LLVM's bitcode, and zig's
                    // libc.a is linked with lld.
                    if linker == Linker::Gnu && (level == "-flto" || host != Host::Debian(Arch::X86_64)) {
                        continue;
                    }
                    let bench = Arc::clone(bench);
                    let way = move |mode| LinkSetup { host, linker, mode };
                    let name = format!("carried/{}/{}{level}", donors.name(), way(Mode::Static).name());
                    let slow = !(level == "-O2" && linker == Linker::Lld && host == Host::Debian(Arch::X86_64));
                    let test = move || {
                        // Here, zig's start files are for fixed addresses.
                        let both = [Mode::Static, Mode::StaticPie];
                        let modes = if matches!(host, Host::Zig(_)) { &both[..1] } else { &both };
                        for &mode in modes {
                            check(&bench, donors, way(mode), level).map_err(Failed::from)?;
                        }
                        Ok(())
                    };
                    trials.push(in_group(Trial::test(name, test), host.group().or(slow.then_some("minutes"))));
                }
            }
        }
    }
    trials
}

fn check(bench: &Bench, donors: Donors, way: LinkSetup, level: &str) -> Result<(), String> {
    let libc = bench.libc(way.host, donors, &[]);
    let expected = donors.malloc.unwrap_or("mallocng");
    let arguments: Vec<OsString> = [level, "-fPIE", "-ffunction-sections", "-fno-sanitize=all", "-fno-builtin", "-w"]
        .iter()
        .map(OsString::from)
        .collect();
    for (source, own) in [("plain.c", false), ("own.c", true)] {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("carried").join(source);
        let object = bench.object(way.host.arch(), &source, &arguments);
        for collect in [false, true] {
            let name = format!("{} {} {level} {own} {collect}", donors.name(), way.name()).replace('/', " ");
            let link = |strip: bool| {
                let flags = [(collect, "--gc-sections"), (strip, "-s")];
                let flags: Vec<OsString> = flags.iter().filter(|(on, _)| *on).map(|(_, flag)| flag.into()).collect();
                let program = bench.path(&format!("{name} {strip}"));
                way.link(bench, &libc, std::slice::from_ref(&object), &flags, &program)?;
                Ok::<PathBuf, String>(program)
            };
            for (how, bytes) in variants(way.host.arch(), &link(false)?, &link(true)?)? {
                let report = inspector::inspect(&bytes).map_err(|error| format!("{name}, {how}: {error}"))?;
                let found = report.malloc.name.as_str();
                // A program's own malloc is unknown without symbols. With symbols it is unknown too, since its name
                // is not in the table.
                let right = if own { found == "unknown" } else { found == expected };
                if !right || report.libc != inspector::Libc::Musl {
                    return Err(format!("{name}, {how}: it says {found}\n{report:#?}"));
                }
            }
        }
    }
    Ok(())
}

/// Returns the program unstripped, and stripped in every way.
fn variants(arch: Arch, whole: &Path, bare: &Path) -> Result<Vec<(&'static str, Vec<u8>)>, String> {
    let read = |path: &Path| fs::read(path).map_err(|error| error.to_string());
    let mut variants = vec![
        ("whole", read(whole)?),
        ("without section headers", without_sections(read(whole)?)),
        ("linked with -s", read(bare)?),
        ("linked with -s, without section headers", without_sections(read(bare)?)),
    ];
    // GNU strip handles this machine's architecture only.
    if fixtures::native(arch) {
        let mut stripped = PathBuf::from(whole);
        stripped.as_mut_os_string().push(" stripped");
        let output = Command::new("strip").arg("-s").arg("-o").arg(&stripped).arg(whole).output();
        let output = output.map_err(|error| format!("strip: {error}"))?;
        if !output.status.success() {
            return Err(format!("strip: {}", String::from_utf8_lossy(&output.stderr)));
        }
        variants.push(("strip -s", read(&stripped)?));
    }
    Ok(variants)
}

/// Does what `strip --strip-sections` does: clears e_shoff, e_shnum and e_shstrndx of a 64-bit file.
fn without_sections(mut program: Vec<u8>) -> Vec<u8> {
    program[40..48].fill(0);
    program[60..64].fill(0);
    program
}

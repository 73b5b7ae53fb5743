//! Profiles of the heap that grafted programs write: their figures against known programs, when they are written, and
//! the probes that say the same to a profiler outside.

use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use casebook::bench::{Bench, Donors, Host};
use casebook::finished::{self, Graft};
use casebook::link::{LinkSetup, Linker, Mode};
use fixtures::Arch;
use fixtures::link::Dynamic;
use fixtures::trials::{room, slow};
use hosts::Request;
use libtest_mimic::Trial;
use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol};
use profiler::heap::{Heap, HeapProfile, HeapReport};

use crate::statistics::{WAY, object, program, programs, run};

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = room(
        "heap",
        &[
            ("live_bytes_are_those_of_the_sites", live_bytes_are_those_of_the_sites),
            ("an_executable_that_was_linked_already_has_sites", an_executable_that_was_linked_already_has_sites),
            ("dynamic_programs_have_sites", dynamic_programs_have_sites),
            ("a_signal_makes_a_profile", a_signal_makes_a_profile),
            ("an_interval_makes_profiles", an_interval_makes_profiles),
            ("a_path_that_cannot_be_written_is_said", a_path_that_cannot_be_written_is_said),
            ("probes_tell_a_profiler_outside", probes_tell_a_profiler_outside),
            ("changed_notes_on_probes_are_found", changed_notes_on_probes_are_found),
        ],
    );
    let foreign: [(&str, &str, fn()); 4] = [
        ("aarch64", "sites_on_aarch64", || sites_on(Host::Debian(Arch::Aarch64), Mode::StaticPie)),
        ("riscv64", "sites_on_riscv64", || sites_on(Host::Zig(Arch::Riscv64), Mode::Static)),
        ("i686", "sites_on_i686", || sites_on(Host::Debian(Arch::I686), Mode::Static)),
        ("arm", "sites_on_arm", || sites_on(Host::Debian(Arch::Arm), Mode::Static)),
    ];
    for (arch, name, test) in foreign {
        trials.extend(room("heap", &[(name, test)]).into_iter().map(|trial| slow(trial, arch)));
    }
    trials
}

/// The bytes that the program `sites` keeps, by function.
const KEPT: [(&str, u64); 5] = [
    ("keep_nodes", 24_000_000),
    ("keep_large", 24_000_000),
    ("grow_vector", 20_000_000),
    ("keep_aligned", 8_000_000),
    ("keep_some", 4_000_000),
];
/// The functions that `main` calls. The first calls posix_memalign, which has no unwind tables in musl.
const CALLED_BY_MAIN: [&str; 5] = ["keep_aligned", "keep_nodes", "keep_large", "grow_vector", "churn"];
/// The mean distance of samples, in bytes. The least of [`KEPT`] has 3,900 samples: a tenth is six standard deviations.
const FINE: &str = "1024";

fn report(profile: &Path) -> HeapReport {
    let read = HeapProfile::read(profile).unwrap_or_else(|error| panic!("{}: {error}", profile.display()));
    Heap::new(read, None, None).unwrap_or_else(|error| panic!("{}: {error}", profile.display())).report
}

fn live(report: &HeapReport, function: &str) -> u64 {
    report.sites.iter().filter(|site| site.function == function).map(|site| site.live.bytes).sum()
}

/// Runs a program, under an emulator if need be, and returns the reports of the process and of its child.
fn profiled(name: &str, way: LinkSetup, program: &Path) -> [HeapReport; 2] {
    let value = ("ALLOGRAFT_HEAP".to_owned(), format!("heap.%p.pb.gz:{FINE}"));
    let output = way.run(program, &[value]).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert!(output.status.success() && output.stderr.is_empty(), "{name}: {output:?}");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let (parent, child) = said.trim().split_once(' ').expect("two numbers");
    let folder = program.parent().expect("a folder");
    let mut reports = [parent, child].map(|process| report(&folder.join(format!("heap.{process}.pb.gz"))));
    // allograft reads no symbols of 32-bit files: they are named by their addresses.
    if matches!(way.host.arch(), Arch::I686 | Arch::Arm) {
        let bytes = fs::read(program).expect("a program");
        let file = object::File::parse(bytes.as_slice()).expect("an ELF file");
        for site in reports.iter_mut().flat_map(|report| &mut report.sites) {
            site.function = function_at(&file, &site.function).unwrap_or_else(|| site.function.clone());
        }
    }
    reports
}

/// The name of the function at an offset in the file such as `sites+0x12ab`.
fn function_at(file: &object::File<'_>, place: &str) -> Option<String> {
    let (_, offset) = place.rsplit_once("+0x")?;
    let offset = u64::from_str_radix(offset, 16).ok()?;
    let mut segments = file.segments().map(|segment| (segment.address(), segment.file_range()));
    let (start, (from, _)) = segments.find(|(_, (from, size))| offset.wrapping_sub(*from) < *size)?;
    let address = offset - from + start;
    // An odd address means that the code is in Thumb.
    let holds = |symbol: &object::Symbol<'_, '_>| (address & !1).wrapping_sub(symbol.address() & !1) < symbol.size();
    let mut functions = file.symbols().filter(|symbol| symbol.kind() == object::SymbolKind::Text);
    functions.find(holds)?.name().ok().map(str::to_owned)
}

/// The figures are within a tenth of the truth, and every site has its caller.
fn check_sites(name: &str, way: LinkSetup, program: &Path) {
    let [parent, child] = &profiled(name, way, program);
    for (function, kept) in KEPT {
        let found = live(parent, function);
        assert!(found.abs_diff(kept) <= kept / 10, "{name}: {function} keeps {found} of {kept}: {:#?}", parent.sites);
    }
    let of = |function: &str| parent.sites.iter().find(|site| site.function == function);
    let churn: Vec<_> = parent.sites.iter().filter(|site| site.function == "churn").collect();
    let (churned, allocated) = (churn.iter().map(|site| site.allocated.bytes).sum::<u64>(), 300_000 * 300);
    assert!(churned.abs_diff(allocated) <= allocated / 10, "{name}: {:#?}", parent.sites);
    assert!(live(parent, "churn") < 100_000, "{name}: {churn:#?}");
    // Between `keep_aligned` and the donor is musl's own posix_memalign, in a program that was linked already. Stacks
    // of 32-bit programs have one caller.
    let traced = match way.host.arch() {
        Arch::X86_64 => &CALLED_BY_MAIN[..],
        Arch::Aarch64 | Arch::Riscv64 => &CALLED_BY_MAIN[1..],
        Arch::I686 | Arch::Arm => &[],
    };
    for function in traced.iter().copied() {
        let callers = of(function).and_then(|site| site.callers.first());
        let caller = callers.and_then(|callers| callers.functions.first());
        assert_eq!(caller.map(String::as_str), Some("main"), "{name}: {function}");
    }
    // The child has what it inherited, and allocates itself.
    let own = live(child, "keep_in_child");
    assert!(own.abs_diff(3_000_000) <= 600_000, "{name}: {own}");
    assert_eq!(live(child, "keep_nodes"), live(parent, "keep_nodes"), "{name}");
    // qemu's user mode does not wipe the page that tells a child (MADV_WIPEONFORK).
    let is_told = fixtures::runs_here(way.host.arch());
    assert!(child.allocated.bytes < parent.allocated.bytes || !is_told, "{name}");
}

fn live_bytes_are_those_of_the_sites() {
    let bench = Bench::new();
    for (donor, program) in programs(&bench, "sites") {
        check_sites(donor, WAY, &program);
    }
}

/// With each donor, in programs that were linked from a graft and in those that were grafted after linking.
fn sites_on(host: Host, mode: Mode) {
    let bench = Bench::new();
    let way = LinkSetup { host, linker: Linker::Lld, mode };
    let donors = donors::all().iter().filter(|donor| donor.supports(host.arch()));
    let built = donors.map(|donor| (donor.name, program(&bench, way, "sites", donor.name, &[])));
    for (donor, program) in built.chain(linked(&bench, way)) {
        check_sites(donor, way, &program);
    }
}

/// Links the object with stock, and grafts the program with each donor that can be put in.
fn linked(bench: &Bench, way: LinkSetup) -> Vec<(&'static str, PathBuf)> {
    let libc = bench.libc(way.host, Donors::STOCK, &[]);
    let (stock, object) = (bench.path("stock"), object(bench, way, "sites"));
    way.link(bench, &libc, &[object], &[], &stock).unwrap_or_else(|error| panic!("{error}"));
    let donors = donors::all().iter().filter(|donor| donor.has_blob(way.host.arch()));
    let programs = donors.map(|donor| {
        let folder = bench.path(donor.name);
        fs::create_dir(&folder).expect("a folder");
        let program = folder.join("sites");
        let graft = finished::request(Graft { donor, strings: false });
        let request = Request { out: Some(program.clone()), ..graft };
        hosts::graft(&stock, &request).unwrap_or_else(|error| panic!("{}: {error}", donor.name));
        (donor.name, program)
    });
    programs.collect()
}

fn an_executable_that_was_linked_already_has_sites() {
    for (donor, program) in linked(&Bench::new(), WAY) {
        check_sites(donor, WAY, &program);
    }
}

/// Grafts with the default donor into a file of this name.
fn grafted(bench: &Bench, stock: &Path, name: &str) -> PathBuf {
    let (donor, out) = (donors::default_for(WAY.host.arch()), bench.path(name));
    let request = Request { out: Some(out.clone()), ..Request::new(donor) };
    hosts::graft(stock, &request).unwrap_or_else(|error| panic!("{name}: {error}"));
    out
}

fn made(mut command: Command) {
    let output = command.output().expect("it starts");
    assert!(output.status.success(), "{command:?}: {output:?}");
}

/// The program for glibc, with a donor merged into it.
fn merged(bench: &Bench, flags: &[&str]) -> PathBuf {
    let stock = bench.path("sites for glibc");
    let mut compiler = fixtures::program::glibc_cc(WAY.host.arch());
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("statistics/sites.c");
    compiler.args(["-O2", "-g", "-pthread", "-fno-builtin", "-w"]).args(flags).arg(source).arg("-o").arg(&stock);
    made(compiler);
    grafted(bench, &stock, "merged")
}

/// A program that a grafted musl loader starts, and one for glibc that a donor was merged into.
fn dynamic_programs_have_sites() {
    let bench = Bench::new();
    let arch = WAY.host.arch();
    let stock = fixtures::musl_loader(arch);
    let loader = grafted(&bench, &stock, "loader.so");
    let program = bench.path("sites for musl");
    let dynamic = Dynamic { arch, library: &stock.with_file_name(""), loader: &loader, position_independent: false };
    let runtime = bench.file("runtime.a", conformance::runtime_library(arch));
    made(dynamic.line(&[object(&bench, WAY, "sites")], &[runtime], &program));
    check_sites("loader", WAY, &program);
    check_sites("merged", WAY, &merged(&bench, &[]));
}

fn a_signal_makes_a_profile() {
    let bench = Bench::new();
    for (donor, program) in programs(&bench, "sites") {
        let folder = program.parent().expect("a folder").to_owned();
        let signal = [("ALLOGRAFT_HEAP", "asked.%n.gz:4096"), ("ALLOGRAFT_HEAP_SIGNAL", "USR2")];
        let output = run(&program, &["signal"], &signal);
        assert!(output.status.success() && output.stderr.is_empty(), "{donor}: {output:?}");
        let (asked, last) = (report(&folder.join("asked.1.gz")), report(&folder.join("asked.2.gz")));
        assert!(live(&asked, "keep_nodes") > 20_000_000 && live(&asked, "keep_large") == 0, "{donor}: {asked:#?}");
        assert!(live(&last, "keep_large") > 20_000_000, "{donor}: {last:#?}");
    }
}

fn an_interval_makes_profiles() {
    let bench = Bench::new();
    for (donor, program) in programs(&bench, "sites") {
        let folder = program.parent().expect("a folder").to_owned();
        // It goes on until the second one is there.
        let interval = [("ALLOGRAFT_HEAP", "timed.%n.gz:4096"), ("ALLOGRAFT_HEAP_INTERVAL", "1")];
        let output = run(&program, &["until", "timed.2.gz"], &interval);
        assert!(output.status.success() && output.stderr.is_empty(), "{donor}: {output:?}");
        assert!(report(&folder.join("timed.2.gz")).allocated.bytes > 0, "{donor}");
    }
}

fn a_path_that_cannot_be_written_is_said() {
    let bench = Bench::new();
    for (donor, program) in programs(&bench, "raised") {
        let said = |value: &str| {
            let output = run(&program, &[], &[("ALLOGRAFT_HEAP", value)]);
            assert!(output.status.success(), "{donor}, {value}: {output:?}");
            String::from_utf8_lossy(&output.stderr).into_owned()
        };
        for off in ["", "0"] {
            assert_eq!(said(off), "", "{donor}");
        }
        let unwritten = "allograft: the heap's profile cannot be written\n";
        assert_eq!(said("no such folder/heap.gz"), unwritten, "{donor}");
        let long = "x".repeat(5000);
        for useless in [long.as_str(), "-"] {
            let said = said(useless);
            assert!(said.contains("ALLOGRAFT_HEAP needs a path") || said == unwritten, "{donor}, {useless}: {said}");
        }
    }
}

/// One of the donor's probes: its address, that of its semaphore, and its name.
struct Probe {
    address: u64,
    semaphore: u64,
    name: String,
}

/// Reads the notes as any profiler does (sourceware.org/systemtap/wiki/UserSpaceProbeImplementation): those of the
/// first section of that name. The program's own are there, too.
fn probes(program: &Path) -> Vec<Probe> {
    let bytes = fs::read(program).expect("a program");
    let file = object::File::parse(bytes.as_slice()).expect("an ELF file");
    let section = file.section_by_name(".note.stapsdt").expect("notes on probes");
    let notes = section.data().expect("its bytes");
    let word = |at: usize| u32::from_le_bytes(notes[at..at + 4].try_into().expect("4 bytes")) as usize;
    let (mut found, mut own) = (Vec::new(), 0);
    let mut at = 0;
    while at < notes.len() {
        let (name, size) = (word(at), word(at + 4));
        assert_eq!((word(at + 8), &notes[at + 12..at + 12 + name]), (3, &b"stapsdt\0"[..]));
        let description = &notes[at + 12 + name..at + 12 + name + size];
        let address = |at: usize| u64::from_le_bytes(description[at..at + 8].try_into().expect("8 bytes"));
        let texts: Vec<&str> =
            description[24..].split(|byte| *byte == 0).filter_map(|it| str::from_utf8(it).ok()).collect();
        at += 12 + name + size.next_multiple_of(4);
        if texts[..2] == ["sites", "nodes"] {
            own += 1;
            continue;
        }
        let arguments = if texts[1] == "alloc" { "8@%rdi 8@%rsi 8@%rdx" } else { "8@%rdi" };
        assert_eq!((texts[0], texts[2], address(8)), ("otel_memory", arguments, 0));
        found.push(Probe { address: address(0), semaphore: address(16), name: texts[1].to_owned() });
    }
    assert!(own > 0, "{}: the program's own probe", program.display());
    found
}

/// Attaches to a running program without any variable, as a profiler does: a breakpoint in place of each probe's
/// instruction, and a reader more in the semaphore. Each sampled block and its end must then reach a probe.
fn probes_tell_a_profiler_outside() {
    let bench = Bench::new();
    let grafted = linked(&bench, WAY).into_iter().chain([("merged", merged(&bench, &["-no-pie"]))]);
    for (donor, program) in programs(&bench, "sites").into_iter().chain(grafted) {
        let probes = probes(&program);
        let names: Vec<&str> = probes.iter().map(|probe| probe.name.as_str()).collect();
        assert!(names.contains(&"alloc") && names.contains(&"free") && names.len() == 2, "{donor}: {names:?}");
        let mut command = Command::new(&program);
        let mut child = command.arg("wait").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("it starts");
        let pid = Pid::from_raw(child.id().cast_signed());
        ptrace::attach(pid).expect("it is ours");
        waitpid(pid, None).expect("it stops");
        let poke = |address: u64, byte: u8| {
            let place = address as ptrace::AddressType;
            let word = ptrace::read(pid, place).expect("it is mapped");
            ptrace::write(pid, place, word & !0xff | i64::from(byte)).expect("it can be written");
        };
        for probe in &probes {
            poke(probe.address, 0xcc);
        }
        poke(probes[0].semaphore, 2);
        child.stdin.take().expect("a pipe").write_all(b"x").expect("it waits");
        let (mut weighted, mut freed, mut live) = (0, 0, HashMap::new());
        let mut signal = None;
        loop {
            ptrace::cont(pid, signal.take()).expect("it is stopped");
            match waitpid(pid, None).expect("it is ours") {
                WaitStatus::Stopped(_, Signal::SIGTRAP) => {
                    let registers = ptrace::getregs(pid).expect("it is stopped");
                    let probe = probes.iter().find(|probe| probe.address + 1 == registers.rip).expect("a probe");
                    if probe.name == "alloc" {
                        assert!(registers.rdx >= registers.rsi, "{donor}");
                        assert_eq!(live.insert(registers.rdi, registers.rdx), None, "{donor}");
                        weighted += registers.rdx;
                    } else {
                        freed += live.remove(&registers.rdi).unwrap_or_else(|| panic!("{donor}: a block of nobody"));
                    }
                }
                // Signals of its own go on to it.
                WaitStatus::Stopped(_, other) => signal = Some(other).filter(|other| *other != Signal::SIGSTOP),
                WaitStatus::Exited(_, code) => {
                    assert_eq!(code, 0, "{donor}");
                    break;
                }
                other => panic!("{donor}: {other:?}"),
            }
        }
        drop(child.wait());
        let kept: u64 = live.values().sum();
        assert!(kept.abs_diff(76_000_000) < 76_000_000 / 5, "{donor}: {kept} bytes are live, {weighted} allocated");
        assert!(freed > 60_000_000, "{donor}: {freed}");
    }
}

/// In each kind of grafted file: every byte of the donor's notes, behind the program's own, counts for `verify`.
fn changed_notes_on_probes_are_found() {
    let bench = Bench::new();
    let loader = fixtures::musl_loader(WAY.host.arch());
    let program = bench.path("stock");
    let libc = bench.libc(WAY.host, Donors::STOCK, &[]);
    WAY.link(&bench, &libc, &[object(&bench, WAY, "sites")], &[], &program).unwrap_or_else(|error| panic!("{error}"));
    let graft = |stock: &Path, name: &str| (stock.to_owned(), grafted(&bench, stock, name));
    let merged = merged(&bench, &[]);
    let glibc = (bench.path("sites for glibc"), merged);
    for (stock, path) in [graft(&program, "linked"), graft(&loader, "loader.so"), glibc] {
        let (stock, graft) = (fs::read(stock).expect("stock"), fs::read(&path).expect("a graft"));
        let file = object::File::parse(graft.as_slice()).expect("an ELF file");
        let notes = file.section_by_name(".note.stapsdt").and_then(|section| section.file_range()).expect("notes");
        let file = object::File::parse(stock.as_slice()).expect("an ELF file");
        let own = file.section_by_name(".note.stapsdt").map_or(0, |section| section.size());
        let problems = |bytes: &[u8]| {
            let examined = hosts::examine(&path, None, bytes, Some(&stock)).expect("an ELF file");
            let wrong = examined.checks.into_iter().filter(|check| !check.ok).map(|check| check.detail);
            wrong.collect::<Vec<_>>().join("\n")
        };
        assert_eq!(problems(&graft), "", "{}", path.display());
        let (start, end) = ((notes.0 + own) as usize, (notes.0 + notes.1) as usize);
        assert!(start < end, "{}", path.display());
        for at in (start..end).step_by(9) {
            let mut changed = graft.clone();
            changed[at] ^= 1;
            let found = problems(&changed);
            assert!(found.contains("the notes on the donor's probes"), "{} at {at:#x}: {found}", path.display());
        }
    }
}

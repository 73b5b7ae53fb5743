//! Every conformance program with every donor. The default tier runs them shortened. The slow tier runs the whole
//! matrix of linkers, kinds of programs and architectures, and saves the result of each run for the table in the docs.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use casebook::bench::{Bench, Donors, Host};
use casebook::link::{LinkSetup, Linker, Mode};
use casebook::record::{self, Cell, Length, Run};
use conformance::Program;
use fixtures::Arch;
use fixtures::trials::in_group;
use libtest_mimic::{Failed, Trial};

/// The part of a program's work that is done, in percent. Each program runs in full once. The linker and the kind of
/// program change addresses and orders, whose effects also show with less work.
const SHORT: u32 = 2;
const WHOLE: u32 = 100;
const PART: u32 = 15;
const EMULATED: u32 = 2;

const NATIVE: Host = Host::Debian(Arch::X86_64);

/// Programs that take minutes, run once for each donor: the program, the variable that makes it longer, and its value.
const LONG: [(&str, &str, &str); 2] =
    [("pipeline", "ALLOGRAFT_PIPELINE_SECONDS", "60"), ("short_threads", "ALLOGRAFT_THREADS", "100000")];

/// The donors that map much address space at their start, according to their pages.
const RESERVE: [&str; 5] = ["hardened", "hardened-light", "mimalloc-secure", "scudo", "snmalloc-checks"];

/// The programs that allocate much address space, or limit it.
const SPACIOUS: [&str; 6] = ["footprint", "limits", "large", "threads", "map_limit", "no_memory"];

/// The donors that map much address space on 32-bit.
const RESERVE_ON_32_BIT: [&str; 1] = ["mimalloc3"];

/// The greatest depth in bytes that calls of these donors may reach on this architecture: a thread may have a stack of
/// `PTHREAD_STACK_MIN`, 2 KiB. Others are measured.
const STACK: (Arch, &str) = (Arch::X86_64, "1536");
const SHALLOW: [&str; 3] = ["snmalloc", "mimalloc", "mimalloc3"];

/// Returns the tests, and the slow tier's cells of the table in the docs.
pub(crate) fn trials(bench: &Arc<Bench>) -> (Vec<Trial>, Vec<Cell>) {
    let mut trials = Vec::new();
    let mut cells = Vec::new();
    for program in conformance::programs() {
        for donor in donors::all() {
            let plain = LinkSetup { host: NATIVE, linker: Linker::Gnu, mode: Mode::Static };
            let short = Cell::new(program, donor.name, plain, Length::Percent(SHORT));
            trials.push(trial(bench, program, plain, short, false));
            let mut due: Vec<(LinkSetup, Cell)> = matrix(donor)
                .into_iter()
                .map(|(way, length)| (way, Cell::new(program, donor.name, way, length)))
                .collect();
            let long = LONG.into_iter().filter(|(name, ..)| *name == program.name);
            due.extend(long.map(|(_, variable, value)| {
                (plain, Cell::new(program, donor.name, plain, Length::Longer { variable, value }))
            }));
            due.extend(large_pages(program, donor));
            due.extend(few_addresses(program, donor));
            due.extend(many_threads_emulated(program, donor));
            for (way, cell) in due {
                cells.push(cell.clone());
                trials.push(trial(bench, program, way, cell, true));
            }
        }
    }
    (trials, cells)
}

/// Returns the slow tier's ways for a donor, and the part of the work that is done in each.
fn matrix(donor: &donors::Donor) -> Vec<(LinkSetup, Length)> {
    let modes = [Mode::Static, Mode::StaticPie];
    let mut ways = Vec::new();
    for linker in [Linker::Gnu, Linker::Lld] {
        for mode in modes {
            let percent = if linker == Linker::Gnu && mode == Mode::Static { WHOLE } else { PART };
            ways.push((LinkSetup { host: NATIVE, linker, mode }, Length::Percent(percent)));
        }
    }
    ways.push((
        LinkSetup { host: Host::Zig(Arch::X86_64), linker: Linker::Lld, mode: Mode::Static },
        Length::Percent(PART),
    ));
    for (host, mode) in [
        (Host::Debian(Arch::Aarch64), Mode::Static),
        (Host::Debian(Arch::Aarch64), Mode::StaticPie),
        (Host::Zig(Arch::Riscv64), Mode::Static),
        (Host::Debian(Arch::I686), Mode::Static),
        (Host::Debian(Arch::I686), Mode::StaticPie),
        (Host::Debian(Arch::Arm), Mode::Static),
        (Host::Debian(Arch::Arm), Mode::StaticPie),
    ] {
        ways.push((LinkSetup { host, linker: Linker::Lld, mode }, Length::Percent(EMULATED)));
    }
    ways.retain(|(way, _)| Donors::both(donor.name).exist_for(way.host.arch()));
    ways
}

/// Returns cells for pages larger than 4 KiB, which the kernels of some aarch64 systems have. An emulator imitates
/// them.
fn large_pages(program: &'static Program, donor: &donors::Donor) -> Vec<(LinkSetup, Cell)> {
    let way = LinkSetup { host: Host::Debian(Arch::Aarch64), linker: Linker::Lld, mode: Mode::Static };
    if fixtures::runs_here(Arch::Aarch64) || !Donors::both(donor.name).exist_for(Arch::Aarch64) {
        return Vec::new();
    }
    let cell = |kib| (way, Cell::new(program, donor.name, way, Length::Percent(EMULATED)).with_pages(kib));
    [16, 64].map(cell).into()
}

/// Returns cells with the least address space that kernels give to programs: 38 bits on riscv64 with Sv39
/// (Documentation/arch/riscv/vm-layout.rst), 39 bits on aarch64 (Documentation/arch/arm64/memory.rst). An emulator
/// imitates them.
fn few_addresses(program: &'static Program, donor: &donors::Donor) -> Vec<(LinkSetup, Cell)> {
    let ways = [(Host::Zig(Arch::Riscv64), 38), (Host::Debian(Arch::Aarch64), 39)];
    let is_due = |host: Host| {
        let exists = Donors::both(donor.name).exist_for(host.arch()) && !fixtures::runs_here(host.arch());
        // Donors that reserve much cannot keep the bound.
        let is_bound = program.name != "footprint" || !RESERVE.contains(&donor.name);
        exists && is_bound && SPACIOUS.contains(&program.name)
    };
    let cell = |(host, bits): (Host, u32)| {
        let way = LinkSetup { host, linker: Linker::Lld, mode: Mode::Static };
        (way, Cell::new(program, donor.name, way, Length::Percent(EMULATED)).with_address_bits(bits))
    };
    ways.into_iter().filter(|(host, _)| is_due(*host)).map(cell).collect()
}

/// Returns a cell with tens of thousands of threads on riscv64. rpmalloc has no instruction there for the number of a
/// thread, and uses the thread's heap instead. It once changed its list of free heaps without the lock when threads
/// ended.
fn many_threads_emulated(program: &'static Program, donor: &donors::Donor) -> Option<(LinkSetup, Cell)> {
    let way = LinkSetup { host: Host::Zig(Arch::Riscv64), linker: Linker::Lld, mode: Mode::Static };
    let length = Length::Longer { variable: "ALLOGRAFT_THREADS", value: "50000" };
    let is_due = program.name == "short_threads" && Donors::both(donor.name).exist_for(Arch::Riscv64);
    is_due.then(|| (way, Cell::new(program, donor.name, way, length)))
}

fn trial(bench: &Arc<Bench>, program: &'static Program, way: LinkSetup, cell: Cell, slow: bool) -> Trial {
    let bench = Arc::clone(bench);
    let name = format!("conformance/{}", cell.name());
    let group = way.host.group().or(slow.then_some("minutes"));
    let run = move || {
        let began = Instant::now();
        let outcome = check(&bench, program, way, &cell);
        if slow {
            let failure = outcome.as_ref().err().map(String::as_str);
            let notes = outcome.as_deref().unwrap_or_default();
            let run = Run { cell: &cell, failure, notes, seconds: began.elapsed().as_secs_f64() };
            record::keep(&fixtures::conformance_results(), &run).map_err(|error| format!("cannot keep: {error}"))?;
        }
        outcome.map(drop).map_err(Failed::from)
    };
    in_group(Trial::test(name, run), group)
}

/// Links the program with the graft, runs it, and returns its notes. A program may note what the machine prevents, such
/// as spawning itself under an emulator.
fn check(bench: &Bench, program: &Program, way: LinkSetup, cell: &Cell) -> Result<Vec<String>, String> {
    let arch = Arch::from_name(cell.arch).ok_or("an architecture without programs")?;
    let object = bench.file(&format!("{} {}.o", program.name, arch.name()), program.object(arch));
    let libc = bench.libc(way.host, Donors::both(cell.donor), &[]);
    // Each program makes files, so it has a folder of its own. lld takes a percent sign for a placeholder, so the name
    // has none.
    let folder: PathBuf = bench.path(&cell.name().replace('/', " ").replace('%', ""));
    std::fs::create_dir(&folder).map_err(|error| error.to_string())?;
    let linked = folder.join(program.name);
    way.link(bench, &libc, &[object], &[], &linked)?;

    let mut environment = cell.environment();
    if SHALLOW.contains(&cell.donor) && arch == STACK.0 {
        environment.push(("ALLOGRAFT_STACK".into(), STACK.1.into()));
    }
    let is_emulated = !fixtures::runs_here(way.host.arch());
    if is_emulated {
        environment.push(("ALLOGRAFT_HANG_SECONDS".into(), "120".into()));
    }
    let output = way.run(&linked, &environment)?;
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    // qemu reports the signal by which a child of the program dies on purpose.
    let emulators = |line: &&str| is_emulated && line.starts_with("qemu: uncaught target signal ");
    let said = stderr.lines().filter(|line| !emulators(line));
    let notes: Option<Vec<String>> = said.map(|line| line.strip_prefix("note: ").map(str::to_owned)).collect();
    let reserves = |note: &String| note.starts_with("the allocator maps");
    let may_reserve = RESERVE.contains(&cell.donor)
        || matches!(arch, Arch::I686 | Arch::Arm) && RESERVE_ON_32_BIT.contains(&cell.donor);
    let is_unexpected = |notes: &[String]| notes.iter().any(reserves) && !may_reserve;
    match notes {
        Some(notes) if is_unexpected(&notes) => Err(format!("{notes:?}: no page says so")),
        Some(notes) if output.status.success() && stdout == format!("ok {}\n", program.name) => Ok(notes),
        _ => Err(format!("{}, stdout {stdout:?}, stderr {stderr:?}", output.status)),
    }
}

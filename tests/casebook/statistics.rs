//! The reports of a grafted program: at its end, at a signal, every few seconds; and the cases without one.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Output, Stdio};
use std::time::{Duration, Instant};

use casebook::bench::{Bench, Donors, Host};
use casebook::link::{LinkSetup, Linker, Mode};
use fixtures::Arch;
use fixtures::lab::Running;
use fixtures::trials::room;
use hosts::Request;
use libtest_mimic::Trial;
use serde_json::Value;

pub(crate) const WAY: LinkSetup =
    LinkSetup { host: Host::Debian(Arch::X86_64), linker: Linker::Lld, mode: Mode::Static };

/// This does not use libtest, which swallows the notes of a test that passes.
pub(crate) fn trials() -> Vec<Trial> {
    room(
        "statistics",
        &[
            ("figures_are_those_of_the_program", figures_are_those_of_the_program),
            ("a_leak_is_told_from_retention", a_leak_is_told_from_retention),
            ("openmetrics_is_well_formed", openmetrics_is_well_formed),
            ("a_report_replaces_its_file_as_a_whole", a_report_replaces_its_file_as_a_whole),
            ("a_signal_and_a_period_make_a_program_report", a_signal_and_a_period_make_a_program_report),
            ("an_executable_that_was_linked_already_reports", an_executable_that_was_linked_already_reports),
            ("text_and_json_are_chosen_by_the_variable", text_and_json_are_chosen_by_the_variable),
            ("every_end_of_a_program_is_clean", every_end_of_a_program_is_clean),
            ("programs_with_raised_privileges_read_no_variable", programs_with_raised_privileges_read_no_variable),
        ],
    )
}

/// Compiles a program of `tests/statistics`.
pub(crate) fn object(bench: &Bench, way: LinkSetup, name: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("statistics").join(name).with_extension("c");
    let flags = ["-O2", "-pthread", "-fno-builtin", "-fno-sanitize=all", "-w"].map(Into::into);
    bench.object(way.host.arch(), &source, &flags)
}

/// Builds a program of `tests/statistics` with an allocator and its options, in an empty folder of its own.
pub(crate) fn program(
    bench: &Bench,
    way: LinkSetup,
    name: &str,
    donor: &'static str,
    settings: &[(String, i64)],
) -> PathBuf {
    let folder = bench.path(&format!("{name} {donor} {settings:?}"));
    fs::create_dir(&folder).expect("a folder");
    let program = folder.join(name);
    let libc = bench.libc(way.host, Donors::both(donor), settings);
    way.link(bench, &libc, &[object(bench, way, name)], &[], &program).unwrap_or_else(|error| panic!("{error}"));
    program
}

/// Builds it with every allocator.
pub(crate) fn programs(bench: &Bench, name: &str) -> Vec<(&'static str, PathBuf)> {
    donors::all().iter().map(|donor| (donor.name, program(bench, WAY, name, donor.name, &[]))).collect()
}

pub(crate) fn run(program: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new("timeout");
    command.args(["-s", "KILL", "600"]).arg(program).args(arguments);
    command.current_dir(program.parent().expect("a folder")).env_clear();
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.envs(environment.iter().copied()).output().expect("timeout starts")
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

fn report(folder: &Path, process: &str) -> Value {
    json(&folder.join(format!("stats %{process}.json")))
}

fn json(path: &Path) -> Value {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Checks that the classes add up to the totals.
fn check_sums(report: &Value) {
    let classes = report["size_classes"].as_array().expect("classes");
    for field in ["allocated_blocks", "allocated_bytes", "live_blocks", "live_bytes"] {
        let sum: u64 = classes.iter().map(|class| number(&class[field])).sum();
        assert_eq!(sum, number(&report[field]), "{field} of {report:#}");
    }
    let bounds: Vec<u64> = classes.iter().map(|class| number(&class["up_to"])).collect();
    assert!(bounds.is_sorted() && bounds.iter().all(|bound| bound.is_power_of_two()), "{bounds:?}");
}

fn figures_are_those_of_the_program() {
    let bench = Bench::new();
    for (donor, program) in programs(&bench, "figures") {
        let output = run(&program, &[], &[("ALLOGRAFT_STATS", "json:stats %%%p.json")]);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && output.stderr.is_empty(), "{donor}: {output:?}");
        let (parent, child) = said.trim().split_once(' ').expect("two numbers");
        let folder = program.parent().expect("a folder");
        let (of_parent, of_child) = (report(folder, parent), report(folder, child));

        let calls: BTreeMap<&str, u64> = [
            ("malloc", 1010),
            ("calloc", 1),
            ("realloc", 2),
            ("free", 1005),
            ("aligned_alloc", 1),
            ("memalign", 1),
            ("posix_memalign", 2),
            ("valloc", 1),
            ("pvalloc", 1),
            ("reallocarray", 1),
            ("malloc_usable_size", 1),
            ("malloc_trim", 1),
            ("mallopt", 1),
        ]
        .into();
        let counted: BTreeMap<&str, u64> = of_parent["calls"]
            .as_object()
            .expect("calls")
            .iter()
            .map(|(name, count)| (name.as_str(), number(count)))
            .collect();
        assert_eq!(counted, calls, "{donor}");
        let field = |name: &str| number(&of_parent[name]);
        // Each realloc that succeeds counts as an allocation, and one of a block also as the end of the old block.
        assert_eq!(field("allocated_blocks"), 1010 + 1 + 2 + 1 + 1 + 1 + 1 + 1 + 1, "{donor}: {of_parent:#}");
        assert_eq!(field("freed_blocks"), 1004 + 1, "{donor}: {of_parent:#}");
        assert_eq!(field("live_blocks"), field("allocated_blocks") - field("freed_blocks"));
        assert_eq!((field("threads"), field("forks"), field("schema_version")), (2, 1, 2), "{donor}");
        assert_eq!(of_parent["forked"], false);
        assert_eq!((of_parent["donor"].as_str(), of_parent["process"].to_string().as_str()), (Some(donor), parent));
        assert!(field("live_bytes") >= 600_000 && field("peak_bytes") >= 1_000_000, "{donor}: {of_parent:#}");
        assert!(field("peak_bytes") >= field("live_bytes") && field("peak_bytes") < field("allocated_bytes"));
        assert!(field("reserved_bytes") >= field("live_bytes"), "{donor}: {of_parent:#}");
        assert!(field("reserved_peak_bytes") >= field("reserved_bytes"));
        check_memory(&of_parent, donor);
        check_sums(&of_parent);

        // These are the child's own calls, on top of the blocks that it inherited.
        let field = |name: &str| number(&of_child[name]);
        assert_eq!(of_child["forked"], true);
        assert_eq!(of_child["process"].to_string(), child);
        assert_eq!((number(&of_child["calls"]["malloc"]), number(&of_child["calls"]["free"])), (5, 1), "{donor}");
        assert_eq!((field("allocated_blocks"), field("freed_blocks")), (5, 1), "{donor}: {of_child:#}");
        assert_eq!((field("threads"), field("forks")), (1, 0), "{donor}: {of_child:#}");
        assert_eq!(field("live_blocks"), number(&of_parent["live_blocks"]) + 5 - 1, "{donor}: {of_child:#}");
        check_sums(&of_child);
        check_memory(&of_child, donor);
    }
}

/// Checks the rules for every report: resident memory is reserved, and retained memory is the rest that is not live.
fn check_memory(report: &Value, donor: &str) {
    let field = |name: &str| number(&report[name]);
    assert!(field("resident_bytes") <= field("reserved_bytes"), "{donor}: {report:#}");
    assert_eq!(field("retained_bytes"), field("resident_bytes").saturating_sub(field("live_bytes")), "{donor}");
}

/// 64 MiB that a program keeps are live; after it has freed them, they are retained or returned. The kernel's figure
/// for resident memory agrees. One allocator retains all of it.
fn a_leak_is_told_from_retention() {
    const MIB: u64 = 1 << 20;
    const RETAINING: &str = "mimalloc without a bound";
    let bench = Bench::new();
    let unbounded = program(&bench, WAY, "memory", "mimalloc", &[("purge_debt".to_owned(), -1)]);
    for (donor, program) in programs(&bench, "memory").into_iter().chain([(RETAINING, unbounded)]) {
        let path = program.with_file_name("memory.json");
        for how in ["kept", "freed", "every-other", "untouched", "grown"] {
            let output = run(&program, &[how], &[("ALLOGRAFT_STATS", "json:memory.json")]);
            assert!(output.status.success() && output.stderr.is_empty(), "{donor}, {how}: {output:?}");
            let report = json(&path);
            check_memory(&report, donor);
            let field = |name: &str| number(&report[name]);
            let (live, resident, retained) = (field("live_bytes"), field("resident_bytes"), field("retained_bytes"));
            // The rest of the process: its code and data, its stack, and the donor's own data.
            let of_process: u64 = String::from_utf8_lossy(&output.stdout).trim().parse().expect("a number");
            let told = format!("{donor}, {how}: {of_process} of {report:#}");
            assert!(resident <= of_process + MIB && of_process <= resident + 4 * MIB, "{told}");
            match how {
                "kept" => assert!(live >= 64 * MIB && retained < 16 * MIB, "{told}"),
                "freed" => {
                    assert!(live < MIB && retained + field("returned_bytes") >= 60 * MIB, "{told}");
                    assert!(donor != RETAINING || retained >= 60 * MIB, "{told}");
                }
                "every-other" => {
                    assert!((32 * MIB..34 * MIB).contains(&live), "{told}");
                    assert!(retained + field("returned_bytes") >= 24 * MIB, "{told}");
                }
                "untouched" => assert!(live >= 64 * MIB && resident < 16 * MIB && retained == 0, "{told}"),
                _ => assert!(live >= 64 * MIB, "{told}"),
            }
        }
    }
}

/// A sample of OpenMetrics: its name, its labels and its value.
type Sample = (String, BTreeMap<String, String>, u64);

/// Reads the text strictly: families in one piece, each with type, unit and help in this order before its samples;
/// names that fit type and unit; no sample twice; the end.
fn openmetrics(text: &str) -> Vec<Sample> {
    let body = text.strip_suffix("# EOF\n").unwrap_or_else(|| panic!("no end: {text}"));
    let (mut samples, mut families): (Vec<Sample>, Vec<String>) = (Vec::new(), Vec::new());
    let (mut kind, mut unit, mut helped) = ("", "", false);
    for line in body.lines() {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        let family = families.last().cloned().unwrap_or_default();
        match words.as_slice() {
            ["#", "TYPE", name, type_name @ ("counter" | "gauge")] => {
                assert!(!families.contains(&(*name).to_owned()), "twice: {line}");
                families.push((*name).to_owned());
                (kind, unit, helped) = (type_name, "", false);
            }
            ["#", "UNIT", name, name_of_unit] => {
                assert!(*name == family && !helped && name.ends_with(&format!("_{name_of_unit}")), "{line}");
                unit = name_of_unit;
            }
            ["#", "HELP", name, help] => {
                assert!(*name == family && !help.is_empty() && !helped, "{line}");
                helped = true;
            }
            _ => {
                let (head, value) = line.rsplit_once("} ").unwrap_or_else(|| panic!("no sample: {line}"));
                let (name, labels) = head.split_once('{').unwrap_or_else(|| panic!("no labels: {line}"));
                assert_eq!(name, if kind == "counter" { family.clone() + "_total" } else { family.clone() });
                assert!(helped && (unit == "bytes") == family.ends_with("_bytes"), "{line}");
                let labels: BTreeMap<String, String> = labels
                    .split(',')
                    .map(|label| {
                        let (name, value) = label.split_once("=\"").unwrap_or_else(|| panic!("no label: {line}"));
                        (name.to_owned(), value.strip_suffix('"').expect("a quoted value").to_owned())
                    })
                    .collect();
                assert!(!samples.iter().any(|(other, its, _)| other == name && *its == labels), "twice: {line}");
                samples.push((name.to_owned(), labels, value.parse().unwrap_or_else(|_| panic!("no number: {line}"))));
            }
        }
    }
    samples
}

fn openmetrics_is_well_formed() {
    let bench = Bench::new();
    for (donor, program) in programs(&bench, "figures") {
        let folder = program.parent().expect("a folder");
        let output = run(&program, &[], &[("ALLOGRAFT_STATS", "openmetrics:%p.prom")]);
        assert!(output.status.success() && output.stderr.is_empty(), "{donor}: {output:?}");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let (parent, _) = said.trim().split_once(' ').expect("two numbers");
        let samples = openmetrics(&fs::read_to_string(folder.join(format!("{parent}.prom"))).expect("a report"));
        for (name, labels, _) in &samples {
            assert_eq!((labels["donor"].as_str(), labels["process"].as_str()), (donor, parent), "{name}");
            assert!(labels.contains_key("version"), "{name}");
        }
        let values = |name: &str| -> Vec<u64> {
            samples.iter().filter(|(its, ..)| its == name).map(|&(.., value)| value).collect()
        };
        let value = |name: &str| match values(name).as_slice() {
            [value] => *value,
            others => panic!("{donor}: {name}: {others:?}"),
        };
        assert_eq!((value("allograft_threads_total"), value("allograft_forks_total")), (2, 1), "{donor}");
        assert!(value("allograft_resident_bytes") > 0, "{donor}");
        for sum in ["allocated_blocks_total", "allocated_bytes_total", "live_blocks", "live_bytes"] {
            let classes: u64 = values(&format!("allograft_class_{sum}")).iter().sum();
            assert_eq!(classes, value(&format!("allograft_{sum}")), "{donor}: {sum}");
        }
        let mallocs = samples.iter().find(|(.., labels, _)| labels.get("function").is_some_and(|it| it == "malloc"));
        assert_eq!(mallocs.map(|&(.., calls)| calls), Some(1010), "{donor}");

        // Without an id in the path, the labels have none, either.
        run(&program, &[], &[("ALLOGRAFT_STATS", "openmetrics:100%%p.prom")]);
        let text = fs::read_to_string(folder.join("100%p.prom")).expect("a report");
        assert!(openmetrics(&text).iter().all(|(_, labels, _)| !labels.contains_key("process")), "{donor}: {text}");
    }
}

/// A reader with the old file open keeps it. A file that is not regular is written in place, and no other file stays.
fn a_report_replaces_its_file_as_a_whole() {
    let bench = Bench::new();
    for (donor, program) in programs(&bench, "raised") {
        let folder = program.parent().expect("a folder");
        let path = folder.join("stats.json");
        fs::write(&path, "old").expect("a file");
        let before = fs::metadata(&path).expect("the file").ino();
        let mut old = fs::File::open(&path).expect("the file");
        run(&program, &[], &[("ALLOGRAFT_STATS", "json:stats.json")]);
        assert_eq!(std::io::read_to_string(&mut old).expect("the old file"), "old", "{donor}");
        assert_ne!(fs::metadata(&path).expect("the file").ino(), before, "{donor}");
        assert_eq!(json(&path)["donor"], donor);

        let said = run(&program, &[], &[("ALLOGRAFT_STATS", "json:/dev/null")]);
        assert!(said.status.success() && said.stderr.is_empty(), "{donor}: {said:?}");
        // Digits behind the last colon are seconds. So a name that ends in a colon and digits needs a number behind it.
        run(&program, &[], &[("ALLOGRAFT_STATS", "json:port:80:0")]);
        assert_eq!(json(&folder.join("port:80"))["donor"], donor);
        let names = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").file_name());
        let mut names: Vec<String> = names.map(|name| name.to_string_lossy().into_owned()).collect();
        names.sort();
        assert_eq!(names, ["port:80", "raised", "stats.json"], "{donor}");
    }
}

/// A running `service`.
struct Service {
    donor: &'static str,
    child: Running,
    input: Option<ChildStdin>,
    output: BufReader<std::process::ChildStdout>,
    path: PathBuf,
}

impl Service {
    /// Starts `service`, and waits until it is ready. Its reports are JSON in a file named after `how`.
    fn start(donor: &'static str, program: &Path, how: &str, end: &str, period: &str) -> Service {
        let path = program.with_file_name(format!("{how} {end}.json"));
        let variable = format!("json:{}{period}", path.display());
        let mut command = Command::new(program);
        command.args([how, end]).env_clear().env("ALLOGRAFT_STATS", variable).env("ALLOGRAFT_STATS_SIGNAL", "USR2");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut service = Service { donor, child: Running(child), input, output, path };
        service.expect("ready\n");
        service
    }

    fn expect(&mut self, line: &str) {
        let mut said = String::new();
        self.output.read_line(&mut said).expect("text");
        assert_eq!(said, line, "{}", self.donor);
    }

    fn signal(&self) {
        let done = Command::new("kill").args(["-USR2", &self.child.0.id().to_string()]).status();
        assert!(done.is_ok_and(|status| status.success()), "{}: kill", self.donor);
    }

    /// Waits for a report, returns it and removes it.
    fn report(&self) -> Value {
        let since = Instant::now();
        while !self.path.exists() {
            assert!(since.elapsed() < Duration::from_secs(60), "{}: no report {}", self.donor, self.path.display());
            std::thread::sleep(Duration::from_millis(20));
        }
        let report = json(&self.path);
        fs::remove_file(&self.path).expect("the report");
        assert_eq!((&report["donor"], number(&report["process"])), (&self.donor.into(), u64::from(self.child.0.id())));
        check_memory(&report, self.donor);
        assert!(number(&report["live_bytes"]) >= 1_000_000, "{}: {report:#}", self.donor);
        report
    }

    /// Lets the program end, and returns whether it reported then.
    fn end(mut self) -> bool {
        drop(self.input.take());
        let status = self.child.0.wait().expect("an end");
        assert!(status.success(), "{}: {status}", self.donor);
        self.path.exists()
    }
}

/// Checks the reports of `service` while it runs.
fn check_service(programs: &[(&'static str, PathBuf)]) {
    // They all wait for their seconds at the same time.
    let start = |(donor, program): &(&'static str, PathBuf)| Service::start(donor, program, "busy", "_exit", ":1");
    let busy: Vec<Service> = programs.iter().map(start).collect();
    for (donor, program) in programs {
        let idle = Service::start(donor, program, "idle", "_exit", "");
        let calls = [(); 2].map(|()| {
            idle.signal();
            number(&idle.report()["calls"]["malloc"])
        });
        assert_eq!(calls, [1, 1], "{donor}");
        assert!(!idle.end(), "{donor}: _exit runs no destructors");

        let mut own = Service::start(donor, program, "own", "_exit", "");
        own.signal();
        own.expect("mine\n");
        assert!(!own.end(), "{donor}: the program's own handler has taken the place of ours");
    }
    for running in busy {
        let calls = [(); 2].map(|()| number(&running.report()["calls"]["malloc"]));
        assert!(calls[0] < calls[1], "{}: {calls:?}", running.donor);
        running.end();
    }
}

fn a_signal_and_a_period_make_a_program_report() {
    let bench = Bench::new();
    let programs = programs(&bench, "service");
    check_service(&programs);
    for (donor, program) in &programs {
        for end in ["return", "exit"] {
            assert!(Service::start(donor, program, "idle", end, ":1000").end(), "{donor}: {end}");
        }
        for unknown in ["KILL", "SEGV", "11", "33", "65", "USR", "USR22", "SIG", "-1"] {
            let variables = [("ALLOGRAFT_STATS", "json:-"), ("ALLOGRAFT_STATS_SIGNAL", unknown)];
            let output = run(program, &[], &variables);
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(said.contains("ALLOGRAFT_STATS_SIGNAL names no signal"), "{donor}, {unknown}: {said}");
        }
    }
}

/// These report at their end, at the signal and every few seconds, like programs that were linked with the donor.
fn an_executable_that_was_linked_already_reports() {
    let bench = Bench::new();
    let libc = bench.libc(WAY.host, Donors::STOCK, &[]);
    let (stock, object) = (bench.path("stock"), object(&bench, WAY, "service"));
    WAY.link(&bench, &libc, &[object], &[], &stock).unwrap_or_else(|error| panic!("{error}"));
    let mut programs = Vec::new();
    for donor in donors::all().iter().filter(|donor| donor.has_blob(WAY.host.arch())) {
        let folder = bench.path(donor.name);
        fs::create_dir(&folder).expect("a folder");
        let program = folder.join("service");
        let request = Request { out: Some(program.clone()), ..Request::new(donor) };
        hosts::graft(&stock, &request).unwrap_or_else(|error| panic!("{}: {error}", donor.name));
        programs.push((donor.name, program));
    }
    assert!(!programs.is_empty());
    check_service(&programs);
    for (donor, program) in &programs {
        for end in ["return", "exit"] {
            assert!(Service::start(donor, program, "idle", end, "").end(), "{donor}: {end}");
        }
        let output = run(program, &[], &[("ALLOGRAFT_STATS", "openmetrics:-")]);
        assert!(openmetrics(&String::from_utf8_lossy(&output.stderr)).len() > 20, "{donor}: {output:?}");
    }
}

fn text_and_json_are_chosen_by_the_variable() {
    let bench = Bench::new();
    for (donor, program) in programs(&bench, "figures") {
        let folder = program.parent().expect("a folder");
        let said = |value: &str| {
            let output = run(&program, &[], &[("ALLOGRAFT_STATS", value)]);
            assert!(output.status.success(), "{donor}, {value}: {output:?}");
            String::from_utf8_lossy(&output.stderr).into_owned()
        };
        for off in ["", "0"] {
            assert_eq!(said(off), "", "{donor}");
        }
        let text = said("1");
        for part in ["allograft: statistics of ", "calls     1010 of malloc\n", "forks     1\n", ", since its fork\n"] {
            assert!(text.contains(part), "{donor}: {text}");
        }
        let json = said("json:-");
        assert_eq!(json.matches("\"schema_version\": 2").count(), 2, "{donor}: {json}");
        // The folder's owner may have put a link there, and a write through it could harm the link's target.
        let victim = folder.join("victim");
        fs::write(&victim, "kept").expect("a file");
        std::os::unix::fs::symlink(&victim, folder.join("link")).expect("a link");
        for unusable in ["json:link", "json:no such folder/file"] {
            assert!(said(unusable).contains("the statistics' file cannot be written"), "{donor}, {unusable}");
        }
        assert_eq!(fs::read_to_string(&victim).expect("the file"), "kept");
        for empty in ["json:", "openmetrics:"] {
            assert!(said(empty).contains("needs a path"), "{donor}");
        }
    }
}

/// Each way to end neither hangs nor crashes, and prints a report only if destructors run.
fn every_end_of_a_program_is_clean() {
    let bench = Bench::new();
    for (donor, program) in programs(&bench, "ends") {
        let ends = [("exit", 0, true), ("thread", 0, true), ("_exit", 0, false), ("quick_exit", 0, false)];
        for (how, signal, reports) in ends.into_iter().chain([("abort", 6, false), ("kill", 9, false)]) {
            let output = run(&program, &[how], &[("ALLOGRAFT_STATS", "1")]);
            let text = String::from_utf8_lossy(&output.stderr);
            let status = output.status;
            let ended = if signal == 0 { status.success() } else { status.signal() == Some(signal) };
            assert!(ended, "{donor}, {how}: {status}, {text}");
            assert_eq!(text.contains("allograft: statistics of "), reports, "{donor}, {how}: {text}");
        }
    }
}

/// Makes a program set-user-ID and set-group-ID, with a user and a group other than this process's, if possible.
fn raise(program: &Path) -> Result<(), String> {
    let owner = fs::metadata(program).map_err(|error| error.to_string())?;
    let others: Vec<u32> = match owner.uid() {
        0 => vec![65534],
        // Without root, this is a different group of the user.
        _ => {
            let groups = Command::new("id").arg("-G").output().map_err(|error| error.to_string())?;
            let groups = String::from_utf8_lossy(&groups.stdout).into_owned();
            groups.split_whitespace().filter_map(|group| group.parse().ok()).filter(|&it| it != owner.gid()).collect()
        }
    };
    let other = *others.first().ok_or("this user is in one group only")?;
    let (user, group, mode) = if owner.uid() == 0 { (Some(other), None, 0o4755) } else { (None, Some(other), 0o2755) };
    std::os::unix::fs::chown(program, user, group).map_err(|error| format!("chown: {error}"))?;
    fs::set_permissions(program, fs::Permissions::from_mode(mode)).map_err(|error| format!("chmod: {error}"))
}

/// A program that the kernel starts with `AT_SECURE` reads no variable: neither ours nor a donor's own.
fn programs_with_raised_privileges_read_no_variable() {
    let bench = Bench::new();
    for (donor, program) in programs(&bench, "raised") {
        let folder = program.parent().expect("a folder").to_owned();
        let variables = [
            ("ALLOGRAFT_STATS", "json:written.json"),
            ("ALLOGRAFT_VERBOSE", "1"),
            ("MIMALLOC_VERBOSE", "3"),
            ("MIMALLOC_SHOW_STATS", "1"),
            ("MALLOC_CONF", "stats_print:true"),
            ("SCUDO_OPTIONS", "help=1"),
        ];
        // With the privileges of the user who runs it, the program obeys them.
        let plain = run(&program, &[], &variables);
        assert_eq!(String::from_utf8_lossy(&plain.stdout), "AT_SECURE 0\n", "{donor}");
        assert!(String::from_utf8_lossy(&plain.stderr).contains("serves malloc in this program"), "{donor}: {plain:?}");
        fs::remove_file(folder.join("written.json")).expect("the statistics");

        if let Err(reason) = raise(&program) {
            eprintln!("note: {donor}: not tried with AT_SECURE, no program can be raised here: {reason}");
            return;
        }
        // Any user may run it, so the folder has to be open: that user would make the file.
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).expect("an open folder");
        let raised = run(&program, &[], &variables);
        let said = String::from_utf8_lossy(&raised.stdout).into_owned();
        if said == "AT_SECURE 0\n" {
            eprintln!("note: {donor}: not tried with AT_SECURE, which the kernel did not set: nosuid or no_new_privs");
            return;
        }
        assert_eq!(said, "AT_SECURE 1\n", "{donor}: {raised:?}");
        assert!(raised.status.success() && raised.stderr.is_empty(), "{donor}: {raised:?}");
        assert!(!folder.join("written.json").exists(), "{donor}");
    }
}

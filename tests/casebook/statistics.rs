//! The report of a grafted program at its end, and the cases without one.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output};

use casebook::bench::{Bench, Donors, Host};
use casebook::link::{Linker, Mode, Way};
use fixtures::Arch;
use libtest_mimic::{Arguments, Trial};
use serde_json::Value;

const WAY: Way = Way { host: Host::Debian(Arch::X86_64), linker: Linker::Lld, mode: Mode::Static };

/// This does not use libtest, which swallows the notes of a test that passes.
fn main() -> ExitCode {
    let tests: [(&str, fn()); 4] = [
        ("figures_are_those_of_the_program", figures_are_those_of_the_program),
        ("text_and_json_are_chosen_by_the_variable", text_and_json_are_chosen_by_the_variable),
        ("every_end_of_a_program_is_clean", every_end_of_a_program_is_clean),
        ("programs_with_raised_privileges_read_no_variable", programs_with_raised_privileges_read_no_variable),
    ];
    let trials = tests.map(|(name, test)| {
        Trial::test(name, move || {
            test();
            Ok(())
        })
    });
    libtest_mimic::run(&Arguments::from_args(), trials.into()).exit_code()
}

/// Builds a program of `tests/statistics` with every allocator, each in an empty folder of its own.
fn programs(bench: &Bench, name: &str) -> Vec<(&'static str, PathBuf)> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("statistics").join(name).with_extension("c");
    let flags = ["-O2", "-pthread", "-fno-builtin", "-fno-sanitize=all", "-w"].map(Into::into);
    let object = bench.object(WAY.host.arch(), &source, &flags);
    let mut programs = Vec::new();
    for donor in donors::all() {
        let folder = bench.path(&format!("{name} {}", donor.name));
        fs::create_dir(&folder).expect("a folder");
        let program = folder.join(name);
        let libc = bench.libc(WAY.host, Donors::both(donor.name), &[]);
        WAY.link(bench, &libc, std::slice::from_ref(&object), &[], &program).unwrap_or_else(|error| panic!("{error}"));
        programs.push((donor.name, program));
    }
    programs
}

fn run(program: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Output {
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
    let path = folder.join(format!("stats %{process}.json"));
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
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
        assert_eq!((field("threads"), field("forks"), field("schema_version")), (2, 1, 1), "{donor}");
        assert_eq!(of_parent["forked"], false);
        assert_eq!((of_parent["donor"].as_str(), of_parent["process"].to_string().as_str()), (Some(donor), parent));
        assert!(field("live_bytes") >= 600_000 && field("peak_bytes") >= 1_000_000, "{donor}: {of_parent:#}");
        assert!(field("peak_bytes") >= field("live_bytes") && field("peak_bytes") < field("allocated_bytes"));
        assert!(field("mapped_bytes") >= field("live_bytes"), "{donor}: {of_parent:#}");
        assert!(field("mapped_peak_bytes") >= field("mapped_bytes"));
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
        assert_eq!(json.matches("\"schema_version\": 1").count(), 2, "{donor}: {json}");
        // The folder's owner may have put a link there, and a write through it could harm the link's target.
        let victim = folder.join("victim");
        fs::write(&victim, "kept").expect("a file");
        std::os::unix::fs::symlink(&victim, folder.join("link")).expect("a link");
        for unusable in ["json:link", "json:no such folder/file"] {
            assert!(said(unusable).contains("the statistics' file cannot be opened"), "{donor}, {unusable}");
        }
        assert_eq!(fs::read_to_string(&victim).expect("the file"), "kept");
        assert!(said("json:").contains("needs a path"), "{donor}");
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
        // Without root, this is another group of the user.
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
        // The one that runs it may be any user, who has to be let in; the file would be that one's to make.
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

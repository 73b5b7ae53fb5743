//! `allograft profile`: programs of known nature, processes that it attaches to, and what it refuses.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use fixtures::program::Build;
use serde_json::Value;

use crate::documents::fits;
use crate::lab::{Lab, Running, dynamic_with_musl, tool};

/// How a program is linked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    Static,
    StaticPie,
    Stripped,
    Grafted,
    GraftedStripped,
    /// Dynamically, of musl.
    Musl,
    /// Dynamically, of glibc.
    Glibc,
}

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/profile")
}

/// Makes one of the programs of `tests/profile`.
pub(crate) fn program(lab: &Lab, name: &str, how: How) -> PathBuf {
    let path = lab.path(name);
    if how == How::Glibc {
        let source = sources().join(format!("{name}.c"));
        tool(fixtures::cc().args(["-O2", "-pthread", "-o"]).arg(&path).arg(source));
        return path;
    }
    let task = fs::read_to_string(sources().join("task.h")).unwrap();
    let source = fs::read_to_string(sources().join(format!("{name}.c"))).unwrap();
    let source = source.replace("#include \"task.h\"\n", &task);
    if how == How::Musl {
        return dynamic_with_musl(lab, &source, name);
    }
    let build = Build { position_independent: how == How::StaticPie, ..Build::PLAIN };
    build.program(&lab.path(""), name, &source);
    if matches!(how, How::Stripped | How::GraftedStripped) {
        tool(Command::new("strip").arg("-s").arg(&path));
    }
    if matches!(how, How::Grafted | How::GraftedStripped) {
        lab.run(["graft", name, "-o", "graft"]).exits(0);
        fs::rename(lab.path("graft"), &path).unwrap();
    }
    path
}

/// The moments that a recording needs before its shares are compared.
const ENOUGH: u64 = 100;

/// Records so many moments: where other work takes the processors, two seconds had 16, and their greatest share is
/// chance. `record` makes a recording of about so many seconds; it is called again for twice as long until one has
/// enough.
pub(crate) fn recorded(seconds: f64, moments: u64, record: impl Fn(f64) -> Value) -> Value {
    let mut seconds = seconds;
    loop {
        let document = record(seconds);
        if document["recording"]["moments"].as_u64().unwrap() >= moments || seconds > 60.0 {
            return document;
        }
        seconds *= 2.0;
    }
}

/// Profiles a program that runs for some seconds in so many threads. Returns the document.
pub(crate) fn profiled(lab: &Lab, program: &Path, threads: u32) -> Value {
    // Of 80 samples, which 2 seconds give, 50 to 60 are the allocator's in `large_blocks`, and the rest page faults. In
    // one run of some hundreds the faults had most.
    let seconds = match program.file_name().and_then(|name| name.to_str()) {
        Some("large_blocks") => 8.0,
        Some("late_part") => 3.0,
        _ => 2.0,
    };
    let document = recorded(seconds, ENOUGH, |seconds| {
        let words = [program.as_os_str().to_owned(), threads.to_string().into(), seconds.to_string().into()];
        let flags: [OsString; 2] = ["profile".into(), "--json".into()];
        lab.run(flags.into_iter().chain(words)).exits(0).json()
    });
    fits("profile", &document);
    document
}

/// Asserts what a program waits for.
#[track_caller]
fn waits_for(name: &str, how: How, threads: u32, bottleneck: &str) -> Value {
    let lab = Lab::new();
    let document = profiled(&lab, &program(&lab, name, how), threads);
    let verdict = &document["verdict"];
    assert_eq!(verdict["bottleneck"], bottleneck, "{name}, {threads} threads: {document:#}");
    let share = verdict["share"].as_object().unwrap();
    let sum: f64 = share.values().map(|share| share.as_f64().unwrap()).sum();
    assert!((sum - 1.0).abs() < 1e-6, "{document:#}");
    let range = [&verdict["best_speedup"][0], &verdict["best_speedup"][1]].map(|end| end.as_f64().unwrap());
    assert!(range[0] >= 1.0 && range[0] <= range[1], "{document:#}");
    document
}

#[test]
fn small_blocks_wait_for_the_allocator() {
    for how in [How::Static, How::StaticPie, How::Stripped] {
        let document = waits_for("small_blocks", how, 1, "allocator");
        assert!(document["verdict"]["best_speedup"][1].as_f64().unwrap() > 2.0, "{document:#}");
        assert_eq!((&document["malloc"], &document["verdict"]["donor"]), (&"mallocng".into(), &"snmalloc".into()));
    }
}

/// Threads that spin until there is work do nothing that could be faster: what the others do counts.
#[test]
fn a_thread_that_spins_for_work_is_not_the_bottleneck() {
    let document = waits_for("idle_spinner", How::Static, 2, "allocator");
    assert!(document["verdict"]["best_speedup"][1].as_f64().unwrap() > 2.0, "{document:#}");
}

/// A thread that stops with such a signal, which nix does not know, once stood still until the profiler ended.
#[test]
fn a_program_with_real_time_signals_goes_on() {
    waits_for("alarms", How::Static, 1, "cpu");
}

/// A program's end took the threads' figures with it.
#[test]
fn a_sleepers_switches_are_counted() {
    let document = waits_for("sleeper", How::Static, 1, "io");
    assert!(document["rates"]["voluntary_switches"].as_f64().unwrap() > 50.0, "{document:#}");
}

/// The kernel shows neither the mappings nor the memory of a thread that has ended.
#[test]
fn a_program_whose_first_thread_has_ended_is_read() {
    let document = waits_for("leaderless", How::Static, 2, "allocator");
    assert_eq!(document["malloc"], "mallocng", "{document:#}");
}

/// A profile of the processor alone does not show this time.
#[test]
fn threads_are_blocked_on_the_allocators_lock() {
    waits_for_the_allocators_lock(How::Static);
}

#[test]
fn threads_of_a_stripped_program_are_blocked_on_the_allocators_lock() {
    waits_for_the_allocators_lock(How::Stripped);
}

#[track_caller]
fn waits_for_the_allocators_lock(how: How) {
    let document = waits_for("small_blocks", how, 4, "allocator");
    assert!(document["detail"]["allocator_lock"].as_f64().unwrap() > 0.1, "{document:#}");
    let locks = document["locks"].as_array().unwrap();
    assert!(locks.iter().any(|site| site["function"].as_str().unwrap().contains(" in ")), "{document:#}");
}

#[test]
#[ignore = "minutes: ten seconds of processor time"]
fn large_blocks_wait_for_the_allocators_mappings() {
    let document = waits_for("large_blocks", How::Static, 1, "allocator");
    assert!(document["detail"]["allocator_memory"].as_f64().unwrap() > 0.2, "{document:#}");
    waits_for("large_blocks", How::Stripped, 1, "allocator");
}

/// The donor does not lock, and it is not a stock allocator that a faster one could certainly replace.
#[test]
#[ignore = "minutes: nine seconds of processor time"]
fn a_graft_is_seen_in_its_donor_without_a_lock() {
    for (how, threads) in [(How::Grafted, 4), (How::GraftedStripped, 1)] {
        let document = waits_for("small_blocks", how, threads, "allocator");
        assert!(document["detail"]["allocator_lock"].as_f64().unwrap() < 0.1, "{document:#}");
        assert_eq!((&document["malloc"], &document["verdict"]["donor"]), (&"snmalloc".into(), &Value::Null));
    }
    waits_for("large_blocks", How::Grafted, 1, "allocator");
}

#[test]
fn dynamic_programs_of_glibc() {
    for (name, bottleneck) in [("small_blocks", "allocator"), ("numbers", "cpu")] {
        waits_for(name, How::Glibc, 1, bottleneck);
    }
}

#[test]
fn dynamic_programs_of_glibc_with_threads() {
    for (name, threads, bottleneck) in [("copies", 2, "strings"), ("own_lock", 4, "lock")] {
        waits_for(name, How::Glibc, threads, bottleneck);
    }
}

/// The mappings were not read again for 250 ms, so that a short program's time was at addresses in no module. In less
/// than half a second a loaded machine has too few moments for a verdict.
#[test]
fn a_library_that_comes_late_is_read() {
    let lab = Lab::new();
    let path = program(&lab, "late_library", How::Glibc);
    let document = recorded(0.8, ENOUGH / 2, |seconds| {
        lab.run(["profile", "--json", "--", path.to_str().unwrap(), "1", &seconds.to_string()]).exits(0).json()
    });
    let running = document["running"].as_array().unwrap();
    let known = |entry: &&Value| !entry["function"].as_str().unwrap().starts_with("[0x");
    let share: f64 = running.iter().filter(known).map(|entry| entry["share"].as_f64().unwrap()).sum();
    assert!(share > 0.85, "{document:#}");
}

/// While the kernel starts a program, its parts are mapped one after the other. A recording that saw only the first of
/// them had the code of the others in no module. A second copy after them is a different module: its code was taken for
/// a continuation of the first copy.
#[test]
fn a_part_of_a_file_that_comes_late_is_read() {
    let lab = Lab::new();
    let path = program(&lab, "late_part", How::Static);
    let document = profiled(&lab, &path, 1);
    let running = document["running"].as_array().unwrap();
    let part = |name: &str| {
        let entry = running.iter().find(|entry| entry["function"] == name);
        entry.and_then(|entry| entry["share"].as_f64()).unwrap_or(0.0)
    };
    // A third of the time in the first part, one in the second part, one in the second copy of the first.
    assert!(part("first_part") > 0.4 && part("second_part") > 0.1, "{document:#}");
}

#[test]
fn a_programs_children_count() {
    let lab = Lab::new();
    let path = program(&lab, "small_blocks", How::Static);
    // A child that comes late was looked for at each sixteenth moment only: a loaded machine has twenty in this time.
    let path = path.display();
    for (rate, moments, script) in [
        ("150", ENOUGH, format!("{path} 1 SECONDS; true")),
        ("10", ENOUGH / 10, format!("sleep 0.1; {path} 1 SECONDS; true")),
        ("150", ENOUGH, format!("for time in $(seq SECONDS0); do {path} 1 0.1; done")),
    ] {
        let document = recorded(2.0, moments, |seconds| {
            let script = script.replace("SECONDS", &seconds.to_string());
            lab.run(["profile", "--json", "--rate", rate, "--", "sh", "-c", &script]).exits(0).json()
        });
        assert_eq!(document["verdict"]["bottleneck"], "allocator", "{document:#}");
        assert!(document["program"].as_str().unwrap().ends_with("/small_blocks"), "{document:#}");
    }
}

#[test]
fn a_process_goes_on_as_before() {
    let lab = Lab::new();
    let path = program(&lab, "small_blocks", How::Static);
    let mut command = Command::new(path);
    command.args(["3", "until-closed"]).stdin(Stdio::piped()).stderr(Stdio::piped()).stdout(Stdio::null());
    let mut running = Running(command.spawn().unwrap());
    let pid = running.0.id().to_string();
    let document = recorded(1.5, ENOUGH, |seconds| {
        lab.run(["profile", "--json", "--duration", &seconds.to_string(), "--pid", &pid]).exits(0).json()
    });
    assert_eq!(document["verdict"]["bottleneck"], "allocator", "{document:#}");
    assert_eq!(document["recording"]["exit_code"], Value::Null);
    // It is not traced, none of its threads is stopped, and it ends by itself with its result.
    for thread in fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
        let status = fs::read_to_string(thread.unwrap().path().join("status")).unwrap();
        assert!(status.contains("TracerPid:\t0"), "{status}");
        assert!(!status.contains("State:\tt") && !status.contains("State:\tT"), "{status}");
    }
    drop(running.0.stdin.take());
    let mut said = String::new();
    std::io::Read::read_to_string(&mut running.0.stderr.take().unwrap(), &mut said).unwrap();
    assert!(running.0.wait().unwrap().success() && said.contains("rounds_per_second="), "{said}");
}

#[test]
fn a_command_ends_with_its_time() {
    let lab = Lab::new();
    let path = program(&lab, "sleeper", How::Static);
    let flags = ["profile", "--json", "--duration", "1", "--", path.to_str().unwrap(), "1", "1000"];
    let document = lab.run(flags).exits(0).json();
    assert!(document["recording"]["duration_s"].as_f64().unwrap() < 20.0, "{document:#}");
}

#[test]
fn a_commands_children_end_with_it() {
    let lab = Lab::new();
    let path = program(&lab, "sleeper", How::Static);
    // Those of ended parents, too, in a session of their own or not.
    for script in ["{} 1 1000 & {} 1 1000 & wait", "setsid -f {} 1 1000; ({} 1 1000 &); {} 1 1000"] {
        let script = script.replace("{}", &path.display().to_string());
        lab.run(["profile", "--duration", "1", "--", "sh", "-c", &script]).exits(0);
        let processes =
            fs::read_dir("/proc").unwrap().filter_map(|entry| fs::read_link(entry.ok()?.path().join("exe")).ok());
        assert!(!processes.into_iter().any(|program| program == path), "{script}");
    }
}

#[test]
fn a_bad_end_is_told() {
    let lab = Lab::new();
    let path = program(&lab, "numbers", How::Static);
    let script = |end: &str| format!("{} 1 1; {end}", path.display());
    lab.run(["profile", "--", "sh", "-c", &script("exit 3")]).exits(0).says(&["ended with exit code 3"]);
    lab.run(["profile", "--", "sh", "-c", &script("kill -9 $$")]).exits(0).says(&["was ended by signal 9"]);
}

#[test]
fn files_that_cannot_be_written_leave_the_verdict() {
    let lab = Lab::new();
    let path = program(&lab, "numbers", How::Static);
    fs::create_dir_all(lab.path("out/profile.html")).unwrap();
    let ran = lab.run(["profile", "-o", "out", "--", path.to_str().unwrap(), "1", "1"]).exits(2);
    assert!(ran.out.contains("numbers: cpu"), "{}", ran.out);
    // Not through a link, and not into a pipe that has no reader.
    fs::create_dir(lab.path("links")).unwrap();
    lab.put("victim", b"kept");
    std::os::unix::fs::symlink("../victim", lab.path("links/profile.html")).unwrap();
    fs::create_dir(lab.path("pipes")).unwrap();
    tool(Command::new("mkfifo").arg(lab.path("pipes/profile.html")));
    for folder in ["links", "pipes"] {
        let ran = lab.run(["profile", "-o", folder, "--", path.to_str().unwrap(), "1", "1"]).exits(2);
        ran.says(&["cannot write", "profile.html", "help: "]);
    }
    assert_eq!(fs::read(lab.path("victim")).unwrap(), b"kept");
}

/// More threads than processors. The pictures once showed 117 seconds on the processor where the kernel counted 4.5.
#[test]
fn all_outputs_have_the_processor_time_of_the_kernel() {
    let lab = Lab::new();
    let path = program(&lab, "numbers", How::Static);
    let flags = ["profile", "-o", "out", "--format", "collapsed", "--", path.to_str().unwrap(), "12", "2"];
    lab.run(flags).exits(0);
    let read = |name: &str| fs::read_to_string(lab.path("out").join(name)).unwrap();
    let document: Value = serde_json::from_str(&read("profile.json")).unwrap();
    let number = |pointer: &str| document.pointer(pointer).and_then(Value::as_f64).unwrap();
    let (processor, duration) = (number("/recording/processor_s"), number("/recording/duration_s"));
    let processors = std::thread::available_parallelism().unwrap().get() as f64;
    assert!(processor > 0.0 && processor < 1.1 * processors * duration + 0.1, "{document:#}");
    let about = |found: f64, expected: f64| (found - expected).abs() < 0.02 * expected + 0.01;
    assert!(about(number("/rates/processors") * duration, processor), "{document:#}");
    let sum = |name: &str| -> f64 {
        read(name).lines().filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum::<f64>() / 1e6
    };
    assert!(about(sum("on-cpu.collapsed"), processor), "{} of {document:#}", sum("on-cpu.collapsed"));
    let title = format!("On the processor: {processor:.2} s of all threads");
    assert!(read("on-cpu.svg").contains(&title) && read("profile.html").contains(&title), "{title}");
    // All other time of the twelve threads is off the processor.
    let waiting = number("/detail/processor_wait");
    assert!(processors >= 12.0 || waiting > 0.3, "{document:#}");
    if waiting > 0.3 {
        assert!(read("off-cpu.collapsed").lines().any(|line| line.starts_with("[waiting for a processor];")));
        assert!(document["verdict"]["text"].as_str().unwrap().contains("waited for a processor"), "{document:#}");
    }
}

/// Such a process once had a verdict: that of what stopped it.
#[test]
fn a_process_that_is_stopped_or_traced_is_refused() {
    let lab = Lab::new();
    let path = program(&lab, "numbers", How::Static);
    let start = || Running(Command::new(&path).args(["2", "60"]).stderr(Stdio::null()).spawn().unwrap());
    let profile = |running: &Running| {
        let pid = running.0.id().to_string();
        lab.run(["profile", "--duration", "1", "--pid", &pid])
            .exits(2)
            .says(&["is stopped by a signal, or another", "help: "]);
    };
    let stopped = start();
    let number = |running: &Running| ::nix::unistd::Pid::from_raw(i32::try_from(running.0.id()).unwrap());
    ::nix::sys::signal::kill(number(&stopped), ::nix::sys::signal::Signal::SIGSTOP).unwrap();
    while !fs::read_to_string(format!("/proc/{}/stat", stopped.0.id())).unwrap().contains(") T ") {
        std::thread::sleep(Duration::from_millis(5));
    }
    profile(&stopped);
    let traced = start();
    ::nix::sys::ptrace::seize(number(&traced), ::nix::sys::ptrace::Options::empty()).unwrap();
    profile(&traced);
    // A process that is not stopped cannot be let go; it is ended.
}

/// A program that becomes another user's cannot be ended: the profiler waited for its end for ever. Only root can try
/// that.
#[test]
fn a_program_that_may_not_be_ended_is_left() {
    if !fs::read_to_string("/proc/self/status").unwrap().contains("Uid:\t0\t") {
        return;
    }
    let lab = Lab::new();
    let source = "#include <unistd.h>\nint main(void) { if (setuid(0)) return 9; sleep(600); return 0; }\n";
    let path = Build::PLAIN.program(&lab.path(""), "raised", source);
    fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o4755)).unwrap();
    let copy = lab.path("allograft");
    fs::copy(env!("CARGO_BIN_EXE_allograft"), &copy).unwrap();
    // The program runs on after the test, so its output is not a pipe of this process.
    let said = fs::File::create(lab.path("said")).unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--clear-groups"]).arg(&copy).stdout(Stdio::null()).stderr(said);
    command.args(["profile", "--duration", "1", "--"]).arg(&path).current_dir("/");
    let code = command.status().unwrap().code();
    let mut goes_on = false;
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        if fs::read_link(entry.path().join("exe")).is_ok_and(|exe| exe == path) {
            goes_on = true;
            let pid = entry.file_name().to_str().unwrap().parse().unwrap();
            ::nix::sys::signal::kill(::nix::unistd::Pid::from_raw(pid), ::nix::sys::signal::Signal::SIGKILL).unwrap();
        }
    }
    // A file system may not know such bits.
    let said = fs::read_to_string(lab.path("said")).unwrap();
    if !said.contains("too few for a verdict") {
        assert!(code == Some(2) && said.contains("may not be traced"), "{code:?}: {said}");
        // Until it calls setuid, it may be ended.
        assert_eq!(said.contains("it goes on, as it may not be ended either"), goes_on, "{said}");
    }
}

#[test]
fn files_are_written() {
    let lab = Lab::new();
    let path = program(&lab, "small_blocks", How::Static);
    let flags = ["profile", "-o", "out", "--format", "pprof,firefox,collapsed", "--"];
    let ran = lab.run(flags.into_iter().chain([path.to_str().unwrap(), "4", "2"])).exits(0);
    assert!(ran.out.contains("allocator") && ran.out.contains("wrote out/profile.html"), "{}", ran.out);
    let read = |name: &str| fs::read_to_string(lab.path("out").join(name)).unwrap();
    assert!(read("on-cpu.collapsed").lines().any(|line| line.contains("task;") && line.contains("malloc")));
    assert!(read("on-cpu.svg").contains("<svg ") && read("on-cpu.svg").contains("malloc"));
    let page = read("profile.html");
    assert!(page.matches("<svg ").count() >= 3 && page.matches("<script>").count() == 1, "{page}");
    // It needs no network.
    assert!(!page.contains("src=") && !page.contains("href=") && page.contains("data-name=\"task\""), "{page}");
    let firefox: Value = serde_json::from_str(&read("profile.firefox.json")).unwrap();
    let threads = firefox["threads"].as_array().unwrap();
    let samples: u64 = threads.iter().map(|thread| thread["samples"]["length"].as_u64().unwrap()).sum();
    assert!(threads.len() >= 4 && samples > 10, "{samples} samples of {} threads", threads.len());
    let packed = fs::File::open(lab.path("out/profile.pb.gz")).unwrap();
    let mut pprof = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(packed), &mut pprof).unwrap();
    assert!(pprof.windows(11).any(|window| window == b"nanoseconds"));
    let kept: Value = serde_json::from_str(&read("profile.json")).unwrap();
    assert_eq!(kept["verdict"]["bottleneck"], "allocator");
}

/// The source's line is in the document and on the page if the file has debug information, and is null otherwise.
#[test]
fn call_sites_have_lines_where_the_file_has_them() {
    const SPIN: &str = "#include <time.h>\nstatic volatile unsigned long sum;\n__attribute__((noinline)) void spin(void)\n\
        {\n\tfor (unsigned long i = 0; i < 10000000; i++)\n\t\tsum += i;\n}\nint main(void)\n{\n\t\
        while (clock() < CLOCKS_PER_SEC)\n\t\tspin();\n\treturn 0;\n}\n";
    let lab = Lab::new();
    let source = lab.put("spin.c", SPIN.as_bytes());
    for (flag, has) in [("-g", true), ("-g0", false)] {
        tool(fixtures::cc().args(["-O1", flag, "-o"]).arg(lab.path("spin")).arg(&source));
        let document = lab.run(["profile", "--json", "-o", "out", "./spin"]).exits(0).json();
        // The first on an idle machine. A thread that waits for a processor on a busy one does so at the end of a call.
        let site = document["running"].as_array().unwrap().iter().find(|site| site["function"] == "spin");
        let site = site.unwrap_or_else(|| panic!("{document}"));
        let line = site["line"].as_str();
        assert_eq!(line.is_some_and(|line| ["spin.c:5", "spin.c:6"].contains(&line)), has, "{flag}: {line:?}");
        assert_eq!(line.is_some(), has);
        let page = fs::read_to_string(lab.path("out/profile.html")).unwrap();
        assert_eq!(page.contains("<span class=\"quiet\">spin.c:"), has);
        assert!(!page.contains("src=") && !page.contains("href="), "{page}");
        fs::remove_dir_all(lab.path("out")).unwrap();
    }
}

/// Threads that share a lock are not an example: on some machines they wait almost only for a processor.
#[test]
fn what_blocked_threads_wait_for_is_written() {
    let lab = Lab::new();
    let path = program(&lab, "sleeper", How::Static);
    lab.run(["profile", "-o", "out", "--format", "collapsed", "--", path.to_str().unwrap(), "2", "1"]).exits(0);
    let read = |name: &str| fs::read_to_string(lab.path("out").join(name)).unwrap();
    let collapsed = read("off-cpu.collapsed");
    assert!(collapsed.lines().any(|line| line.starts_with("[waiting];") && line.contains("nanosleep")), "{collapsed}");
    assert!(read("off-cpu.svg").contains("<svg ") && read("off-cpu.svg").contains("nanosleep"));
}

#[test]
fn what_cannot_be_profiled_is_told() {
    let lab = Lab::new();
    lab.run(["profile", "--", "./missing"]).exits(2).says(&["cannot start `./missing`", "help:"]);
    lab.run(["profile", "--pid", "999999999"]).exits(2).says(&["there is no process 999999999", "help:"]);
    lab.run(["profile", "--", "true"]).exits(2).says(&["too few for a verdict", "help:"]);
    let ways = ["`allograft profile ./program ARGS`", "`allograft profile --pid PID`"];
    lab.run(["profile"]).exits(2).says(&["nothing is named"]).says(&ways);
    fits("failure", &lab.run(["profile", "--json"]).exits(2).json());
    lab.run(["profile", "--bogus", "true"]).exits(2).says(&["--bogus"]);
    lab.run(["profile", "--rate", "0", "true"]).exits(2).says(&["expected 1 to 1000"]);
    lab.run(["profile", "--format", "pprof", "--", "true"]).exits(2).says(&["--out"]);
    // e_machine: that of aarch64.
    let foreign = Build::PLAIN.program(&lab.path(""), "foreign", "int main(void) { return 0; }\n");
    let mut bytes = fs::read(&foreign).unwrap();
    bytes[18] = 183;
    fs::write(&foreign, bytes).unwrap();
    lab.run(["profile", "--", "./foreign"]).exits(2).says(&["is for aarch64, expected", "help:"]);
    let mut ended = Command::new("true").spawn().unwrap();
    let pid = ended.id().to_string();
    ended.wait().unwrap();
    let failed = lab.run(["profile", "--json", "--pid", &pid]).exits(2).says(&["or it has ended"]);
    fits("failure", &failed.json());
}

/// A process of another user may not be read. Only root can try that.
#[test]
fn without_permission() {
    let lab = Lab::new();
    let script = format!(
        "setpriv --reuid 65534 --clear-groups {} profile --pid 1 2>&1; echo code=$?",
        env!("CARGO_BIN_EXE_allograft")
    );
    let is_root = fs::read_to_string("/proc/self/status").unwrap().contains("Uid:\t0\t");
    let pid = if is_root { "1" } else { return };
    // The other user has to reach the program.
    let copy = lab.path("allograft");
    fs::copy(env!("CARGO_BIN_EXE_allograft"), &copy).unwrap();
    let script = script
        .replace(env!("CARGO_BIN_EXE_allograft"), &copy.display().to_string())
        .replace("--pid 1", &format!("--pid {pid}"));
    let output = Command::new("sh").arg("-c").arg(script).current_dir("/").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("may not be traced") && said.contains("code=2"), "{said}");
}

//! Measurements of real processes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use measure::case::{Arm, Case, Invocation, Load};
use measure::executor::{Executor, RunError, Status, SystemClock};
use measure::process::{Compared, Processes};
use measure::session::{Plan, Stopped, Tools, compare};

/// A safety net against endless runs: the programs here take less than a second.
const LONG: Duration = Duration::from_secs(600);

fn shell(script: &str) -> Invocation {
    Invocation { program: "sh".into(), arguments: vec!["-c".into(), script.into()], ..Invocation::default() }
}

#[test]
fn a_timed_run_gives_what_the_program_took() {
    let run =
        Processes::default().time(&shell("i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; sleep 0.2"), LONG).unwrap();
    assert_eq!(run.end.status, Status::Exit(0));
    let figures = run.figures;
    assert!(figures.wall_s >= 0.2 && figures.user_s > 0.0 && figures.user_s < figures.wall_s, "{figures:?}");
    assert!(figures.minor_faults > 0 && figures.voluntary_switches > 0, "{figures:?}");
}

#[test]
fn output_and_end_are_told() {
    let run = |script| Processes::default().time(&shell(script), LONG).unwrap().end;
    assert_eq!(run("echo one; echo two >&2; exit 3").status, Status::Exit(3));
    assert_eq!(run("echo one; echo two >&2").head, "one");
    assert_eq!(run("echo one; echo two >&2").complaint, "two");
    assert_eq!(run("echo one").digest, run("printf 'one\\n'").digest);
    assert_ne!(run("echo one").digest, run("echo two").digest);
    assert_eq!(run("kill -SEGV $$").status, Status::Signal(11));
    let missing = Invocation { program: "/no such program".into(), ..Invocation::default() };
    assert!(matches!(Processes::default().time(&missing, LONG), Err(RunError::Start { .. })));
}

#[test]
fn folder_and_environment_are_those_that_were_asked_for() {
    let folder = std::fs::canonicalize(std::env::temp_dir()).unwrap();
    let environment = vec![("ONLY".into(), "this".into())];
    let mut processes =
        Processes { folder: Some(folder.clone()), environment: Some(environment), ..Processes::default() };
    let end = processes.time(&shell("echo $PWD $ONLY ${HOME-none}"), LONG).unwrap().end;
    assert_eq!(end.head, format!("{} this none", folder.display()));
    assert_eq!(end.bytes, end.head.len() as u64 + 1);
}

#[test]
fn only_what_is_compared_counts() {
    let of = |compared: &Compared, script| {
        let mut processes = Processes { compared: compared.clone(), ..Processes::default() };
        let watched = processes.memory(&shell(script), LONG).unwrap().end;
        let timed = processes.time(&shell(script), LONG).unwrap().end;
        assert_eq!((timed.digest, timed.bytes), (watched.digest, watched.bytes));
        (timed.digest, timed.bytes)
    };
    let sorted = Compared { sorted: true, ..Compared::default() };
    assert_eq!(of(&sorted, "echo a; echo b"), of(&sorted, "echo b; echo a; echo c >&2"));
    let without = Compared { without: Some("id ".to_owned()), ..Compared::default() };
    assert_eq!(of(&without, "echo id 1; echo x"), of(&Compared::default(), "echo x"));
    let errors = Compared { errors: true, ..Compared::default() };
    assert_eq!(of(&errors, "echo b >&2; echo a"), of(&Compared::default(), "echo a; echo b"));
}

#[test]
fn what_takes_too_long_is_ended_with_its_children() {
    let began = Instant::now();
    let late = Processes::default().time(&shell("sleep 3000 & sleep 3000"), Duration::from_millis(200));
    assert!(matches!(late, Err(RunError::TimeOut(_))));
    let late = Processes::default().memory(&shell("sleep 3000"), Duration::from_millis(200));
    assert!(matches!(late, Err(RunError::TimeOut(_))), "{late:?}");
    // They were not waited for.
    assert!(began.elapsed() < Duration::from_secs(1500));
}

#[test]
fn an_interruption_ends_what_runs() {
    let flag = Arc::new(AtomicBool::new(false));
    let setter = Arc::clone(&flag);
    let thread = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        setter.store(true, Ordering::Relaxed);
    });
    let interrupted = Processes::until(flag).memory(&shell("sleep 3000"), LONG);
    assert!(matches!(interrupted, Err(RunError::Interrupted)), "{interrupted:?}");
    thread.join().unwrap();
}

/// The peak is the largest of the program and its children, not that of this process, which may hold far more.
#[test]
fn memory_is_that_of_the_largest_process() {
    let held = vec![1u8; 96 << 20];
    let small = Processes::default().memory(&shell("echo done"), LONG).unwrap().memory.unwrap();
    assert!((100 << 10..32 << 20).contains(&small.peak_bytes), "{small:?} beside our {}", held.len());
    assert!(small.last_bytes <= small.peak_bytes && small.last_bytes > 0);
    let child =
        Processes::default().memory(&shell("head -c 50000000 /dev/zero | tail -n 1 | wc -c >/dev/null; true"), LONG);
    assert!(child.unwrap().memory.unwrap().peak_bytes > 40 << 20);
    assert!(Processes::default().memory(&shell("exec sh -c 'exec true'"), LONG).is_ok());
    assert_eq!(Processes::default().memory(&shell("exit 3"), LONG).unwrap().end.status, Status::Exit(3));
    assert_eq!(Processes::default().memory(&shell("kill -9 $$"), LONG).unwrap().end.status, Status::Signal(9));
}

#[test]
fn system_calls_of_children_are_counted() {
    let calls = |script| Processes::default().calls(&shell(script), LONG).unwrap().calls;
    let (none, twice) = (calls(":"), calls("/bin/true; /bin/true; :"));
    assert!(none.complete && none.mmap > 0, "{none:?}");
    assert!(twice.mmap > none.mmap * 2, "{none:?} {twice:?}");
    let ended = |script| Processes::default().calls(&shell(script), LONG).unwrap().status;
    assert_eq!((ended("exit 3"), ended("kill -9 $$")), (Some(Status::Exit(3)), Some(Status::Signal(9))));
    let cut = Processes::default().calls(&shell("sleep 3000"), Duration::from_millis(200)).unwrap();
    assert!(!cut.calls.complete && cut.status.is_none());
}

#[test]
fn a_slower_program_is_found_to_be_slower() {
    let arm = |name: &str, script: &str| Arm { name: name.to_owned(), invocation: shell(script), broken: None };
    let arms = vec![
        arm("stock", "i=0; while [ $i -lt 6000 ]; do i=$((i+1)); done; echo done"),
        // Thirty times as much to do: no delay on a busy machine makes up for that.
        arm("slower", "i=0; while [ $i -lt 180000 ]; do i=$((i+1)); done; echo done"),
        arm("broken", "echo else"),
    ];
    let case = Case { name: "loop".to_owned(), threads: None, size: None, arms };
    let (clock, mut processes) = (SystemClock::default(), Processes::default());
    let plan =
        // The number of rounds ends it, not the budget, which must also have room for the runs that count system calls.
        Plan { budget: Duration::from_secs(3600), least_rounds: 6, most_rounds: 8, memory_runs: 1, ..Plan::default() };
    let mut tools = Tools { executor: &mut processes, clock: &clock, observer: &mut |_| {}, interrupted: &|| false };
    let session = compare(&case, &plan, &mut tools).unwrap();
    assert_ne!(session.stopped, Stopped::Failed);
    let logs = measure::session::log_ratios(&session.arms[1].runs, &session.arms[0].runs);
    let ratio = measure::statistics::Ratio::of_logs(&logs).unwrap();
    assert!(ratio.value > 1.5, "{ratio:?}");
    assert!(session.arms[2].failure.as_deref().unwrap().contains("prints `else`"));
    assert!(session.arms[0].memory[0].peak_bytes > 0 && session.arms[0].calls.unwrap().complete);
}

#[test]
fn a_server_is_measured_under_load() {
    let serve = "exec python3 -m http.server --bind 127.0.0.1 {port}";
    // The load knows where the server is, and the server is there.
    let ask = "python3 -c 'import urllib.request; urllib.request.urlopen(\"http://127.0.0.1:{port}/\")' && echo 'Requests/sec: 250'";
    let load = Load { command: ask.to_owned(), rate: None };
    let server = Invocation { load: Some(load), ..shell(serve) };
    let run = Processes::default().time(&server, LONG).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(run.figures.service.unwrap().requests_per_second, 250.0);
    assert!((run.figures.cost() - 0.004).abs() < 1e-12);
    assert!(Processes::default().memory(&server, LONG).unwrap().memory.unwrap().last_bytes > 1 << 20);
    let mute = Load { command: "echo nothing".to_owned(), rate: None };
    let error = Processes::default().time(&Invocation { load: Some(mute), ..server }, LONG).unwrap_err();
    assert!(error.to_string().contains("nothing"), "{error}");
}

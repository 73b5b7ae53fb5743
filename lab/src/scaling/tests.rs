//! A program of two threads, of which it is known what they transfer.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use tools::workspace;

use super::machine::{Machine, Outcome};
use crate::builds::{Part, Workshop};

/// The rounds of each of the two threads.
const TIMES: u64 = 100;

fn program() -> PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    let link = || {
        let folder = workspace::build().join("steps");
        fs::create_dir_all(&folder).unwrap();
        // No graft is made.
        let workshop = Workshop::new(&folder, Path::new("")).unwrap();
        workshop.with_musl("contend", None, &[Part::source("lab/programs/contend.c")]).unwrap().remove(0)
    };
    PROGRAM.get_or_init(link).clone()
}

fn run(mode: &str) -> anyhow::Result<Outcome> {
    Machine::start(&program(), &[mode.to_owned()], 100)?.run()
}

fn refusal(mode: &str) -> String {
    format!("{:#}", run(mode).unwrap_err())
}

#[test]
fn a_shared_counter_goes_to_the_other_core_at_nearly_each_increment() {
    let shared = run("shared").unwrap();
    let inside = shared.counts.inside;
    assert_eq!((shared.counts.mallocs, inside.atomics, shared.printed.trim()), (2 * TIMES, 2 * TIMES, "202"));
    assert!((2 * TIMES - 10..=2 * TIMES).contains(&inside.transfers), "{shared:?}");
    assert!(inside.contended >= 2 * TIMES - 10, "{shared:?}");
    assert_eq!((shared.functions[0].0.as_str(), shared.data[0].0.as_str()), ("malloc", "counters"), "{shared:?}");
    assert_eq!(run("shared").unwrap(), shared, "a second run");
}

#[test]
fn counters_of_their_own_go_nowhere() {
    let private = run("private").unwrap();
    let inside = private.counts.inside;
    assert_eq!((inside.atomics, inside.transfers, inside.contended, inside.waits), (2 * TIMES, 0, 0, 0), "{private:?}");
}

#[test]
fn a_mutex_is_handed_over() {
    let mutex = run("mutex").unwrap();
    let inside = mutex.counts.inside;
    assert_eq!(mutex.printed.trim(), "202");
    assert!(inside.waits > 0 && inside.calls > inside.waits && inside.transfers > inside.waits, "{mutex:?}");
    assert_eq!(run("mutex").unwrap(), mutex, "a second run");
}

/// glibc makes as many arenas as the processors allow that it finds.
#[test]
fn programs_find_128_processors_and_no_file_that_says_otherwise() {
    assert_eq!(run("processors").unwrap().printed.trim(), "128 -1");
}

#[test]
fn the_processor_does_what_the_model_does() {
    let source = workspace::root().join("lab/programs/instructions.c");
    let program = workspace::build().join("steps/instructions");
    fs::create_dir_all(workspace::build().join("steps")).unwrap();
    let flags = ["-O1", "-static", "-no-pie", "-nostdlib", "-fno-stack-protector", "-fcf-protection=none", "-o"];
    tools::command::output(fixtures::cc().args(flags).arg(&program).arg(&source)).unwrap();
    let outcome = Machine::start(&program, &[], u64::MAX).unwrap().run().unwrap();
    assert!(outcome.counts.instructions > 64 * 200, "{outcome:?}");
    // Shifts by more bits than a short operand has, and divisions that the compiler makes, may be the kernel's.
    let left: u64 = outcome.left_to_kernel.values().sum();
    assert!(left < outcome.counts.instructions / 20, "{outcome:?}");
}

#[test]
fn what_cannot_be_stepped_has_one_clear_message() {
    let messages = [
        ("unmarked", "the program ended without a measured part"),
        ("crash", "the program received SIGSEGV in `crash`"),
        ("pause", "unknown system call 34 in `syscall`"),
        ("stuck", "all threads wait: thread 0 in `syscall`"),
    ];
    for (mode, expected) in messages {
        let message = refusal(mode);
        assert!(message.contains(expected), "{mode}: {message}");
    }
    let start = |path: &str| format!("{:#}", Machine::start(path.as_ref(), &[], 0).unwrap_err());
    assert!(start("/no such program").contains("cannot read `/no such program`"));
    assert!(start("Cargo.toml").contains("is no ELF file"));
    let dynamic = workspace::build().join("steps/dynamic");
    let source = workspace::build().join("steps/dynamic.c");
    fs::write(&source, "int main(void) { return 0; }\n").unwrap();
    let mut compile: Command = fixtures::cc();
    tools::command::output(compile.arg(&source).arg("-o").arg(&dynamic)).unwrap();
    assert!(start(dynamic.to_str().unwrap()).contains("is dynamic; expected a static program"));
}

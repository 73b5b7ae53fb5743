//! The sampler on samples that are written down, and on processes that do not exist: no kernel gives their number.

use super::*;
use crate::proc::Stat;
use crate::trials::{SPAN, Trial, is_about};
use crate::wait::End;

const PROGRAM: i32 = i32::MAX;

fn sampler(own: bool) -> Sampler {
    Sampler::with_library(PROGRAM, own, Library::default())
}

fn options() -> Options {
    Options { rate: RATE, duration: None, interrupted: Arc::default() }
}

/// Adds samples of a thread of `pid`.
fn add(sampler: &mut Sampler, pid: i32, state: State, samples: u32) {
    let thread = u32::try_from(sampler.threads.len()).unwrap();
    sampler.threads.push(Thread { pid, tid: pid, name: String::new() });
    sampler.known.insert(pid, Known { number: thread, doing: None, switches: (0, 0) });
    sampler.programs.insert(pid, (None, format!("/bin/{pid}")));
    for moment in 0..samples {
        sampler.samples.push(Sample { moment, thread, state, walk: 0, own_word: false, faults: 0, ran: None });
    }
}

fn add_moments(sampler: &mut Sampler, count: u32) {
    sampler.moments.extend((0..count).map(|number| Moment { at: SPAN * number, span: SPAN }));
}

#[test]
fn the_program_is_the_one_that_was_busiest() {
    // A script waits for its command, which is seen less often.
    let mut script = sampler(true);
    add(&mut script, 7, State::Blocked(libc::SYS_wait4, [0; 3]), 90);
    add(&mut script, 8, State::Running, 5);
    add(&mut script, 9, State::Blocked(libc::SYS_read, [0; 3]), 4);
    assert_eq!(script.busiest(), Some((None, "/bin/8".to_owned())));
    // The older of two that are equal: a map has no order.
    let mut pair = sampler(true);
    add(&mut pair, 12, State::Running, 5);
    add(&mut pair, 11, State::Running, 5);
    assert_eq!(pair.busiest(), Some((None, "/bin/11".to_owned())));
    assert_eq!(sampler(true).busiest(), None);
}

#[test]
fn figures_of_ended_processes_are_kept() {
    let mut sampler = sampler(false);
    let space = |library: &mut Library| Space::open(PROGRAM - 1, library);
    let first = Stat { user: 100, system: 10, faults: 5, ..Stat::default() };
    let last = Stat { user: 250, system: 30, faults: 12, ..Stat::default() };
    let child = Process { space: space(&mut sampler.library), code: (0, 0), first, last };
    sampler.processes.insert(PROGRAM - 1, child);
    let root = Process { space: space(&mut sampler.library), code: (0, 0), first, last };
    sampler.processes.insert(PROGRAM, root);
    sampler.close(PROGRAM - 1);
    sampler.close(PROGRAM);
    assert!(sampler.processes.keys().eq([&PROGRAM]), "the program itself is counted at the end");
    add(&mut sampler, PROGRAM, State::Running, 1);
    sampler.known.get_mut(&PROGRAM).unwrap().switches = (20, 25);
    add_moments(&mut sampler, 11);
    let recording = sampler.finish(None, &options());
    is_about(recording.counts.user_s, 2.0 * 1.5);
    is_about(recording.counts.system_s, 2.0 * 0.2);
    assert_eq!((recording.counts.faults, recording.counts.voluntary_switches), (14, 5));
    assert_eq!(recording.duration, SPAN * 10);
}

#[test]
fn switches_of_threads_that_came_and_went_are_those_of_the_recorded_part() {
    // 0.1 s of the program's 0.4 s were recorded, and the kernel counted 1000 switches in all of it.
    let switches = |ended: Option<Ended>| {
        let mut sampler = sampler(true);
        add(&mut sampler, PROGRAM, State::Running, 1);
        sampler.known.get_mut(&PROGRAM).unwrap().switches = (0, 30);
        add_moments(&mut sampler, 11);
        sampler.over = Some(sampler.began + SPAN * 40);
        sampler.status = Some(Reaped { pid: PROGRAM, end: End::Exit(0), switches: 1000 });
        sampler.finish(ended, &options()).counts.voluntary_switches
    };
    assert_eq!(switches(Some(Ended::Exit(0))), 250);
    // If it was ended, the kernel's figure is of the children's end, too.
    assert_eq!(switches(Some(Ended::Stopped)), 30);
}

#[test]
fn a_thread_has_one_number_and_an_exec_gives_it_a_new_one() {
    let mut sampler = sampler(true);
    assert_eq!([sampler.thread(PROGRAM, 1), sampler.thread(PROGRAM, 2), sampler.thread(PROGRAM, 1)], [0, 1, 0]);
    sampler.known.remove(&1);
    assert_eq!(sampler.thread(PROGRAM, 1), 2);
}

#[test]
fn a_moment_without_processes_has_no_samples() {
    let mut sampler = sampler(false);
    let space = Space::open(PROGRAM, &mut sampler.library);
    let gone = Process { space, code: (0, 0), first: Stat::default(), last: Stat::default() };
    sampler.processes.insert(PROGRAM - 1, gone);
    sampler.moment(Moment { at: SPAN, span: SPAN }).unwrap();
    assert_eq!((sampler.moments.len(), sampler.samples.len(), sampler.processes.len()), (1, 0, 0));
    assert!(!sampler.blocked(0, PROGRAM, PROGRAM), "a thread that has ended does not run");
    assert!(sampler.samples.is_empty());
}

#[test]
fn a_recording_needs_enough_samples_and_few_lost_ones() {
    let recording = |moments: u32, lost: usize| {
        let mut recording = Trial::new().seen(moments, &["running: main"]).recording();
        recording.lost = lost;
        sufficient(recording, "program".to_owned()).map(|recording| recording.samples.len())
    };
    assert_eq!(recording(100, 10).unwrap(), 100);
    assert!(matches!(recording(100, 11), Err(Error::Stopped { program }) if program == "program"));
    assert_eq!(recording(10, 0).unwrap(), 10);
    assert!(matches!(recording(9, 0), Err(Error::Short { milliseconds: 90, samples: 9, .. })));
    // A program whose threads could not be read has moments, but no samples.
    let mut empty = Trial::new().seen(20, &["running: main"]).recording();
    empty.samples.clear();
    assert!(matches!(sufficient(empty, String::new()), Err(Error::Short { samples: 0, .. })));
}

#[test]
fn programs_that_cannot_be_recorded_are_not_started() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("foreign");
    let mut header = b"\x7fELF\x02\x01\x01".to_vec();
    header.resize(18, 0);
    header.extend(243_u16.to_le_bytes());
    std::fs::write(&path, header).unwrap();
    let begin = |words: &[OsString]| start(words, false, &mut Library::default());
    let error = begin(&[path.clone().into()]).unwrap_err();
    assert!(matches!(&error, Error::Architecture { found, .. } if found == "riscv64"), "{error}");
    let missing = folder.path().join("missing");
    assert!(matches!(begin(&[missing.into()]), Err(Error::Start { .. })));
    assert!(matches!(begin(&[]), Err(Error::Start { .. })));
}

#[test]
fn a_command_is_searched_like_the_system_does() {
    assert_eq!(found(&"./a".into()), Some(PathBuf::from("./a")), "a path is not searched for");
    assert!(found(&"sh".into()).unwrap().is_file());
    assert_eq!(found(&"no-such-command-anywhere".into()), None);
}

#[test]
fn only_a_process_that_can_be_read_is_attached_to() {
    for pid in [0, -1, PROGRAM] {
        assert!(matches!(attach(pid), Err(Error::NoProcess(number)) if number == pid));
    }
    let own = std::process::id().cast_signed();
    assert_eq!(attach(own).unwrap(), own);
}

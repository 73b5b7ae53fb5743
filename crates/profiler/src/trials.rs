//! Recordings that tests write down: the functions that threads were in, moment by moment. No clock is read.

use std::time::Duration;

use crate::analysis::{Profile, analyse};
use crate::attribution::Shares;
use crate::module::Module;
use crate::recording::{Moment, Recording, Sample, State, Thread, Walks};
use crate::space::{CodeAddress, Walk};
use crate::symbols::Function;

/// The time between two moments.
pub(crate) const SPAN: Duration = Duration::from_millis(10);
/// Each function has so many bytes of the file.
const PAGE: u64 = 0x1000;

/// A recording in the making. The program has two processors, and stock musl's allocator.
#[derive(Default)]
pub(crate) struct Trial {
    recording: Recording,
    functions: Vec<String>,
    walks: Walks,
}

impl Trial {
    pub(crate) fn new() -> Trial {
        let mut trial = Trial::default();
        trial.recording.path = "/bin/program".to_owned();
        trial.recording.processors = 2;
        trial
    }

    /// Adds moments at which threads were seen as these lines say: the state and the functions, the innermost first.
    /// `running: malloc < main`, `in mmap: mmap < main` for a thread that runs in the kernel, and `on futex: __lock <
    /// main` for one that is blocked.
    pub(crate) fn seen(mut self, moments: u32, threads: &[&str]) -> Trial {
        let lines: Vec<(State, u32)> = threads
            .iter()
            .map(|line| {
                let (state, stack) = line.split_once(": ").unwrap();
                (state_of(state), self.walk(stack))
            })
            .collect();
        while self.recording.threads.len() < threads.len() {
            let tid = 100 + i32::try_from(self.recording.threads.len()).unwrap();
            let name = format!("thread {}", self.recording.threads.len());
            self.recording.threads.push(Thread { pid: 100, tid, name });
        }
        for _ in 0..moments {
            let number = u32::try_from(self.recording.moments.len()).unwrap();
            self.recording.moments.push(Moment { at: SPAN * number, span: SPAN });
            for (thread, (state, walk)) in (0..).zip(&lines) {
                let ran = if matches!(state, State::Blocked(..)) { 0.0 } else { SPAN.as_secs_f64() };
                match state {
                    State::Running => self.recording.counts.user_s += ran,
                    _ => self.recording.counts.system_s += ran,
                }
                let (state, walk) = (*state, *walk);
                let sample = Sample { moment: number, thread, state, walk, own_word: false, faults: 0, ran: Some(ran) };
                self.recording.samples.push(sample);
            }
        }
        self
    }

    /// The number of a walk through these functions.
    pub(crate) fn walk(&mut self, stack: &str) -> u32 {
        let places = stack.split(" < ").map(|name| {
            let known = self.functions.iter().position(|known| known == name);
            let at = known.unwrap_or_else(|| {
                self.functions.push(name.to_owned());
                self.functions.len() - 1
            });
            CodeAddress { module: Some(0), address: PAGE * (at as u64 + 1) + 0x10 }
        });
        let walk = Walk { places: places.collect(), truncated: false };
        self.walks.number(walk)
    }

    /// Changes the recording.
    pub(crate) fn with(mut self, change: impl FnOnce(&mut Recording)) -> Trial {
        change(&mut self.recording);
        self
    }

    /// The allocator that `inspect` finds in the program.
    pub(crate) fn malloc(self, name: &str) -> Trial {
        let name = name.to_owned();
        let mut trial = self.complete();
        trial.recording.library.modules[0].report.as_mut().unwrap().malloc.name = name;
        trial
    }

    /// Adds the program's file, if that was not done.
    fn complete(mut self) -> Trial {
        if self.recording.library.modules.is_empty() {
            let functions = (1..).zip(&self.functions).map(|(number, name)| Function {
                start: PAGE * number,
                end: PAGE * (number + 1),
                name: Some(name.clone()),
            });
            let mut module = Module::of_functions("/bin/program", functions.collect(), (0, Vec::new()));
            module.report = Some(report());
            self.recording.library.modules.push(module);
            self.recording.program = Some(0);
        }
        self
    }

    pub(crate) fn recording(self) -> Recording {
        let Trial { mut recording, walks, .. } = self.complete();
        recording.duration = SPAN * u32::try_from(recording.moments.len()).unwrap();
        recording.walks = walks.all;
        recording
    }

    pub(crate) fn profile(self) -> Profile {
        analyse(self.recording())
    }

    pub(crate) fn shares(self) -> Shares {
        self.profile().attribution.shares
    }
}

fn state_of(text: &str) -> State {
    let (kind, name) = text.split_once(' ').unwrap_or((text, ""));
    let number = match name {
        "futex" => libc::SYS_futex,
        "mmap" => libc::SYS_mmap,
        "munmap" => libc::SYS_munmap,
        "mremap" => libc::SYS_mremap,
        "read" => libc::SYS_read,
        "ppoll" => libc::SYS_ppoll,
        "yield" => libc::SYS_sched_yield,
        "fault" => -1,
        "" => 0,
        other => panic!("no call `{other}`"),
    };
    // The arguments are those of a wait for a mutex of musl.
    match kind {
        "running" => State::Running,
        "in" => State::Kernel(number),
        "on" => State::Blocked(number, [0, 128, 1 << 31 | 16]),
        other => panic!("no state `{other}`"),
    }
}

/// The report on a static program of musl, with its own allocator.
fn report() -> inspector::Report {
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    let machine: u16 = if cfg!(target_arch = "aarch64") { 183 } else { 62 };
    for half in [2, machine, 1, 0] {
        file.extend(half.to_le_bytes());
    }
    for word in [0x40_0000_u64, 64, 0] {
        file.extend(word.to_le_bytes());
    }
    for half in [0_u16, 0, 64, 56, 1, 64, 0, 0] {
        file.extend(half.to_le_bytes());
    }
    // PT_LOAD, read and execute.
    for word in [1_u64 | 5 << 32, 0, 0x40_0000, 0x40_0000, 120, 120, 0x1000] {
        file.extend(word.to_le_bytes());
    }
    let mut report = inspector::inspect(&file).unwrap();
    report.libc = inspector::Libc::Musl;
    report.link = Some(inspector::Link::Static);
    report.malloc.name = inspector::name::MALLOCNG.to_owned();
    report
}

/// Fails unless both are nearly the same.
#[track_caller]
pub(crate) fn is_about(found: f64, expected: f64) {
    assert!((found - expected).abs() < 0.002, "found {found}, expected {expected}");
}

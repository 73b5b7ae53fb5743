//! Ends a run at one of its calls, or fails the call; judges what is left.

use std::fmt;

use anyhow::Result;
use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::Signal;

use crate::call::Call;
use crate::files::Files;
use crate::flow::Scene;
use crate::traced::{Act, End, Ran, Watch};

/// A deed at a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deed {
    /// The process is ended before the call.
    Kill,
    /// The call fails with this error, once.
    Fail(Errno),
    /// It fails, and so does each later call of the same kind.
    FailKind(Errno),
    /// It fails, and so does each later call that changes files, as on a disk that is full or has broken.
    FailChanges(Errno),
    /// The call does half of its bytes.
    Halve,
}

impl Deed {
    fn fits(self, call: &Call) -> bool {
        match self {
            Deed::Kill => true,
            Deed::Fail(error) => call.errors().contains(&error),
            Deed::FailKind(error) | Deed::FailChanges(error) => call.changes() && call.errors().contains(&error),
            Deed::Halve => call.can_be_halved(),
        }
    }
}

impl fmt::Display for Deed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Deed::Kill => out.write_str("killed"),
            Deed::Fail(error) => write!(out, "{error:?} once"),
            Deed::FailKind(error) => write!(out, "{error:?} from then on, for this call"),
            Deed::FailChanges(error) => write!(out, "{error:?} from then on, for all that changes files"),
            Deed::Halve => out.write_str("half of the bytes"),
        }
    }
}

/// Does a deed at the call of this number, or at the first one after it that fits: threads may come in a different
/// order than in the run that was recorded.
struct Interference {
    at: usize,
    deed: Deed,
    /// The number of the call, and the call.
    hit: Option<(usize, Call)>,
}

impl Watch for Interference {
    fn enters(&mut self, number: usize, call: &Call) -> Act {
        let is_it = self.hit.is_none() && number >= self.at && self.deed.fits(call);
        if is_it {
            self.hit = Some((number, *call));
        }
        let fail = |error| if call.number == libc::SYS_close { Act::FailAfter(error) } else { Act::Fail(error) };
        match (self.deed, self.hit) {
            (Deed::Kill, _) if is_it => Act::Kill,
            (Deed::Fail(error), _) if is_it => fail(error),
            (Deed::FailKind(error), Some((_, hit))) if hit.number == call.number => fail(error),
            // Messages are not files.
            (Deed::FailChanges(error), Some(_)) if is_it || (call.changes() && !writes_output(call)) => fail(error),
            (Deed::Halve, _) if is_it => Act::Halve,
            _ => Act::Let,
        }
    }
}

fn writes_output(call: &Call) -> bool {
    [libc::SYS_write, libc::SYS_writev].contains(&call.number) && call.arguments[0] <= 2
}

/// Notes what may be done to each call of a run.
#[derive(Default)]
struct Recording {
    /// Whether the program has begun. What is before that is the dynamic loader's, which may die without memory.
    begun: bool,
    deeds: Vec<(usize, Deed)>,
}

impl Watch for Recording {
    fn enters(&mut self, number: usize, call: &Call) -> Act {
        // The first call of Rust's runtime; one of the first of a shell, which the tests attack.
        self.begun |= [libc::SYS_poll, libc::SYS_getppid].contains(&call.number);
        if self.begun {
            let errors = call.errors();
            let lasting = errors.iter().filter(|error| call.changes() && lasts(**error));
            let later = lasting.flat_map(|error| [Deed::FailKind(*error), Deed::FailChanges(*error)]);
            let halved = call.can_be_halved().then_some(Deed::Halve);
            let deeds = errors.iter().map(|error| Deed::Fail(*error)).chain(later).chain(halved);
            self.deeds.extend(deeds.map(|deed| (number, deed)));
        }
        Act::Let
    }
}

/// Something that must not happen.
#[derive(Debug)]
pub struct Finding {
    /// Where: the flow, the number and name of the call, what was done to it.
    pub at: String,
    /// The first thing that was wrong.
    pub wrong: String,
}

/// How often a scene was attacked, and what came of it.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The number of attacks that reached their call.
    pub done: usize,
    /// The findings.
    pub findings: Vec<Finding>,
    /// The notes of programs that ran for long, for people.
    pub figures: Vec<String>,
}

impl Outcome {
    /// Adds the counts and findings of a second outcome.
    pub fn add(&mut self, other: Outcome) {
        self.done += other.done;
        self.findings.extend(other.findings);
        self.figures.extend(other.figures);
    }
}

/// Which of the calls are attacked: each whose number leaves `rest` when divided by `step`.
#[derive(Debug, Clone, Copy)]
pub struct Share {
    /// One call in this many is attacked.
    pub step: usize,
    /// The remainder; less than `step`.
    pub rest: usize,
}

impl Share {
    /// All of them.
    pub const ALL: Share = Share { step: 1, rest: 0 };

    pub(crate) fn has(self, number: usize) -> bool {
        number % self.step == self.rest
    }
}

/// Ends the flow's run at each call.
///
/// # Errors
/// A run cannot be started or followed.
pub fn kills(scene: &Scene, share: Share) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    for at in (1..).filter(|at| share.has(*at)) {
        if !attack(scene, at, Deed::Kill, &mut outcome)? {
            break;
        }
    }
    Ok(outcome)
}

/// Fails each call of the flow's run, with each error that it may return.
///
/// # Errors
/// As [`kills`].
pub fn faults(scene: &Scene, share: Share) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    scene.restore()?;
    let mut recording = Recording::default();
    scene.traced(&mut recording)?;
    let deeds = recording.deeds.into_iter().enumerate();
    for (_, (at, deed)) in deeds.filter(|(number, _)| share.has(*number)) {
        attack(scene, at, deed, &mut outcome)?;
    }
    Ok(outcome)
}

/// Whether an error is one of a state that lasts.
fn lasts(error: Errno) -> bool {
    [Errno::ENOSPC, Errno::EIO, Errno::EROFS, Errno::EDQUOT, Errno::EACCES].contains(&error)
}

/// Runs the flow, with this deed at this call. Returns whether the run had so many calls.
fn attack(scene: &Scene, at: usize, deed: Deed, outcome: &mut Outcome) -> Result<bool> {
    scene.restore()?;
    let mut interference = Interference { at, deed, hit: None };
    let ran = scene.traced(&mut interference)?;
    let Some((at, call)) = interference.hit else { return Ok(false) };
    outcome.done += 1;
    let now = scene.look()?;
    let wrong = match judged(scene, &ran, &now, deed) {
        None => scene.next_of(&now, at % 2 == 1)?,
        wrong => wrong,
    };
    outcome.findings.extend(
        wrong.map(|wrong| Finding { at: format!("{}, call {at} ({}), {deed}", scene.name(), call.name()), wrong }),
    );
    Ok(true)
}

/// Says what is wrong with the end of a run and what it left.
fn judged(scene: &Scene, ran: &Ran, now: &Files, deed: Deed) -> Option<String> {
    let (begin, end) = (&scene.begin, &scene.end);
    // A compiler that fails has removed what an earlier run had made.
    let absent = scene.flow.build.as_ref().map(|_| begin.without_changes(end));
    let whole: Vec<&Files> = [begin, end].into_iter().chain(&absent).collect();
    let torn = scene.torn(now, &whole);
    let has = |state| scene.torn(now, &[state]).is_empty();
    let said = ran.said.trim_end();
    match ran.end {
        _ if !torn.is_empty() => Some(format!("torn: {torn:?} after {:?}\n{said}", ran.end)),
        End::Exit(0) if !has(end) => Some(format!("the exit code is 0, and it is not done\n{said}")),
        End::Exit(0) => None,
        // Cargo's exit code, too, where a build fails.
        End::Exit(_) if said.contains("panicked at") => Some(format!("it panicked\n{said}")),
        // Something could not be taken back (docs/how-it-works.md), and the message says what.
        End::Exit(4) => None,
        End::Exit(code) if !has(begin) && scene.flow.build.is_none() => {
            Some(format!("the exit code is {code}, and it is done\n{said}"))
        }
        End::Exit(_) => None,
        End::Signal(Signal::SIGKILL) if deed == Deed::Kill => None,
        // Without memory, the libraries end a program: at its start, at a thread's, or where an allocation fails.
        End::Signal(Signal::SIGABRT | Signal::SIGSEGV) if deed == Deed::Fail(Errno::ENOMEM) => None,
        End::Signal(signal) => Some(format!("it died of {signal}\n{said}")),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use super::*;
    use crate::flow::Flow;
    use crate::power::losses;

    static CARELESS: Flow = Flow {
        name: "careless",
        prepare: |folder| fs::write(folder.join("host"), "stock\n").unwrap(),
        before: &[],
        line: "graft",
        back: Some("undo"),
        role: crate::files::in_place,
        build: None,
        linked: None,
    };

    /// Programs that write into the host itself, and say that all is well.
    fn careless(body: &str) -> (tempfile::TempDir, Scene) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        let script = format!("#!/bin/sh\nif [ $1 = undo ]; then echo stock >host; exit; fi\n{body}\n");
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let scene = scene(&path);
        (folder, scene)
    }

    fn scene(program: &Path) -> Scene {
        // Another test's fork may hold the script open for writing for a moment (ETXTBSY).
        (0..100)
            .find_map(|_| {
                std::thread::sleep(std::time::Duration::from_millis(10));
                Scene::new(&CARELESS, program).ok()
            })
            .expect("a scene")
    }

    fn wrong(outcome: &Outcome) -> Vec<&str> {
        outcome.findings.iter().map(|finding| finding.wrong.lines().next().unwrap()).collect()
    }

    /// Threads of a second run made their calls in a different order: the call with that number cannot fail so.
    #[test]
    fn the_next_call_that_fits_fails_once() {
        let call = |number| Call { process: nix::unistd::getpid(), number, arguments: [0; 6] };
        let mut interference = Interference { at: 2, deed: Deed::Fail(Errno::EACCES), hit: None };
        let calls = [libc::SYS_mkdir, libc::SYS_munmap, libc::SYS_mkdir, libc::SYS_mkdir];
        let acts = calls.iter().zip(1..).map(|(number, at)| interference.enters(at, &call(*number)));
        assert_eq!(acts.collect::<Vec<_>>(), [Act::Let, Act::Let, Act::Fail(Errno::EACCES), Act::Let]);
        assert_eq!(interference.hit.map(|(at, _)| at), Some(3));
    }

    #[test]
    fn a_host_that_is_written_in_place_is_torn() {
        let (_folder, scene) = careless("echo graft >host");
        let killed = kills(&scene, Share::ALL).unwrap();
        assert!(killed.done > 20, "{killed:?}");
        assert!(wrong(&killed).iter().any(|wrong| wrong.starts_with("torn: [\"`host` has 0 bytes")), "{killed:?}");
        let lost = losses(&scene, Share::ALL).unwrap();
        assert!(wrong(&lost).iter().any(|wrong| wrong.starts_with("torn: [\"`host` has 3 bytes")), "{lost:?}");
    }

    #[test]
    fn an_exit_code_that_is_not_true_is_found() {
        // Where the file cannot be opened, it does nothing, and says that all is well.
        let (_folder, scene) = careless("command : 3>>host || exit 0\necho graft >host");
        let failed = faults(&scene, Share::ALL).unwrap();
        assert!(failed.done > 20, "{failed:?}");
        assert!(wrong(&failed).contains(&"the exit code is 0, and it is not done"), "{failed:?}");
    }

    #[test]
    fn what_the_next_run_does_not_mend_is_found() {
        let (_folder, scene) = careless("[ -e left ] && exit 1\n: >.allograft-left; echo graft >host; exit 0");
        let killed = kills(&scene, Share { step: 2, rest: 1 }).unwrap();
        assert!(wrong(&killed).iter().any(|wrong| wrong.contains("then ended with")), "{killed:?}");
    }
}

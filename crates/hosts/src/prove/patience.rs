//! The time limit of a test. Processor time counts, not the clock: on a busy machine, a sound test may need a minute to
//! get its few milliseconds. A test that waits for an event that never comes uses no processor time: it is recognised
//! by that, and by its threads, none of which is runnable.

use std::io::ErrorKind;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use std::{fs, io};

use crate::request::Patience;

/// The time after which a test without any activity counts as hanging.
const ASLEEP: Duration = Duration::from_secs(60);
/// The interval between two checks whether a test has ended, and of its processor time.
const LOOK: Duration = Duration::from_millis(2);
const LONG_LOOK: Duration = Duration::from_millis(200);

/// The end of a test.
#[derive(Debug)]
pub(crate) enum End {
    /// The test ended by itself.
    Output(Output),
    /// All threads slept for [`ASLEEP`].
    Asleep,
    /// The test used up the [`Patience`].
    TooSlow,
}

/// Runs a command to its end, without input, or until it is out of time.
///
/// # Errors
/// The command cannot be started.
pub(crate) fn run_to_end(command: &mut Command, patience: Patience) -> io::Result<End> {
    let mut child = spawn(command.stdin(Stdio::null()))?;
    match watched(&mut child, patience)? {
        None => child.wait_with_output().map(End::Output),
        Some(end) => {
            child.kill()?;
            child.wait()?;
            Ok(end)
        }
    }
}

fn watched(child: &mut Child, patience: Patience) -> io::Result<Option<End>> {
    let mut looked = Instant::now();
    let mut last = (Duration::ZERO, Instant::now());
    let mut seen_as = None;
    while child.try_wait()?.is_none() {
        if looked.elapsed() >= LONG_LOOK {
            looked = Instant::now();
            seen_as = seen_as.or_else(|| number_in(Path::new("/proc"), std::process::id(), child.id()));
            let activity = seen_as.map_or_else(Activity::default, Activity::measure);
            if activity.used > patience.0 {
                return Ok(Some(End::TooSlow));
            }
            if activity.is_awake || activity.used != last.0 {
                last = (activity.used, Instant::now());
            } else if last.1.elapsed() > ASLEEP {
                return Ok(Some(End::Asleep));
            }
        }
        sleep(LOOK);
    }
    Ok(None)
}

/// Returns the number under which `proc` has `child`, a child of this process; `None` if it is not there.
///
/// `proc` may belong to an outer namespace of processes, as after `unshare --pid` alone. A process has a different
/// number there, and its own number belongs to an unrelated process. `NSpid` lists a process's numbers in all
/// namespaces, the innermost last (proc_pid_status(5)).
fn number_in(proc: &Path, own: u32, child: u32) -> Option<u32> {
    let this: u32 = fs::read_link(proc.join("self")).ok()?.to_str()?.parse().ok()?;
    if this == own {
        return Some(child);
    }
    let innermost = |process: u32| -> Option<u32> {
        let status = fs::read_to_string(proc.join(process.to_string()).join("status")).ok()?;
        let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
        numbers.split_whitespace().last()?.parse().ok()
    };
    for thread in fs::read_dir(proc.join(this.to_string()).join("task")).ok()?.flatten() {
        let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        let mut children = children.split_whitespace().filter_map(|child| child.parse().ok());
        if let Some(found) = children.find(|other| innermost(*other) == Some(child)) {
            return Some(found);
        }
    }
    None
}

/// The activity of a process and its descendants.
#[derive(Debug, Default)]
struct Activity {
    /// The processor time used.
    used: Duration,
    /// Whether a thread runs, is runnable, or waits for a disk.
    is_awake: bool,
}

impl Activity {
    /// Measures a process. A process that cannot be read has ended meanwhile, and does not count.
    fn measure(process: u32) -> Activity {
        let mut activity = Activity::default();
        let mut due = vec![process];
        while let Some(process) = due.pop() {
            // A parent's time includes the children that it has waited for.
            activity.used += ticks(&format!("/proc/{process}/stat"));
            let threads = fs::read_dir(format!("/proc/{process}/task"));
            for thread in threads.into_iter().flatten().flatten() {
                let state = fields(&thread.path().join("stat").display().to_string());
                activity.is_awake |= state.first().is_some_and(|state| state == "R" || state == "D");
                let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
                due.extend(children.split_whitespace().filter_map(|child| child.parse::<u32>().ok()));
            }
        }
        activity
    }
}

/// The processor time of a process and of the children that it has waited for: fields 14 to 17 of `/proc/PID/stat`
/// (proc(5)), in hundredths of a second.
fn ticks(path: &str) -> Duration {
    let fields = fields(path);
    let ticks = fields.iter().skip(11).take(4).filter_map(|field| field.parse::<u64>().ok());
    Duration::from_millis(10 * ticks.sum::<u64>())
}

/// The fields from the third on, which is the state. The second is the program's name, which may contain blanks.
fn fields(path: &str) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let rest = text.rsplit_once(") ").map_or("", |(_, rest)| rest);
    rest.split_whitespace().map(str::to_owned).collect()
}

/// Starts the program. Tries again while a child of another thread holds its file open for writing.
pub(crate) fn spawn(command: &mut Command) -> std::io::Result<Child> {
    let mut tries = 0;
    loop {
        match command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn() {
            Err(error) if error.kind() == ErrorKind::ExecutableFileBusy && tries < 500 => {
                tries += 1;
                sleep(Duration::from_millis(10));
            }
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_child_has_another_number_in_an_outer_namespace() {
        let proc = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = proc.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        std::os::unix::fs::symlink("500", proc.path().join("self")).unwrap();
        put("500/task/500/children", "501 ");
        put("500/task/503/children", "502 ");
        put("501/status", "Name:\ta\nNSpid:\t501\t8\n");
        put("502/status", "Name:\tb\nNSpid:\t502\t7\n");
        // An unrelated process with the child's number.
        put("7/status", "Name:\tc\nNSpid:\t7\n");
        assert_eq!(number_in(proc.path(), 500, 7), Some(7));
        assert_eq!(number_in(proc.path(), 6, 7), Some(502));
        assert_eq!(number_in(proc.path(), 6, 9), None);
        assert_eq!(number_in(&proc.path().join("none"), 6, 7), None);
    }

    #[test]
    fn a_test_that_ends_has_an_output() {
        match run_to_end(&mut shell("echo done; exit 3"), Patience::default()).unwrap() {
            End::Output(output) => {
                assert_eq!((output.stdout.as_slice(), output.status.code()), (&b"done\n"[..], Some(3)))
            }
            other => panic!("{other:?}"),
        }
    }

    /// The child's time counts too.
    #[test]
    fn a_test_without_an_end_uses_up_the_patience() {
        let patience = Patience(Duration::from_millis(300));
        for script in ["while :; do :; done", "(while :; do :; done) & wait"] {
            let end = run_to_end(&mut shell(&format!("ulimit -t 5; {script}")), patience).unwrap();
            assert!(matches!(end, End::TooSlow), "{script}: {end:?}");
        }
    }

    #[test]
    fn a_process_that_waits_is_asleep_and_one_that_would_run_is_not() {
        for (script, is_awake) in [("exec sleep 100", false), ("ulimit -t 20; while :; do :; done", true)] {
            let mut child = shell(script).spawn().unwrap();
            while Activity::measure(child.id()).is_awake != is_awake {
                sleep(LOOK);
            }
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}

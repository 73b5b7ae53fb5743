//! Runs a program in a folder of its own, with a time limit and a clean environment.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use inspector::Arch;

use crate::Emulator;
use crate::command_path;
use crate::failure::{Failure, FailureKind};
use crate::linker::is_native;

/// The time after a program's own watchdog, for programs that do not react to it.
const GRACE: Duration = Duration::from_secs(15);

/// The way in which programs for one architecture are started here.
#[derive(Debug)]
pub(crate) struct Runner {
    /// `None` if the machine runs them itself.
    emulator: Option<PathBuf>,
    scale_percent: Option<u32>,
}

impl Runner {
    pub(crate) fn find(arch: Arch, emulator: &Emulator, scale_percent: Option<u32>) -> Result<Self, String> {
        let name = if arch == Arch::I686 { "i386".into() } else { arch.name() };
        let names = [format!("qemu-{name}-static"), format!("qemu-{name}")];
        let emulator = match emulator {
            _ if is_native(arch) => None,
            Emulator::Program(program) => Some(program.clone()),
            Emulator::Auto => {
                let missing = || format!("no emulator for {arch} was found: looked for {}", names.join(", "));
                Some(names.iter().find_map(command_path::find).ok_or_else(missing)?)
            }
            Emulator::Never => return Err(format!("programs for {arch} do not run here without an emulator")),
        };
        Ok(Runner { emulator, scale_percent })
    }

    /// Runs `program` in `folder` and returns its time in seconds. A program that takes longer than `seconds` and a
    /// grace period is killed.
    pub(crate) fn run(&self, program: &Path, folder: &Path, seconds: u32) -> Result<f64, Failure> {
        let limit = Duration::from_secs(u64::from(seconds)) + GRACE;
        let failed = |error| Err(Failure::new(FailureKind::Start, format!("does not start: {error}")));
        self.run_within(program, folder, limit).unwrap_or_else(failed)
    }

    /// Runs a program. The outer error concerns starting and waiting, the inner one the program's end.
    fn run_within(&self, program: &Path, folder: &Path, limit: Duration) -> io::Result<Result<f64, Failure>> {
        // Files, not pipes: a program that writes a lot must not wait for a reader.
        let (out, err) = (folder.join("stdout"), folder.join("stderr"));
        let mut command = Command::new(self.emulator.as_deref().unwrap_or(program));
        command.args(self.emulator.as_ref().map(|_| program));
        command.current_dir(folder).stdin(Stdio::null()).stdout(File::create(&out)?).stderr(File::create(&err)?);
        // An allocator reads its own variables. The result must not depend on the user's environment.
        command.env_clear().env("TMPDIR", folder);
        for kept in ["PATH", "ALLOGRAFT_SCALE", "ALLOGRAFT_HANG_SECONDS"] {
            command.envs(std::env::var_os(kept).map(|value| (kept, value)));
        }
        if let Some(percent) = self.scale_percent {
            command.env("ALLOGRAFT_SCALE", percent.to_string());
        }
        // Its own process group, so that its children can be ended with it.
        command.process_group(0);
        let begin = Instant::now();
        let mut child = command.spawn()?;
        let status = wait(&mut child, limit)?;
        let seconds = begin.elapsed().as_secs_f64();
        let (kind, problem) = match status {
            None => (FailureKind::Hang, format!("hang: killed after {seconds:.0} s")),
            Some(status) if status.success() => return Ok(Ok(seconds)),
            Some(status) => ended(status),
        };
        let said = tail(&err).or_else(|| tail(&out)).map_or_else(String::new, |text| format!(": {text}"));
        Ok(Err(Failure::new(kind, format!("{problem}{said}"))))
    }
}

/// Waits for the end. Kills the whole group when the time is over, and then returns `None`.
fn wait(child: &mut Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let begin = Instant::now();
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if begin.elapsed() >= limit {
            if let Some(group) = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw) {
                // The group may have ended at this moment.
                let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
            }
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

fn ended(status: ExitStatus) -> (FailureKind, String) {
    match (status.code(), status.signal()) {
        (Some(code), _) => (FailureKind::Exit(code), format!("ended with exit code {code}")),
        (None, Some(signal)) => (FailureKind::Signal(signal), format!("died of signal {signal}")),
        (None, None) => (FailureKind::Start, "ended in an unknown way".to_owned()),
    }
}

/// Returns the end of a file on one line.
fn tail(path: &Path) -> Option<String> {
    const MOST: u64 = 600;
    let mut file = File::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(MOST))).ok()?;
    let mut bytes = Vec::new();
    file.take(MOST).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn script(folder: &Path, text: &str) -> PathBuf {
        let path = folder.join("program");
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    fn run(text: &str, limit: Duration) -> Result<f64, Failure> {
        let folder = tempfile::tempdir().unwrap();
        let runner = Runner { emulator: None, scale_percent: Some(7) };
        let program = script(folder.path(), text);
        // Another test's fork may hold the script open for writing for a moment (ETXTBSY).
        for _ in 0..100 {
            match runner.run_within(&program, folder.path(), limit) {
                Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                result => return result.unwrap(),
            }
        }
        panic!("the script stayed busy");
    }

    #[test]
    fn a_program_that_hangs_is_killed_with_its_children() {
        let begin = Instant::now();
        let failure = run("echo said >&2; sleep 1000 & sleep 1000", Duration::from_millis(300)).unwrap_err();
        assert_eq!(failure.kind, FailureKind::Hang);
        assert!(failure.detail.starts_with("hang: ") && failure.detail.ends_with(": said"), "{failure:?}");
        assert!(begin.elapsed() < Duration::from_secs(20));
    }

    #[test]
    fn the_exit_code_and_the_last_words_are_told() {
        let limit = Duration::from_secs(60);
        let failure = run("echo FAIL: this >&2; exit 5", limit).unwrap_err();
        assert_eq!(failure, Failure::new(FailureKind::Exit(5), "ended with exit code 5: FAIL: this"));
        let failure = run("kill -ABRT $$", limit).unwrap_err();
        assert_eq!(failure, Failure::new(FailureKind::Signal(6), "died of signal 6"));
        assert!(run("exit 0", limit).is_ok());
    }

    #[test]
    fn the_environment_is_clean_and_scaled() {
        // Cargo sets this variable for every test, so an inherited environment would contain it.
        let clean = "test \"$ALLOGRAFT_SCALE\" = 7 && test -z \"$CARGO_MANIFEST_DIR\"";
        let ended = run(clean, Duration::from_secs(60));
        assert!(ended.is_ok(), "{ended:?}");
    }
}

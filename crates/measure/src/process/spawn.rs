//! Starts programs and collects their output.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use rustix::fs::{MemfdFlags, memfd_create};
use sha2::{Digest, Sha256};

use super::{Compared, Processes};
use crate::case::Invocation;
use crate::executor::{End, RunError, Status};

/// The number of bytes of an output that messages show.
const SHOWN: usize = 300;

/// The output of a program, in memory-backed files: unlike a pipe, they need no reader while it runs.
pub(super) struct Outputs {
    out: File,
    err: File,
}

impl Outputs {
    pub(super) fn new() -> Result<Outputs, RunError> {
        let file = || memfd_create("allograft-output", MemfdFlags::CLOEXEC).map(File::from);
        let failed = |error| RunError::Measuring(format!("no file in memory is available for the output: {error}"));
        Ok(Outputs { out: file().map_err(failed)?, err: file().map_err(failed)? })
    }

    fn stdio(file: &File) -> Result<Stdio, RunError> {
        let copy = file.try_clone();
        copy.map(Stdio::from).map_err(|error| RunError::Measuring(format!("the output cannot be kept: {error}")))
    }

    /// Returns the end of a program, from the status that `wait4` gives.
    pub(super) fn end(mut self, status: i32, processes: &Processes) -> End {
        let status = if libc::WIFSIGNALED(status) {
            Status::Signal(libc::WTERMSIG(status))
        } else {
            Status::Exit(libc::WEXITSTATUS(status))
        };
        // Unreadable output counts as empty. It then differs from the first arm's, if that is readable.
        let (mut digest, mut bytes, head) = digest(&mut self.out);
        if processes.compared != Compared::default() {
            let mut printed = whole(&mut self.out);
            if processes.compared.errors {
                printed.extend(whole(&mut self.err));
            }
            let compared = processes.compared.select(&printed);
            (digest, bytes) = (Sha256::digest(&compared).into(), compared.len() as u64);
        }
        let mut complaint = Vec::new();
        let length = self.err.seek(SeekFrom::End(0)).unwrap_or(0);
        let _ = self.err.seek(SeekFrom::Start(length.saturating_sub(SHOWN as u64)));
        let _ = self.err.read_to_end(&mut complaint);
        End { status, digest, bytes, head: text(&head), complaint: text(&complaint) }
    }
}

fn whole(file: &mut File) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = file.rewind();
    let _ = file.read_to_end(&mut bytes);
    bytes
}

/// Returns the SHA-256 and the length of the file, and its beginning.
fn digest(file: &mut File) -> ([u8; 32], u64, Vec<u8>) {
    let mut hash = Sha256::new();
    let mut bytes = 0;
    let mut head = Vec::new();
    let mut buffer = vec![0; 1 << 16];
    let _ = file.rewind();
    while let Ok(length @ 1..) = file.read(&mut buffer) {
        hash.update(&buffer[..length]);
        bytes += length as u64;
        let room = SHOWN.saturating_sub(head.len()).min(length);
        head.extend_from_slice(&buffer[..room]);
    }
    (hash.finalize().into(), bytes, head)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().replace('\n', " | ")
}

/// Returns the command, in a process group of its own so that all of it can be ended, with empty input.
pub(super) fn command(invocation: &Invocation, outputs: &Outputs, processes: &Processes) -> Result<Command, RunError> {
    let mut command = Command::new(&invocation.program);
    if let Some(folder) = &processes.folder {
        command.current_dir(folder);
    }
    if let Some(environment) = &processes.environment {
        command.env_clear().envs(environment.iter().map(|(name, value)| (name, value)));
    }
    command.args(&invocation.arguments).envs(invocation.environment.iter().map(|(name, value)| (name, value)));
    command.stdin(Stdio::null()).stdout(Outputs::stdio(&outputs.out)?).stderr(Outputs::stdio(&outputs.err)?);
    command.process_group(0);
    Ok(command)
}

/// Starts the command.
pub(super) fn start(command: &mut Command) -> Result<std::process::Child, RunError> {
    command
        .spawn()
        .map_err(|source| RunError::Start { program: command.get_program().to_string_lossy().into_owned(), source })
}

/// Ends the process group of a child that has not been waited for yet.
pub fn end_group(group: u32) {
    if let Ok(group) = i32::try_from(group) {
        // An error means that it has ended meanwhile, which is just as good.
        let _ = nix::sys::signal::killpg(nix::unistd::Pid::from_raw(group), nix::sys::signal::Signal::SIGKILL);
    }
}

//! Runs a graft to test it, from memory or by an emulator, and judges its end. A program is written to memory in parts:
//! a copy in one piece would cost a large program's size once more.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use format::Arch;
use transplant::Executable;

use super::patience::End;
use crate::error::{Error, IoContext};

/// The self-test's output on success (crates/donors/transplant/selftest.c).
pub(crate) const PASSED: &[u8] = b"allograft self-test: ok\n";

/// The copy of a graft that runs its self-test when it is started.
///
/// # Errors
/// The graft has no self-test of this format.
pub(crate) fn copy(host: &Path, graft: &Executable<'_>) -> Result<Vec<u8>, Error> {
    graft.with_self_test().ok_or_else(|| without_self_test(host))
}

/// The error of a graft that has no self-test of this format.
pub(crate) fn without_self_test(host: &Path) -> Error {
    let said = "it has none that this allograft knows how to ask for".to_owned();
    Error::SelfTest { path: host.to_owned(), said }
}

/// Returns the line that reports a passed self-test.
///
/// # Errors
/// The self-test failed, or did not end.
pub(crate) fn judged(host: &Path, end: End, by: &str) -> Result<String, Error> {
    match finished(host, end, "")? {
        output if output.status.success() && output.stdout == PASSED => Ok(format!("passed{by}")),
        output => Err(Error::SelfTest { path: host.to_owned(), said: said(&output) }),
    }
}

/// Returns the output of a test that has ended. `what` begins messages.
///
/// # Errors
/// The test did not end.
pub(crate) fn finished(host: &Path, end: End, what: &str) -> Result<Output, Error> {
    match end {
        End::Output(output) => Ok(output),
        End::Asleep => {
            let said = format!("{what}nothing: all its threads sleep, and nothing wakes them");
            Err(Error::SelfTest { path: host.to_owned(), said })
        }
        End::TooSlow => Err(Error::TooSlow { path: host.to_owned() }),
    }
}

/// A program in memory, which the kernel executes from there.
pub(crate) struct InMemory(File);

impl InMemory {
    /// The path by which this process and its children can open the program.
    pub(crate) fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.0.as_raw_fd())
    }

    pub(crate) fn command(&self, host: &Path) -> Command {
        let mut command = Command::new(self.path());
        command.arg0(host);
        command
    }
}

pub(crate) fn from_memory(host: &Path, program: &[u8]) -> Result<InMemory, Error> {
    from_parts(host, &[program])
}

/// Like [`from_memory`], for a program in several parts.
pub(crate) fn from_parts(host: &Path, parts: &[&[u8]]) -> Result<InMemory, Error> {
    let memory = rustix::fs::memfd_create("allograft", rustix::fs::MemfdFlags::CLOEXEC);
    let memory = memory.map_err(Into::into).context(host, "test the graft of")?;
    let mut writer = File::from(memory);
    parts.iter().try_for_each(|part| writer.write_all(part)).context(host, "test the graft of")?;
    // The kernel does not execute a file that is open for writing.
    let path = format!("/proc/self/fd/{}", writer.as_raw_fd());
    let reader = File::open(&path).context(host, "test the graft of")?;
    // Not closed on exec: in a container for a different architecture, the kernel starts an emulator with this path,
    // and the emulator opens it.
    rustix::io::fcntl_setfd(&reader, rustix::io::FdFlags::empty())
        .map_err(Into::into)
        .context(host, "test the graft of")?;
    Ok(InMemory(reader))
}

/// Runs a program for a different architecture: directly, if an emulator is registered with the kernel, else by QEMU
/// from the command path. Returns the result of `start`, and which emulator ran.
pub(crate) fn foreign<T>(
    host: &Path,
    arch: Arch,
    start: impl Fn(Option<&Path>) -> std::io::Result<T>,
) -> Result<(T, String), Error> {
    const ENOEXEC: i32 = 8;
    match start(None) {
        Ok(done) => return Ok((done, String::new())),
        // On a `noexec` file system, an emulator can still read the program.
        Err(error) if error.raw_os_error() == Some(ENOEXEC) || error.kind() == ErrorKind::PermissionDenied => {}
        Err(error) => return Err(error).context(host, "test the graft of"),
    }
    let names = [format!("qemu-{arch}-static"), format!("qemu-{arch}")];
    let on_path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&on_path).collect();
    let emulator = names.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    let Some(emulator) = emulator.into_iter().find(|path| path.is_file()) else {
        return Err(Error::Untested { path: host.to_owned(), arch, loader: None });
    };
    let name = emulator.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let done = start(Some(&emulator)).context(host, "test the graft of")?;
    Ok((done, format!(" (by {name})")))
}

pub(crate) fn said(output: &Output) -> String {
    let text = [output.stdout.as_slice(), &output.stderr].concat();
    let text = String::from_utf8_lossy(&text[..text.len().min(400)]).trim().to_owned();
    match output.status.signal() {
        Some(signal) => format!("{text} (signal {signal})"),
        None => format!("{text} (exit code {})", output.status.code().unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_slow_to_tell_is_another_answer_than_wrong() {
        let judge = |end| judged(Path::new("program"), end, "").unwrap_err();
        let (slow, asleep) = (judge(End::TooSlow), judge(End::Asleep));
        assert!(matches!(slow, Error::TooSlow { .. }) && matches!(asleep, Error::SelfTest { .. }));
        assert_eq!((slow.exit_code(), asleep.exit_code()), (3, 3));
        assert_eq!(
            slow.to_string(),
            "the self-test of the graft of `program` took too long to tell whether the graft is right"
        );
        assert!(asleep.to_string().contains("failed its self-test: nothing: all its threads sleep"), "{asleep}");
    }
}

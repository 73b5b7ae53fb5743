//! Runs a grafted executable before it replaces its stock file: its self-test, and the user's own trial.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;

use format::{Arch, Linked};
use transplant::{Executable, Refusal};

use crate::error::{Error, IoContext};
use crate::needed::Destination;
use crate::patience::{End, Patience, run_to_end};
use crate::record::{folder_of, temporary};
use crate::{loader_test, merged_test, needed};

/// The self-test's output on success (crates/donors/transplant/selftest.c).
pub(crate) const PASSED: &[u8] = b"allograft self-test: ok\n";
/// The variable by which QEMU finds the root folder of a program that it runs.
pub(crate) const EMULATED_ROOT: &str = "QEMU_LD_PREFIX";

/// Runs the graft's self-test, in a copy that differs in the one byte that asks for it: the kernel loads the copy, the
/// donor's start routine relocates itself, and instead of the program the malloc family is called through the program's
/// own entry points. Nothing else of the program is run. A dynamic loader starts a program of ours instead; in a
/// dynamic program, a library of ours takes the place of its main. `root` is the root folder that the program's paths
/// start in, if it is not this system's. Says what was done.
///
/// # Errors
/// A test that failed, a file that has no self-test of this format, what the system does not let be tried, and a
/// program for another architecture that neither the kernel nor an emulator runs ([`Error::Untested`]).
pub fn self_test(host: &Path, root: Option<&Path>, graft: &[u8], patience: Patience) -> Result<String, Error> {
    let graft = executable(host, graft)?;
    let moved = needed::moved(host, Destination::in_place(host, root), &graft)?;
    match &moved {
        Some(moved) => run(host, root, &moved.read(host)?, patience),
        None => run(host, root, &graft, patience),
    }
}

/// The same of a program that finds what it loads.
pub(crate) fn run(
    host: &Path,
    root: Option<&Path>,
    graft: &Executable<'_>,
    patience: Patience,
) -> Result<String, Error> {
    match graft.kind() {
        Linked::Program => run_program(host, graft, patience),
        Linked::Loader => loader_test::run(host, graft, patience),
        Linked::Dynamic => merged_test::run(host, root, graft, patience),
        Linked::Library => Err(Error::Executable { path: host.to_owned(), refusal: Refusal::Library }),
    }
}

/// The copy of a graft that runs its self-test.
///
/// # Errors
/// It has no self-test of this format.
pub(crate) fn copy(host: &Path, graft: &Executable<'_>) -> Result<Vec<u8>, Error> {
    graft.with_self_test().ok_or_else(|| Error::SelfTest {
        path: host.to_owned(),
        said: "it has none that this allograft knows how to ask for".to_owned(),
    })
}

fn run_program(host: &Path, graft: &Executable<'_>, patience: Patience) -> Result<String, Error> {
    let (copy, arch) = (copy(host, graft)?, graft.arch());
    let test = |mut command: Command| run_to_end(command.env_clear(), patience);
    let (output, by) = match std::env::consts::ARCH == arch.name() {
        true => (test(from_memory(host, &copy)?.command(host)).context(host, "test the graft of")?, String::new()),
        false => {
            let folder = tempfile::tempdir().context(host, "test the graft of")?;
            let program = folder.path().join("graft");
            fs::write(&program, &copy).context(host, "test the graft of")?;
            let mode = fs::Permissions::from_mode(0o700);
            fs::set_permissions(&program, mode).context(host, "test the graft of")?;
            foreign(host, arch, |emulator| {
                let mut command = Command::new(emulator.unwrap_or(&program));
                command.args(emulator.map(|_| &program));
                test(command)
            })?
        }
    };
    judged(host, output, &by)
}

/// Says that a self-test has passed.
///
/// # Errors
/// It failed, or did not end.
pub(crate) fn judged(host: &Path, end: End, by: &str) -> Result<String, Error> {
    match finished(host, end, "")? {
        output if output.status.success() && output.stdout == PASSED => Ok(format!("passed{by}")),
        output => Err(Error::SelfTest { path: host.to_owned(), said: said(&output) }),
    }
}

/// Returns the output of a test that has ended. `what` begins messages.
///
/// # Errors
/// It did not end.
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

/// Reads an executable, which is spoken of as `host`.
///
/// # Errors
/// It cannot be read.
pub(crate) fn executable<'b>(host: &Path, bytes: &'b [u8]) -> Result<Executable<'b>, Error> {
    Executable::read(bytes).map_err(|refusal| Error::Executable { path: host.to_owned(), refusal })
}

/// A program in memory, which the kernel executes from there.
pub(crate) struct InMemory(File);

impl InMemory {
    /// The path by which this process and its children open it.
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
    let memory = rustix::fs::memfd_create("allograft", rustix::fs::MemfdFlags::CLOEXEC);
    let memory = memory.map_err(Into::into).context(host, "test the graft of")?;
    let mut writer = File::from(memory);
    writer.write_all(program).context(host, "test the graft of")?;
    // The kernel executes nothing that is open for writing.
    let path = format!("/proc/self/fd/{}", writer.as_raw_fd());
    let reader = File::open(&path).context(host, "test the graft of")?;
    // Where all programs are emulated, as in a container for another architecture, the kernel starts the emulator with
    // this path, and the emulator opens it.
    rustix::io::fcntl_setfd(&reader, rustix::io::FdFlags::empty())
        .map_err(Into::into)
        .context(host, "test the graft of")?;
    Ok(InMemory(reader))
}

/// Runs a program for another architecture: by itself, where the kernel has been told of an emulator, else by QEMU's
/// from the command path. With what `start` gave, which emulator it was.
pub(crate) fn foreign<T>(
    host: &Path,
    arch: Arch,
    start: impl Fn(Option<&Path>) -> std::io::Result<T>,
) -> Result<(T, String), Error> {
    const ENOEXEC: i32 = 8;
    match start(None) {
        Ok(done) => return Ok((done, String::new())),
        // Where programs may not be executed, an emulator may read them.
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

/// Runs stock and graft, which are for `arch`, with these arguments, without input, and compares what they print and
/// how they end. The graft lies beside the stock file meanwhile, and gets the same `argv[0]`.
///
/// # Errors
/// They differ, or cannot be run.
pub(crate) fn compare(
    host: &Path,
    root: Option<&Path>,
    arch: Arch,
    stock_and_graft: [&[u8]; 2],
    arguments: &[OsString],
) -> Result<String, Error> {
    let mut outputs = Vec::new();
    for bytes in stock_and_graft {
        let file = temporary(host, |name| {
            use std::os::unix::fs::OpenOptionsExt;
            File::options().write(true).create_new(true).mode(0o700).open(name)
        });
        let mut file = file.context(host, "write beside")?;
        file.as_file_mut().write_all(bytes).context(host, "write beside")?;
        let mode = fs::metadata(host).context(host, "read")?.permissions().mode() & 0o777 | 0o500;
        file.as_file().set_permissions(fs::Permissions::from_mode(mode)).context(host, "write beside")?;
        let path = file.into_temp_path();
        let program = folder_of(&path).join(path.file_name().unwrap_or_default());
        let start = |emulator: Option<&Path>| {
            let mut command = Command::new(emulator.unwrap_or(&program));
            match emulator {
                Some(_) => command.arg(&program),
                None => command.arg0(host),
            };
            command.args(arguments).stdin(Stdio::null());
            command.envs(root.map(|root| (EMULATED_ROOT, root)));
            spawn(&mut command).and_then(Child::wait_with_output)
        };
        let output = match std::env::consts::ARCH == arch.name() {
            true => start(None).context(host, "run")?,
            false => foreign(host, arch, start)?.0,
        };
        outputs.push(output);
    }
    let [stock, graft] = outputs.as_slice() else { unreachable!("two were run") };
    let differs = match () {
        () if stock.status != graft.status => {
            format!("stock ended with {}, the graft with {}", stock.status, graft.status)
        }
        () if stock.stdout != graft.stdout => {
            let at = stock.stdout.iter().zip(&graft.stdout).take_while(|(one, other)| one == other).count();
            format!(
                "they print something else from byte {at} on ({} and {} bytes)",
                stock.stdout.len(),
                graft.stdout.len()
            )
        }
        () => {
            let errors = if stock.stderr == graft.stderr { "" } else { "; what they say on standard error differs" };
            return Ok(format!(
                "with these arguments: {} and the same {} bytes{errors}",
                stock.status,
                stock.stdout.len()
            ));
        }
    };
    Err(Error::Differs { path: host.to_owned(), differs })
}

pub(crate) fn said(output: &Output) -> String {
    let text = [output.stdout.as_slice(), &output.stderr].concat();
    let text = String::from_utf8_lossy(&text[..text.len().min(400)]).trim().to_owned();
    match output.status.signal() {
        Some(signal) => format!("{text} (signal {signal})"),
        None => format!("{text} (exit code {})", output.status.code().unwrap_or_default()),
    }
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

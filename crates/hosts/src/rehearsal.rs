//! What a grafted executable has to do before it takes the place of its stock file.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::error::{Error, IoContext};
use crate::record::{folder_of, temporary};

/// What the self-test says when all is well (crates/donors/transplant/selftest.c).
const PASSED: &[u8] = b"allograft self-test: ok\n";
/// It takes some milliseconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs the graft's self-test out of memory: the kernel loads the new file, the donor's start routine relocates itself, and
/// instead of the program the malloc family is called through the program's own entry points. Nothing of the program's is
/// run. Says what was done.
///
/// # Errors
/// A test that failed, and what the system does not let be tried.
pub fn self_test(host: &Path, stock: &[u8], graft: &[u8]) -> Result<String, Error> {
    if std::env::consts::ARCH != "x86_64" {
        return Ok("left out, as this machine does not run x86_64 programs".to_owned());
    }
    let memory = rustix::fs::memfd_create("allograft", rustix::fs::MemfdFlags::CLOEXEC);
    let memory = memory.map_err(Into::into).context(host, "test the graft of")?;
    let mut writer = File::from(memory);
    writer.write_all(graft).context(host, "test the graft of")?;
    // The kernel executes nothing that is open for writing.
    let path = format!("/proc/self/fd/{}", writer.as_raw_fd());
    let reader = File::open(&path).context(host, "test the graft of")?;
    drop(writer);
    let mut command = Command::new(format!("/proc/self/fd/{}", reader.as_raw_fd()));
    command.arg0(host).env_clear().env("ALLOGRAFT_SELF_TEST", format!("{:x}", transplant::secret(stock)));
    let output = run(&mut command).context(host, "test the graft of")?;
    match output {
        Some(output) if output.status.success() && output.stdout == PASSED => Ok("passed".to_owned()),
        Some(output) => Err(Error::SelfTest { path: host.to_owned(), said: said(&output) }),
        None => Err(Error::SelfTest { path: host.to_owned(), said: "nothing, for a minute".to_owned() }),
    }
}

/// Runs stock and graft with these arguments, without input, and compares what they print and how they end. The graft lies
/// beside the stock file meanwhile, and is told the same name.
pub(crate) fn compare(host: &Path, stock: &[u8], graft: &[u8], arguments: &[OsString]) -> Result<String, Error> {
    let mut outputs = Vec::new();
    for bytes in [stock, graft] {
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
        let mut command = Command::new(program);
        command.arg0(host).args(arguments).stdin(Stdio::null());
        let output = spawn(&mut command).and_then(Child::wait_with_output).context(host, "run")?;
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

fn said(output: &Output) -> String {
    let text = [output.stdout.as_slice(), &output.stderr].concat();
    let text = String::from_utf8_lossy(&text[..text.len().min(400)]).trim().to_owned();
    match output.status.signal() {
        Some(signal) => format!("{text} (signal {signal})"),
        None => format!("{text} (exit code {})", output.status.code().unwrap_or_default()),
    }
}

/// Another thread's child may hold a file open for writing for a moment.
fn spawn(command: &mut Command) -> std::io::Result<Child> {
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

/// Nothing, if it does not end.
fn run(command: &mut Command) -> std::io::Result<Option<Output>> {
    let mut child = spawn(command.stdin(Stdio::null()))?;
    let begin = Instant::now();
    while child.try_wait()?.is_none() {
        if begin.elapsed() > PATIENCE {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        sleep(Duration::from_millis(2));
    }
    child.wait_with_output().map(Some)
}

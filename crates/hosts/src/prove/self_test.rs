//! Runs a grafted executable before it replaces its stock file: its self-test, and the user's own trial. No reader of
//! bytes can show that the kernel loads the file and that the donor starts in it.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use format::{Arch, Linked};
use transplant::{Executable, Refusal};

use crate::error::{Error, IoContext};
use crate::file::names::folder_of;
use crate::file::temporaries::temporary;
use crate::host::executable::parsed;
use crate::host::needed::Destination;
use crate::prove::patience::{run_to_end, spawn};
use crate::prove::program_copy::program_copy;
use crate::prove::runner::{foreign, from_parts, judged, without_self_test};
use crate::prove::{loader, merged};
use crate::request::Patience;
use crate::system::EMULATED_ROOT;

/// Runs the graft's self-test, in a copy that differs in the one byte that requests it: the kernel loads the copy, the
/// donor's start routine relocates itself, and instead of the program, a test calls the malloc family through the
/// program's own entry points. No other code of the program runs. A dynamic loader starts a test program instead; in a
/// dynamic program, a test library takes the place of main. `root` is the root folder of the program's paths, if it is
/// not this system's. Returns the outcome for the report.
///
/// # Errors
/// The test failed, the file has no self-test of this format, the system does not permit the test, or neither the
/// kernel nor an emulator runs the program's architecture ([`Error::Untested`]).
pub fn self_test(host: &Path, root: Option<&Path>, graft: &[u8], patience: Patience) -> Result<String, Error> {
    let graft = parsed(host, graft)?;
    let copy = program_copy(host, Destination::in_place(host, root), &graft)?;
    match &copy {
        Some(copy) => run(host, root, &copy.read(host)?, patience),
        None => run(host, root, &graft, patience),
    }
}

/// Runs the self-test of a program whose libraries are in place.
pub(crate) fn run(
    host: &Path,
    root: Option<&Path>,
    graft: &Executable<'_>,
    patience: Patience,
) -> Result<String, Error> {
    match graft.kind() {
        Linked::Program => run_program(host, graft, patience),
        Linked::Loader => loader::run(host, graft, patience),
        Linked::Dynamic => merged::run(host, root, graft, patience),
        Linked::Library => Err(Error::Executable { path: host.to_owned(), refusal: Refusal::Library }),
    }
}

fn run_program(host: &Path, graft: &Executable<'_>, patience: Patience) -> Result<String, Error> {
    let (parts, arch) = (graft.self_test_parts().ok_or_else(|| without_self_test(host))?, graft.arch());
    let test = |mut command: Command| run_to_end(command.env_clear(), patience);
    let (output, by) = match std::env::consts::ARCH == arch.name() {
        true => (test(from_parts(host, &parts)?.command(host)).context(host, "test the graft of")?, String::new()),
        false => {
            let folder = tempfile::tempdir().context(host, "test the graft of")?;
            let program = folder.path().join("graft");
            let write = |mut file: File| parts.iter().try_for_each(|part| file.write_all(part));
            File::create(&program).and_then(write).context(host, "test the graft of")?;
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

/// Runs stock and graft, which are for `arch`, with these arguments and without input, and compares their output and
/// exit status. The graft is beside the stock file meanwhile, and gets the same `argv[0]`.
///
/// # Errors
/// They behave differently, or cannot be run.
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
            format!("their outputs differ from byte {at} on ({} and {} bytes)", stock.stdout.len(), graft.stdout.len())
        }
        () => {
            let errors = match (stock.stderr == graft.stderr, stock.stdout.is_empty() && stock.stderr.is_empty()) {
                (false, _) => "; their standard error differs",
                (true, true) => "; both print nothing, which proves little",
                (true, false) if !stock.status.success() => "; both fail, which proves little if that was not meant",
                (true, false) if stock.stdout.is_empty() => ", and the same on standard error",
                (true, false) => "",
            };
            return Ok(format!(
                "with these arguments: {} and the same {} bytes{errors}",
                stock.status,
                stock.stdout.len()
            ));
        }
    };
    Err(Error::Differs { path: host.to_owned(), differs })
}

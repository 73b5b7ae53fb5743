//! Runs a dynamic program that a donor was merged into, before it replaces its stock file: a library of allograft's
//! takes the place of its main.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use format::Arch;

use crate::error::{Error, IoContext};
use crate::record::{folder_of, temporary};
use crate::self_test::{PASSED, from_memory, run_to_end, said};

/// Has a copy of the program load a library that tests the malloc family as libraries see it: threads, fork while
/// threads allocate, and that each function is the program's. The constructors of its libraries run; nothing of the
/// program itself does. Says what was done.
///
/// # Errors
/// A test that failed, and a program that this machine cannot start.
pub(crate) fn run(host: &Path, arch: Arch, graft: &[u8]) -> Result<String, Error> {
    let failed = |said: String| Error::SelfTest { path: host.to_owned(), said };
    let test = donors::merged_test(arch).ok_or_else(|| failed(format!("there is none for {arch}")))?;
    if std::env::consts::ARCH != arch.name() {
        return Err(Error::Untested { path: host.to_owned(), arch });
    }
    let copy = transplant::with_self_test(graft);
    let copy = copy.ok_or_else(|| failed("it has none that this allograft knows how to ask for".to_owned()))?;
    let library = from_memory(host, test)?;
    let run = |mut command: Command| {
        command.env_clear().env("LD_PRELOAD", library.path());
        // Whoever needs this variable to start the program has it now.
        command.envs(std::env::var_os("LD_LIBRARY_PATH").map(|path| ("LD_LIBRARY_PATH", path)));
        run_to_end(&mut command).context(host, "test the graft of")
    };
    let output = if transplant::may_search_beside_itself(graft) {
        let file = temporary(host, |name| File::options().write(true).create_new(true).mode(0o700).open(name));
        let mut file = file.context(host, "write beside")?;
        file.as_file_mut().write_all(&copy).context(host, "write beside")?;
        file.as_file().set_permissions(fs::Permissions::from_mode(0o700)).context(host, "write beside")?;
        let path = file.into_temp_path();
        run(Command::new(folder_of(&path).join(path.file_name().unwrap_or_default())))?
    } else {
        run(from_memory(host, &copy)?.command(host))?
    };
    match output {
        Some(output) if output.status.success() && output.stdout == PASSED => Ok("passed".to_owned()),
        Some(output) => Err(failed(said(&output))),
        None => Err(failed("nothing, for a minute".to_owned())),
    }
}

//! Runs a dynamic program that a donor was merged into, or that loads one, before it replaces its stock file: a test
//! library that allograft carries takes the place of its main, so that no code of the program itself runs.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempPath;
use transplant::Executable;

use crate::error::{Error, IoContext};
use crate::file::names::folder_of;
use crate::file::temporaries::temporary;
use crate::prove::patience::{End, run_to_end};
use crate::prove::runner::{copy, foreign, from_memory, judged};
use crate::request::Patience;
use crate::system::EMULATED_ROOT;
use crate::system::root::resolve;

/// Has a copy of the program load a library that tests the malloc family as libraries see it: threads, fork while
/// threads allocate, and that the donor serves each function. The constructors of the program's libraries run; no code
/// of the program itself does. `root` is the program's root folder, if it is not this system's. Returns the outcome for
/// the report.
///
/// # Errors
/// The test failed, or this machine cannot start the program.
pub(crate) fn run(
    host: &Path,
    root: Option<&Path>,
    graft: &Executable<'_>,
    patience: Patience,
) -> Result<String, Error> {
    let arch = graft.arch();
    let failed = |said: String| Error::SelfTest { path: host.to_owned(), said };
    let test = donors::merged_test(arch).ok_or_else(|| failed(format!("there is none for {arch}")))?;
    let copy = copy(host, graft)?;
    let file = graft.may_search_beside_itself().then(|| beside(host, &copy)).transpose()?;
    // The path needs a slash: otherwise the program would be searched for on the command path.
    let beside = file.as_ref().map(|path| folder_of(path).join(path.file_name().unwrap_or_default()));
    let (output, by) = match std::env::consts::ARCH == arch.name() {
        true => {
            let library = from_memory(host, test)?;
            let run = |mut command: Command| {
                command.env_clear().env("LD_PRELOAD", library.path()).envs(kept());
                run_to_end(&mut command, patience).context(host, "test the graft of")
            };
            let output = match &beside {
                Some(path) => run(Command::new(path))?,
                None => run(from_memory(host, &copy)?.command(host))?,
            };
            (output, String::new())
        }
        false => emulated(host, root, graft, (&copy, beside.as_deref(), test), patience)?,
    };
    judged(host, output, &by)
}

/// Environment variables that the program may need to start; passed on if set.
fn kept() -> impl Iterator<Item = (&'static str, OsString)> {
    ["LD_LIBRARY_PATH"].into_iter().filter_map(|name| Some((name, std::env::var_os(name)?)))
}

/// Writes a copy of the program beside it.
fn beside(host: &Path, copy: &[u8]) -> Result<TempPath, Error> {
    let file = temporary(host, |name| File::options().write(true).create_new(true).mode(0o700).open(name));
    let mut file = file.context(host, "write beside")?;
    file.as_file_mut().write_all(copy).context(host, "write beside")?;
    file.as_file().set_permissions(fs::Permissions::from_mode(0o700)).context(host, "write beside")?;
    Ok(file.into_temp_path())
}

/// Runs the test of a program for a different architecture. The program's own paths are resolved in the root folder, or
/// in the one that the user has set for the emulator.
fn emulated(
    host: &Path,
    root: Option<&Path>,
    graft: &Executable<'_>,
    (copy, beside, test): (&[u8], Option<&Path>, &[u8]),
    patience: Patience,
) -> Result<(End, String), Error> {
    let root = root.map(Path::to_owned).or_else(|| std::env::var_os(EMULATED_ROOT).map(PathBuf::from));
    let (arch, loader) = (graft.arch(), graft.interpreter().unwrap_or_default());
    let loader = Path::new(OsStr::from_bytes(loader));
    let is_there = |root: &Path| resolve(root, loader).is_ok_and(|path| path.is_file());
    if !root.as_deref().is_some_and(is_there) && !is_there(Path::new("/")) {
        let loader = Some(loader.display().to_string());
        return Err(Error::Untested { path: host.to_owned(), arch, loader });
    }
    let folder = tempfile::tempdir().context(host, "test the graft of")?;
    let [program, library] = ["program", "library.so"].map(|name| folder.path().join(name));
    for (path, bytes) in [(&program, copy), (&library, test)] {
        fs::write(path, bytes).context(host, "test the graft of")?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o700)).context(host, "test the graft of")?;
    }
    let program = beside.unwrap_or(&program);
    let preload = ("LD_PRELOAD", library.into_os_string());
    foreign(host, arch, |emulator| -> io::Result<End> {
        let variables = kept().chain([preload.clone()]);
        let mut command = Command::new(emulator.unwrap_or(program));
        command.env_clear().envs(root.as_ref().map(|root| (EMULATED_ROOT, root)));
        match emulator {
            // Set for the program only, since the emulator may be dynamic itself.
            Some(_) => {
                for (name, value) in variables {
                    command
                        .arg("-E")
                        .arg([OsStr::new(name), OsStr::new("="), &value].into_iter().collect::<OsString>());
                }
                command.arg(program);
            }
            None => drop(command.envs(variables)),
        }
        run_to_end(&mut command, patience)
    })
}

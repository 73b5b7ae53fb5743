//! Runs a grafted dynamic loader before it replaces its stock file: the loader starts a small test program that
//! allograft carries, and then a program of its own system. It needs no compiler and no musl system here: program and
//! library are built with allograft.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use donors::LoaderTest;
use transplant::Executable;

use crate::error::{Error, IoContext};
use crate::file::signature::{Signature, signature};
use crate::prove::patience::run_to_end;
use crate::prove::runner::{finished, foreign, from_memory, judged, said};
use crate::request::Patience;
use crate::system::root;

/// Programs of small systems, the most likely first, each with arguments that make it exit at once.
const PROGRAMS: [(&str, &[&str]); 5] = [
    ("bin/busybox", &["true"]),
    ("bin/true", &[]),
    ("usr/bin/true", &[]),
    ("sbin/apk", &["--version"]),
    ("usr/bin/apk", &["--version"]),
];
/// The folders in which musl's loader looks for libraries (ldso/dynlink.c).
const LIBRARIES: [&str; 3] = ["lib", "usr/local/lib", "usr/lib"];

/// Has the grafted loader start a program that uses the malloc family, threads, keys, a library with thread-local
/// storage, and fork. Returns the outcome for the report.
///
/// # Errors
/// The test failed, the system does not permit it, or neither the kernel nor an emulator runs the loader's architecture
/// ([`Error::Untested`]).
pub(crate) fn run(host: &Path, graft: &Executable<'_>, patience: Patience) -> Result<String, Error> {
    let (arch, graft) = (graft.arch(), graft.bytes());
    let failed = |said: String| Error::SelfTest { path: host.to_owned(), said };
    let test = LoaderTest::for_arch(arch).ok_or_else(|| failed(format!("there is none for {arch}")))?;
    let (output, by) = if std::env::consts::ARCH == arch.name() {
        let files = [graft, test.program(), test.library()].map(|bytes| from_memory(host, bytes));
        let [loader, program, library] = files;
        let (loader, program, library) = (loader?, program?, library?);
        let mut command = Command::new(loader.path());
        command.args([program.path(), library.path()]).env_clear();
        (run_to_end(&mut command, patience).context(host, "test the graft of")?, String::new())
    } else {
        let folder = tempfile::tempdir().context(host, "test the graft of")?;
        let [loader, program, library] = ["loader", "program", "library"].map(|name| folder.path().join(name));
        for (path, bytes) in [(&loader, graft), (&program, test.program()), (&library, test.library())] {
            fs::write(path, bytes).context(host, "test the graft of")?;
            let mode = fs::Permissions::from_mode(0o700);
            fs::set_permissions(path, mode).context(host, "test the graft of")?;
        }
        foreign(host, arch, |emulator| {
            let mut command = Command::new(emulator.unwrap_or(&loader));
            command.args(emulator.map(|_| &loader)).args([&program, &library]).env_clear();
            run_to_end(&mut command, patience)
        })?
    };
    judged(host, output, &by)
}

/// Has the grafted loader start a program of its own system, whose root is `root` or else the folder above the loader's
/// `lib`. Returns the outcome for the report, also if no program was found.
///
/// # Errors
/// The program exits differently than with the stock loader.
pub(crate) fn start_program(
    host: &Path,
    root: Option<&Path>,
    stock: &[u8],
    graft: &Executable<'_>,
    patience: Patience,
) -> Result<String, Error> {
    let none = || Ok("found no dynamic program of its system to start".to_owned());
    let Some(root) = root.map(Path::to_owned).or_else(|| root_of(host)) else { return none() };
    let arch = graft.arch();
    if std::env::consts::ARCH != arch.name() {
        return none();
    }
    let wanted = format!("/ld-musl-{arch}.so.1");
    let found = PROGRAMS.iter().find_map(|(name, arguments)| {
        let path = root::resolve(&root, Path::new(name)).ok()?;
        is_dynamic(&path, &wanted).then_some((path, *arguments))
    });
    let Some((program, arguments)) = found else { return none() };
    let libraries: Vec<PathBuf> = LIBRARIES.iter().map(|folder| root.join(folder)).collect();
    let libraries: Vec<&OsStr> = libraries.iter().map(|folder| folder.as_os_str()).collect();
    let started = format!("`{}` started by it: ", program.display());
    let run = |loader: &[u8]| -> Result<Output, Error> {
        let loader = from_memory(host, loader)?;
        let mut command = Command::new(loader.path());
        command.arg("--library-path").arg(libraries.join(OsStr::new(":"))).arg("--").arg(&program).args(arguments);
        let end = run_to_end(command.env_clear(), patience).context(host, "test the graft of")?;
        finished(host, end, &started)
    };
    let (before, after) = (run(stock)?, run(graft.bytes())?);
    if before.status == after.status && before.stdout == after.stdout {
        return Ok(format!("{started}{}, as by stock", after.status));
    }
    Err(Error::SelfTest { path: host.to_owned(), said: format!("{started}{}", said(&after)) })
}

/// The root folder of a loader at `host`: the folder that holds its `lib`.
fn root_of(host: &Path) -> Option<PathBuf> {
    let host = host.canonicalize().ok()?;
    let lib = host.ancestors().skip(1).find(|folder| folder.file_name() == Some(OsStr::new("lib")))?;
    let root = lib.parent()?;
    let merged = root.file_name() == Some(OsStr::new("usr"));
    Some(if merged { root.parent()?.to_owned() } else { root.to_owned() })
}

/// Whether a file is a program whose interpreter's path ends with `interpreter`.
fn is_dynamic(path: &Path, interpreter: &str) -> bool {
    let executable = matches!(signature(path), Ok(Signature::Executable));
    let bytes = if executable { fs::read(path).unwrap_or_default() } else { Vec::new() };
    let program = Executable::read(&bytes).ok();
    program.and_then(|program| program.interpreter()).is_some_and(|found| found.ends_with(interpreter.as_bytes()))
}

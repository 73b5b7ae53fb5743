//! Whether a file is the dynamic loader of the running system. Replacing that one needs a confirmation: a mistake in it
//! stops every dynamic program.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use format::Arch;

use crate::error::{Error, IoContext};

/// The evidence that musl's dynamic loader at `host` is in use on this system, as a clause whose subject is the file;
/// `None` if it is not in use, as far as this user can see.
///
/// # Errors
/// The file cannot be read.
pub(crate) fn use_of(host: &Path, arch: Arch) -> Result<Option<String>, Error> {
    let own = fs::metadata(host).context(host, "read")?;
    let system = PathBuf::from(format!("/lib/ld-musl-{arch}.so.1"));
    if fs::metadata(&system).is_ok_and(|other| (other.dev(), other.ino()) == (own.dev(), own.ino())) {
        return Ok(Some(format!("`{}` is it", system.display())));
    }
    let path = host.canonicalize().context(host, "read")?;
    Ok(user(&path).map(|process| format!("process {process} runs by it")))
}

/// A process that has mapped the file at that path, by `/proc/PID/maps` (proc_pid_maps(5)); `None` if this user may
/// read the maps of no such process.
fn user(path: &Path) -> Option<u32> {
    let maps = |process: u32| {
        let file = fs::File::open(format!("/proc/{process}/maps")).ok()?;
        let mut lines = BufReader::new(file).lines().map_while(Result::ok);
        lines
            .any(|line| line.split_once('/').is_some_and(|(_, rest)| Path::new(&format!("/{rest}")) == path))
            .then_some(())
    };
    let processes = fs::read_dir("/proc").ok()?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let own = std::process::id();
    processes.filter(|process| *process != own).find(|process| maps(*process).is_some())
}

//! The private grafted copies of `libc.a`s, in the user's cache folder.
//!
//! A compiler's own `libc.a` is not grafted in place: it may belong to the system, and other builds link it unchanged.

use std::env;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use hosts::{Candidate, Error, Request};
use surgery::plan::Refusal;

use super::HELP;
use crate::failure::Failure;
use crate::output::Output;
use crate::signals::Cleanup;

/// Help for a cache folder that cannot be written to.
const ANOTHER_CACHE: &str =
    "set XDG_CACHE_HOME to a folder that can be written to: the grafted libc.a is kept there, and made only once";

/// Returns the folder that holds the graft of `libc` as `libc.a`, and makes the graft if this is the first time. Its
/// name is a checksum of all that the graft depends on: the archive, the donors with their options, and this program.
///
/// Any number of processes may do this at once. A file of that name is complete, since it gets its name last. The
/// checksum beside it is written after that: without it, or with half of it, the copy is made again, as is one that was
/// changed or cut since then.
///
/// # Errors
/// When the archive cannot be grafted, or the cache folder cannot be written to.
pub(in crate::command) fn folder(
    libc: &Path,
    candidates: &[Candidate],
    strings: Option<bool>,
    output: &Output,
) -> Result<PathBuf, Unmade> {
    let bytes = fs::read(libc).map_err(Failure::io("read", libc))?;
    let chosen: Vec<_> = candidates.iter().map(|one| (one.donor.name, one.donor.version, &one.settings)).collect();
    let key = format!("{} {chosen:?} {strings:?} {} {}", hosts::sha256(&bytes), hosts::VERSION, build()?);
    let all = cache()?.join("allograft/cc");
    let folder = all.join(&hosts::sha256(key.as_bytes())[..32]);
    let file = folder.join("libc.a");
    if is_whole(&file) {
        return Ok(folder);
    }
    let make = |folder: &Path| {
        fs::create_dir_all(folder).map_err(|error| Failure::io("make", folder)(error).with_help(ANOTHER_CACHE))
    };
    let _cleanup = Cleanup::on_signals()?;
    make(&all)?;
    // The other processes of a `make -j` wait. Where folders cannot be locked, they all make the same graft.
    let lock = File::open(&all).and_then(|handle| handle.lock().map(|()| handle));
    if is_whole(&file) {
        return Ok(folder);
    }
    make(&folder)?;
    let is_again = file.exists();
    if is_again {
        fs::remove_file(&file).map_err(|error| Failure::io("remove", &file)(error).with_help(ANOTHER_CACHE))?;
    }
    let out = Some(file.clone());
    let request = Request { candidates: candidates.to_vec(), strings, out, ..Request::default() };
    let grafts = hosts::graft(libc, &request).map_err(|error| {
        // Nothing is in it.
        let _ = fs::remove_dir(&folder);
        unmade(error, libc, &folder)
    })?;
    let [host] = grafts.hosts.as_slice() else {
        return Err(Failure::refused(format!("`{}` was not grafted", libc.display())).with_help(HELP).into());
    };
    write_checksum(&checksum_of(&file), &host.graft_sha256)
        .map_err(|error| Failure::io("write", &checksum_of(&file))(error).with_help(ANOTHER_CACHE))?;
    drop(lock);
    // Scripts such as configure take any output on standard error for a compiler warning.
    if output.verbose {
        let again = if is_again { "again, as the copy there was changed, " } else { "" };
        output.note(format_args!("grafted a copy of `{}` {again}into `{}`", libc.display(), folder.display()));
        for note in grafts.hosts.iter().flat_map(|host| &host.notes) {
            output.note(format_args!("`{}` {note}", libc.display()));
        }
    }
    Ok(folder)
}

/// The file with the checksum of a copy.
fn checksum_of(file: &Path) -> PathBuf {
    file.with_extension("a.sha256")
}

/// Writes a checksum in place: a temporary file would stay if the process is killed.
fn write_checksum(path: &Path, checksum: &str) -> std::io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // A new file: nothing is written through a link.
    match File::create_new(path) {
        // Where folders cannot be locked, other processes write the same.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        file => file?.write_all(checksum.as_bytes()),
    }
}

/// Whether a copy is there, with the bytes that it was made with.
fn is_whole(file: &Path) -> bool {
    let checksum = || fs::read_to_string(checksum_of(file)).ok();
    fs::read(file).is_ok_and(|bytes| checksum().is_some_and(|checksum| checksum == hosts::sha256(&bytes)))
}

/// Returns the error with its help. For a `libc.a` that is not musl's, the help is to name a different compiler; a
/// system error concerns the cache folder, since the archive has been read already.
fn unmade(error: Error, libc: &Path, folder: &Path) -> Unmade {
    let is_not_musl = matches!(
        &error,
        Error::Refused { refusal, .. } if matches!(**refusal, Refusal::Glibc { .. } | Refusal::NotMusl { .. })
    );
    let of_cache = matches!(&error, Error::Io { path, .. } if path != libc && path.starts_with(folder));
    let failure = Failure::from(error);
    let failure = match (is_not_musl, of_cache) {
        (true, _) => failure.with_help(HELP),
        (_, true) => failure.with_help(ANOTHER_CACHE),
        _ => failure,
    };
    Unmade { failure, is_not_musl }
}

/// Why there is no copy.
#[derive(Debug)]
pub(in crate::command) struct Unmade {
    failure: Failure,
    /// Whether the archive is not musl's.
    pub(in crate::command) is_not_musl: bool,
}

impl From<Failure> for Unmade {
    fn from(failure: Failure) -> Unmade {
        Unmade { failure, is_not_musl: false }
    }
}

impl From<Unmade> for Failure {
    fn from(unmade: Unmade) -> Failure {
        unmade.failure
    }
}

/// Returns what tells this program from another build of the same version.
fn build() -> Result<String, Failure> {
    let about = env::current_exe().and_then(fs::metadata).map_err(|error| {
        Failure::usage(format!("cannot find this program: {error}"))
            .with_help("start it by its path; /proc has to be mounted")
    })?;
    Ok(format!("{} {} {}", about.len(), about.mtime(), about.mtime_nsec()))
}

/// Returns the user's cache folder (XDG Base Directory Specification: relative paths are ignored).
pub(in crate::command) fn cache() -> Result<PathBuf, Failure> {
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache"))).ok_or_else(|| {
        Failure::usage("there is no cache folder: neither XDG_CACHE_HOME nor HOME is an absolute path")
            .with_help(ANOTHER_CACHE)
    })
}

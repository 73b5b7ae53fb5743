//! Files that a process or another file names: only regular ones are read, so that no device or pipe is waited for.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The largest file that is read.
const LARGEST: u64 = 4 << 30;

/// Reads a whole file.
///
/// # Errors
/// It cannot be opened or read, is not a regular file, or is larger than 4 GiB.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let (file, size) = open(path)?;
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
    // It may grow meanwhile.
    file.take(LARGEST).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads the first bytes of a file, at most `most`.
///
/// # Errors
/// As with [`read`].
pub(crate) fn head(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.0.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Opens a file, and returns its size.
fn open(path: &Path) -> io::Result<(File, u64)> {
    // Without the flag, opening a pipe waits for a writer. Rust closes files on exec.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    match metadata.len() {
        size if size > LARGEST => Err(io::ErrorKind::FileTooLarge.into()),
        size => Ok((file, size)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_are_read() {
        let folder = std::env::temp_dir().join(format!("profiler-file-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (pipe, sparse, plain) = (folder.join("pipe"), folder.join("sparse"), folder.join("plain"));
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        File::create(&sparse).unwrap().set_len(LARGEST + 1).unwrap();
        std::fs::write(&plain, "0123456789").unwrap();
        for path in [&pipe, &sparse, &folder, Path::new("/dev/zero")] {
            assert!(read(path).is_err() && head(path, 4).is_err(), "{}", path.display());
        }
        assert_eq!((read(&plain).unwrap(), head(&plain, 4).unwrap()), (b"0123456789".to_vec(), b"0123".to_vec()));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}

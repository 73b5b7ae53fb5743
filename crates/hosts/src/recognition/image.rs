//! Whether a file or folder is a container image.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use images::Format;

use crate::error::{Error, IoContext};

/// Whether a folder or file is a container image, by its content.
///
/// # Errors
/// The image is damaged, or of a form that cannot be edited; so is a root file system as a tar.
pub(crate) fn is_image(path: &Path) -> Result<bool, Error> {
    if !path.is_dir() && !is_plain(path)? {
        return Ok(false);
    }
    let unsupported = |kind, reason, help| Err(Error::Unsupported { path: path.to_owned(), kind, reason, help });
    let Some(source) = images::open(path)? else { return Ok(false) };
    match source.form {
        Format::OciLayout | Format::DockerArchive => Ok(true),
        Format::RootTar => unsupported(
            "a root file system as a tar",
            "it is grafted as a folder",
            "unpack it, and graft its files with `--root FOLDER`",
        ),
        Format::Debian | Format::Alpine | Format::Zip => Ok(false),
    }
}

fn is_plain(path: &Path) -> Result<bool, Error> {
    let is_file = fs::metadata(path).context(path, "read")?.is_file();
    Ok(is_file && File::open(path).and_then(|file| is_plain_tar(&file)).context(path, "read")?)
}

/// Whether a file is a tar without compression, which can be edited.
fn is_plain_tar(file: &File) -> io::Result<bool> {
    let mut magic = [0; 5];
    match file.read_exact_at(&mut magic, 257) {
        Ok(()) => Ok(magic == *b"ustar"),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

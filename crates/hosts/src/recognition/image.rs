//! Whether a file or folder is a container image.

use std::fs;
use std::path::Path;

use images::Format;

use crate::error::{Error, IoContext};
use crate::file::host_file::HostFile;
use crate::file::signature::is_tar;

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

/// Whether a file is a tar without compression, which can be edited.
fn is_plain(path: &Path) -> Result<bool, Error> {
    let is_file = fs::metadata(path).context(path, "read")?.is_file();
    Ok(is_file && is_tar(HostFile::open(path.to_owned())?.start()))
}

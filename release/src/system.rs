//! The paths of files in a system's package: the same for Debian and Alpine, except for zsh's folder.

use anyhow::Result;

use crate::gzip;
use crate::payload::{File, Payload};
use crate::tarball;

/// Returns the files that are the same in every system's package. `zsh`: the system's folder of completions for zsh.
pub(crate) fn files(payload: &Payload, zsh: &str) -> Result<Vec<File>> {
    let at = |folder: &str, file: &File| file.with_path(format!("usr/{folder}/{}", file.path));
    let mut files: Vec<File> = payload.programs.iter().map(|program| at("bin", program)).collect();
    for page in &payload.manuals {
        files.push(File::new(format!("usr/share/man/man1/{}.gz", page.path), gzip::compress(&page.bytes)?));
    }
    files.push(at("share/bash-completion/completions", &payload.bash));
    files.push(at(zsh, &payload.zsh));
    files.push(at("share/fish/vendor_completions.d", &payload.fish));
    files.extend(payload.cmake.iter().map(|file| at("share/cmake/allograft", file)));
    files.extend(payload.meson.iter().map(|file| at("share/allograft/meson", file)));
    files.extend(payload.bazel.iter().map(|file| at("share/allograft/bazel", file)));
    Ok(files)
}

/// Returns the size of the installed files in bytes.
pub(crate) fn size(files: &[File]) -> usize {
    files.iter().map(|file| file.bytes.len()).sum()
}

/// Returns the size of the installed files and folders in KiB, each rounded up, as Debian counts it.
pub(crate) fn kibibytes(files: &[File]) -> usize {
    let folders: std::collections::BTreeSet<&str> =
        files.iter().flat_map(|file| tarball::folders(&file.path)).collect();
    files.iter().map(|file| file.bytes.len().div_ceil(1024)).sum::<usize>() + folders.len()
}

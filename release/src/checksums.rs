//! `SHA256SUMS`, as `sha256sum --check` reads it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};

/// The file's name.
pub const NAME: &str = "SHA256SUMS";

/// Writes the checksums of all other files of `folder`, sorted by name. Returns the path of the list.
///
/// # Errors
/// Those of the file system.
pub fn write(folder: &Path) -> Result<PathBuf> {
    let mut lines = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read `{}`", folder.display()))? {
        let entry = entry?;
        let name = entry.file_name().into_string().ok().context("a file's name is not UTF-8")?;
        if name != NAME && entry.file_type()?.is_file() {
            let bytes = fs::read(entry.path()).with_context(|| format!("cannot read `{}`", entry.path().display()))?;
            lines.push((name, HEXLOWER.encode(&Sha256::digest(bytes))));
        }
    }
    lines.sort();
    let text: String = lines.iter().map(|(name, sum)| format!("{sum}  {name}\n")).collect();
    let path = folder.join(NAME);
    fs::write(&path, text).with_context(|| format!("cannot write `{}`", path.display()))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn sha256sum_reads_the_list_and_sees_a_change() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["b", "a"] {
            fs::write(folder.path().join(name), name).unwrap();
        }
        let list = write(folder.path()).unwrap();
        let made = Command::new("sha256sum").args(["a", "b"]).current_dir(folder.path()).output().unwrap();
        assert_eq!(fs::read(&list).unwrap(), made.stdout);
        let check = || {
            let mut command = Command::new("sha256sum");
            command.args(["--check", "--strict", NAME]).current_dir(folder.path()).output().unwrap()
        };
        assert_eq!(String::from_utf8_lossy(&check().stdout), "a: OK\nb: OK\n");
        // The list does not name itself.
        assert_eq!(fs::read(&list).unwrap(), fs::read(write(folder.path()).unwrap()).unwrap());
        fs::write(folder.path().join("a"), "other").unwrap();
        assert!(!check().status.success());
    }
}

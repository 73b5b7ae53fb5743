//! Tar archives with fixed owners and times.
//! Two runs give the same bytes, whatever the machine and the folder.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use data_encoding::HEXLOWER;
use sha1::{Digest, Sha1};
use tar::{Builder, EntryType, Header};

use crate::payload::File;

/// The form of an archive.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Options {
    /// The prefix of each path, such as `./`.
    pub(crate) prefix: &'static str,
    /// Whether folders have entries of their own.
    pub(crate) folders: bool,
    /// Whether each file has its SHA-1 in an extended header, for apk.
    pub(crate) checksums: bool,
}

/// The blocks of zeros at the end of an archive, in bytes.
pub(crate) const END: usize = 1024;

/// Returns a tar archive of `files`, sorted by path. Each folder comes before its content. `time`: seconds since 1970.
///
/// # Errors
/// When two files have one path, or a path is too long.
pub(crate) fn pack(files: &[File], time: u64, form: Options) -> Result<Vec<u8>> {
    let mut sorted: Vec<&File> = files.iter().collect();
    sorted.sort_by(|one, other| one.path.cmp(&other.path));
    if let Some(pair) = sorted.windows(2).find(|pair| pair[0].path == pair[1].path) {
        anyhow::bail!("two files are at `{}`", pair[0].path);
    }
    let mut archive = Builder::new(Vec::new());
    let mut seen = BTreeSet::new();
    let mut add = |path: &str, kind, mode, bytes: &[u8]| {
        let name = format!("{}{path}", form.prefix);
        append(&mut archive, &name, kind, mode, bytes, time)
    };
    if form.folders && !form.prefix.is_empty() {
        add("", EntryType::Directory, 0o755, &[])?;
    }
    for file in sorted {
        for folder in folders(&file.path).filter(|_| form.folders) {
            if seen.insert(folder) {
                add(&format!("{folder}/"), EntryType::Directory, 0o755, &[])?;
            }
        }
        if form.checksums {
            // A record starts with its own length, which is always this one. The crate's own function would make an
            // entry without a name, which apk takes for the end of the archive.
            let record = format!("68 APK-TOOLS.checksum.SHA1={}\n", HEXLOWER.encode(&Sha1::digest(&file.bytes)));
            add(&file.path, EntryType::XHeader, 0o644, record.as_bytes())?;
        }
        add(&file.path, EntryType::Regular, if file.executable { 0o755 } else { 0o644 }, &file.bytes)?;
    }
    Ok(archive.into_inner()?)
}

/// Returns the folders that a path is in, the outermost first.
pub(crate) fn folders(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(at, _)| &path[..at])
}

fn append(
    archive: &mut Builder<Vec<u8>>,
    path: &str,
    kind: EntryType,
    mode: u32,
    bytes: &[u8],
    time: u64,
) -> Result<()> {
    let mut header = Header::new_ustar();
    // The crate's `set_path` would drop a leading `./`.
    let name = &mut header.as_ustar_mut().context("a header of another kind")?.name;
    let room = name.get_mut(..path.len()).with_context(|| format!("the path `{path}` is too long"))?;
    room.copy_from_slice(path.as_bytes());
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_username("root")?;
    header.set_groupname("root")?;
    header.set_mtime(time);
    header.set_size(bytes.len() as u64);
    header.set_cksum();
    Ok(archive.append(&header, bytes)?)
}

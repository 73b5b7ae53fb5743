//! Recognises a target by its content.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use crate::error::{Error, IoContext};
use crate::host_file::HostFile;
use crate::image;
use crate::packed::{Format, holds_tar};
use crate::record::{host_of_sidecar, is_backup, record_path};
use crate::undo;

/// A target that was recognised.
#[derive(Debug)]
pub(crate) enum Kind {
    /// A static archive: the real file where the target is a symbolic link.
    Archive(HostFile),
    /// An ELF executable: the real file where the target is a symbolic link.
    Executable(HostFile),
    /// A folder.
    Folder(PathBuf),
    /// A container image: an OCI layout, as a folder or a tar.
    Image(PathBuf),
    /// A packed bundle, as it seems: the real file where the target is a symbolic link.
    Packed(PathBuf, Format),
}

impl Kind {
    pub(crate) fn path(&self) -> &Path {
        match self {
            Kind::Archive(file) | Kind::Executable(file) => file.path(),
            Kind::Folder(path) | Kind::Image(path) | Kind::Packed(path, _) => path,
        }
    }
}

/// A target that was recognised by its content, and can be worked on.
#[derive(Debug)]
pub struct Target(pub(crate) Kind);

impl Target {
    /// Opens and recognises what `path` names.
    ///
    /// # Errors
    /// It cannot be read, or is nothing that is known.
    pub fn open(path: &Path) -> Result<Target, Error> {
        recognise(path).map(Target)
    }

    /// The bytes of an executable; `None` if it is something else.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn executable(&self) -> Result<Option<&[u8]>, Error> {
        match &self.0 {
            Kind::Executable(file) => file.bytes().map(Some),
            Kind::Archive(_) | Kind::Folder(_) | Kind::Image(_) | Kind::Packed(..) => Ok(None),
        }
    }
}

/// Whether the target is an executable, by its content.
///
/// # Errors
/// A target that cannot be read, or that is nothing that is known.
pub fn is_executable(target: &Path) -> Result<bool, Error> {
    Ok(matches!(recognise(target)?, Kind::Executable(_)))
}

/// Recognises `path` by the file's first bytes.
pub(crate) fn recognise(path: &Path) -> Result<Kind, Error> {
    let metadata = fs::metadata(path).context(path, "read")?;
    let kind = metadata.file_type();
    if kind.is_dir() {
        let path = path.to_owned();
        return Ok(if image::is_image(&path)? { Kind::Image(path) } else { Kind::Folder(path) });
    }
    if !kind.is_file() {
        return Err(Error::Unrecognised { path: path.to_owned(), found: kind_of(kind).to_owned() });
    }
    let real = real_file(path)?;
    if let Some(host) = host_of_sidecar(&real)
        && is_backup(&real)
        && (record_path(&host).exists() || undo::is_graft(&host))
    {
        return Err(Error::IsBackup { path: real, host });
    }
    let file = HostFile::open(real)?;
    let signature = file.signature();
    let real = file.path().to_owned();
    match signature {
        Signature::Archive => Ok(Kind::Archive(file)),
        Signature::Packed(Format::TarGz) if !holds_tar(&mut File::open(&real).context(&real, "read")?) => {
            Err(Error::Unrecognised { path: real, found: "a gzip file that holds no tar, or is damaged".to_owned() })
        }
        Signature::Packed(format) => Ok(Kind::Packed(real, format)),
        Signature::Executable => Ok(Kind::Executable(file)),
        Signature::Unsupported { kind, reason, help } => Err(Error::Unsupported { path: real, kind, reason, help }),
        Signature::Unknown(_) if image::is_image(&real)? => Ok(Kind::Image(real)),
        Signature::Unknown(found) => Err(Error::Unrecognised { path: real, found: found.to_owned() }),
    }
}

/// The kind of a file that is not a regular file, for messages.
pub(crate) fn kind_of(kind: fs::FileType) -> &'static str {
    match () {
        () if kind.is_symlink() => "a symbolic link",
        () if kind.is_dir() => "a folder",
        () if kind.is_fifo() => "a pipe",
        () if kind.is_socket() => "a socket",
        () => "a device",
    }
}

/// The file that `path` leads to; `path` itself, as it was typed, unless its last part is a symbolic link.
pub(crate) fn real_file(path: &Path) -> Result<PathBuf, Error> {
    match fs::symlink_metadata(path).context(path, "read")?.is_symlink() {
        true => path.canonicalize().context(path, "read"),
        false => Ok(path.to_owned()),
    }
}

/// The kind of a file, by its first bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Signature {
    Archive,
    Packed(Format),
    Executable,
    Unsupported { kind: &'static str, reason: &'static str, help: &'static str },
    Unknown(&'static str),
}

impl Signature {
    /// The kind of a file that is not an archive, for messages; `None` for an archive.
    pub(crate) fn found(&self) -> Option<&'static str> {
        match self {
            Signature::Archive => None,
            Signature::Executable => Some("an executable"),
            Signature::Packed(Format::TarGz) => Some("a gzip file"),
            Signature::Packed(Format::Zip) => Some("a zip file"),
            Signature::Unsupported { kind, .. } => Some(kind),
            Signature::Unknown(found) => Some(found),
        }
    }
}

/// Reads the first bytes of the file at `path`.
pub(crate) fn signature(path: &Path) -> Result<Signature, Error> {
    let mut start = Vec::with_capacity(512);
    File::open(path).and_then(|file| file.take(512).read_to_end(&mut start)).context(path, "read")?;
    Ok(signature_of(&start))
}

/// The kind of file that begins with these bytes.
pub(crate) fn signature_of(start: &[u8]) -> Signature {
    let unsupported = |kind, reason, help| Signature::Unsupported { kind, reason, help };
    match start {
        [] => Signature::Unknown("empty"),
        // System V ABI, chapter 7; "thin" is GNU's.
        _ if start.starts_with(b"!<arch>\n") => Signature::Archive,
        _ if start.starts_with(b"!<thin>\n") => unsupported(
            "a thin archive",
            "its members lie in files of their own",
            "make a real archive of it: `ar -M` with CREATE and ADDLIB, then graft that",
        ),
        _ if start.starts_with(b"!<") => Signature::Unknown("the damaged beginning of an archive"),
        // ELF specification: e_type at offset 16, in the byte order that EI_DATA at offset 5 gives.
        _ if start.starts_with(b"\x7fELF") => {
            let bytes = [start.get(16).copied().unwrap_or(0), start.get(17).copied().unwrap_or(0)];
            let e_type = match start.get(5) {
                Some(2) => u16::from_be_bytes(bytes),
                _ => u16::from_le_bytes(bytes),
            };
            match e_type {
                1 => unsupported(
                    "an object file",
                    "grafting starts at the archive that libc is linked from",
                    "graft the toolchain's `libc.a`",
                ),
                // Shared libraries are of type 3, too; what is in the file tells them apart later.
                2 | 3 => Signature::Executable,
                _ => Signature::Unknown("an ELF file of an unknown type"),
            }
        }
        // RFC 1952, 2.3.1.
        _ if start.starts_with(b"\x1f\x8b") => Signature::Packed(Format::TarGz),
        // APPNOTE.TXT, 4.3.7.
        _ if start.starts_with(b"PK\x03\x04") => Signature::Packed(Format::Zip),
        _ if std::str::from_utf8(start).is_ok_and(|text| !text.contains('\0')) => Signature::Unknown("a text file"),
        _ => Signature::Unknown("a file of an unknown kind"),
    }
}

/// Reads the whole file.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Error> {
    fs::read(path).context(path, "read")
}

/// Whether the error says that there is no such file.
pub(crate) fn is_missing(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures() {
        let kind = |start: &[u8]| signature_of(start).found().unwrap_or("archive");
        assert_eq!(kind(b"!<arch>\nlibc.lo/"), "archive");
        assert_eq!(kind(b"!<thin>\n"), "a thin archive");
        assert_eq!(kind(b"!<arc"), "the damaged beginning of an archive");
        assert_eq!(kind(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0"), "an executable");
        assert_eq!(kind(b"\x7fELF\x02\x02\x01\0\0\0\0\0\0\0\0\0\0\x02"), "an executable");
        assert_eq!(kind(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x01\0"), "an object file");
        assert_eq!(kind(b"\x7fELF"), "an ELF file of an unknown type");
        assert_eq!(kind(b"\x1f\x8b\x08"), "a gzip file");
        assert_eq!(kind(b"PK\x03\x04"), "a zip file");
        assert_eq!(kind(b"/* GNU ld script */"), "a text file");
        assert_eq!(kind(b"\0\x01\x02"), "a file of an unknown kind");
        assert_eq!(kind(b""), "empty");
    }

    #[test]
    fn special_files_are_not_opened() {
        // Opening a pipe without a writer would wait forever.
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("libc.a");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0).unwrap();
        let error = recognise(&pipe).unwrap_err();
        assert!(matches!(&error, Error::Unrecognised { found, .. } if found == "a pipe"), "{error}");
        assert_eq!(error.exit_code(), 2);
    }
}

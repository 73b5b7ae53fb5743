//! The kind of a file, by its first bytes and never by its name.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use crate::error::host_kind::HostKind;
use crate::error::{Error, IoContext};
use crate::file::bundle::Format;

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

/// The kind of a file that an interpreter runs.
pub(crate) const SCRIPT: &str = "a script";

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

/// Whether a file that begins so is a tar without compression (POSIX, pax: `magic` at offset 257).
pub(crate) fn is_tar(start: &[u8]) -> bool {
    start.get(257..262) == Some(b"ustar")
}

/// Reads the first bytes of the file at `path`.
pub(crate) fn signature(path: &Path) -> Result<Signature, Error> {
    let mut start = Vec::with_capacity(512);
    File::open(path).and_then(|file| file.take(512).read_to_end(&mut start)).context(path, "read")?;
    Ok(signature_of(&start))
}

/// The kind of the host at `path`, for help; `None` if it is not a host. An error that is reported already has no use
/// for a second one, so a file that cannot be read has no kind.
pub(crate) fn host_kind(path: &Path) -> Option<HostKind> {
    match signature(path).ok()? {
        Signature::Archive => Some(HostKind::Archive),
        Signature::Packed(_) => Some(HostKind::Bundle),
        Signature::Executable => {
            let bytes = fs::read(path).ok()?;
            transplant::Executable::read(&bytes).ok().map(|file| HostKind::Linked(file.kind()))
        }
        _ => None,
    }
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
            "its members are in separate files",
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
                // Shared libraries have type 3, too; the file's content distinguishes them later.
                2 | 3 => Signature::Executable,
                4 => unsupported(
                    "a core dump",
                    "it is the memory of a program, and not the program",
                    "name the program that wrote it",
                ),
                _ => Signature::Unknown("an ELF file of an unknown type"),
            }
        }
        // RFC 1952, 2.3.1.
        _ if start.starts_with(b"\x1f\x8b") => Signature::Packed(Format::TarGz),
        // APPNOTE.TXT, 4.3.7.
        _ if start.starts_with(b"PK\x03\x04") => Signature::Packed(Format::Zip),
        // The header of DOS, with which a PE file begins.
        _ if start.starts_with(b"MZ") => unsupported(
            "a Windows program",
            "a donor is linked into such a program, and not put into the file",
            "link it again with the donor's object for Windows: the page on Windows says how",
        ),
        _ if start.starts_with(b"#!") => Signature::Unknown(SCRIPT),
        _ if std::str::from_utf8(start).is_ok_and(|text| !text.contains('\0')) => Signature::Unknown("a text file"),
        _ => Signature::Unknown("a file of an unknown kind"),
    }
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
        assert_eq!(kind(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x04\0"), "a core dump");
        assert_eq!(kind(b"MZ\x90\0"), "a Windows program");
        assert_eq!(kind(b"#!/bin/sh\n"), "a script");
        assert_eq!(kind(b"/* GNU ld script */"), "a text file");
        assert_eq!(kind(b"\0\x01\x02"), "a file of an unknown kind");
        assert_eq!(kind(b""), "empty");
    }
}

//! Packages: `.deb` (deb(5)), `.apk` of Alpine (apk-package(5)), and zips such as Python's wheels.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::rc::Rc;

use crate::error::{Checked, Problem, shown};
use crate::limits::{LONGEST_NAME, MOST_ZIP_DIRECTORY, MOST_ZIPPED, Unpacked};
use crate::merge::Layer;
use crate::spool::Part;
use crate::tar::{Content, Entry, Fault, Kind, Stream, plain_name};

/// The first bytes of an ar archive.
pub(crate) const AR: &[u8] = b"!<arch>\n";
/// The name of the first member of a Debian package, an ar archive.
const DEBIAN: &[u8] = b"debian-binary";
/// A member's header (System V ABI, chapter 7).
const HEADER: usize = 60;

/// Whether a file that starts with these bytes is a Debian package.
pub(crate) fn is_debian(start: &[u8]) -> bool {
    start.strip_prefix(AR).is_some_and(|rest| rest.starts_with(DEBIAN))
}

/// Returns the location of the tar in a Debian package with the files to install.
pub(crate) fn data_of(file: &File) -> Checked<Part> {
    let mut file = file;
    let reading = |source| Problem::Io { action: "read", source };
    let size = file.metadata().map_err(reading)?.len();
    let mut at = AR.len() as u64;
    // debian-binary, control.tar, data.tar, and members that other tools add.
    for _ in 0..100 {
        if at == size {
            return Err(Problem::Damaged("it has no member `data.tar`".to_owned()));
        }
        let mut header = [0; HEADER];
        file.seek(SeekFrom::Start(at)).map_err(reading)?;
        file.read_exact(&mut header).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => Problem::Truncated("a member's header is cut off".to_owned()),
            _ => reading(error),
        })?;
        let length = std::str::from_utf8(&header[48..58]).ok().and_then(|text| text.trim_end().parse::<u64>().ok());
        let (Some(length), true) = (length, header.ends_with(b"`\n")) else {
            return Err(Problem::Damaged(format!("the member's header at offset {at} is invalid")));
        };
        let start = at + HEADER as u64;
        if length > size - start {
            return Err(Problem::Truncated(format!("the member at offset {at} is cut off")));
        }
        let name = header[..16].trim_ascii_end();
        let name = name.strip_suffix(b"/").unwrap_or(name);
        if let Some(ending) = name.strip_prefix(b"data.tar") {
            return match ending {
                b"" | b".gz" | b".xz" | b".zst" => Ok(Part { offset: start, size: length }),
                _ => Err(Problem::Unsupported(format!("its member is `{}`", shown(name)).into())),
            };
        }
        at = (start + length).next_multiple_of(2).min(size);
    }
    Err(Problem::Unsupported("it has over 100 members".into()))
}

/// The kinds of a Unix file in a zip's external attributes.
const S_IFMT: u32 = 0o170_000;
const S_IFLNK: u32 = 0o120_000;

fn of_zip(error: zip::result::ZipError) -> Problem {
    use zip::result::ZipError;
    match error {
        ZipError::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            Problem::Truncated("the zip is cut off".to_owned())
        }
        ZipError::Io(error) => Problem::reading(error),
        ZipError::UnsupportedArchive(what) => Problem::Unsupported(what.into()),
        other => Problem::Damaged(other.to_string()),
    }
}

/// Reads a zip's directory.
///
/// # Errors
/// It cannot be read, is damaged, or too large.
fn directory(file: &File, size: u64) -> Checked<zip::ZipArchive<io::BufReader<Limited<'_>>>> {
    if may_be_large(file, size)? {
        Problem::at_most("its directory", headers(file, size)?, "entries", MOST_ZIPPED)?;
    }
    let left = Rc::new(Cell::new(Some(MOST_ZIP_DIRECTORY)));
    let zip = zip::ZipArchive::new(io::BufReader::new(Limited { file, left: left.clone() })).map_err(of_zip)?;
    Problem::at_most("its directory", zip.len() as u64, "entries", MOST_ZIPPED)?;
    left.set(None);
    Ok(zip)
}

/// A file of which only some bytes may be read.
struct Limited<'f> {
    file: &'f File,
    /// The bytes that may still be read; `None` for all.
    left: Rc<Cell<Option<u64>>>,
}

impl Read for Limited<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.file.read(buffer)?;
        if let Some(left) = self.left.get() {
            let rest = left.checked_sub(length as u64);
            let found = MOST_ZIP_DIRECTORY.saturating_add(length as u64) - left;
            let limit = MOST_ZIP_DIRECTORY;
            let too_large = Problem::TooLarge { what: "its directory", found, unit: "bytes so far", limit };
            self.left.set(Some(rest.ok_or_else(|| too_large.into_io())?));
        }
        Ok(length)
    }
}

impl Seek for Limited<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

/// Whether a zip's end record can refer to one with a larger number of entries than fits into 16 bits: a locator is at
/// the end, before a comment of at most 64 KiB. (PKWARE, APPNOTE.TXT, 4.3.15, 4.3.16)
fn may_be_large(file: &File, size: u64) -> Checked<bool> {
    const LOCATOR: u64 = 20;
    const END: u64 = 22;
    /// The reader of zips begins a few bytes earlier than it has to.
    const MORE: u64 = 64;
    let length = (LOCATOR + END + (1 << 16) + MORE).min(size);
    let mut end = vec![0; length as usize];
    file.read_exact_at(&mut end, size - length).map_err(|source| Problem::Io { action: "read", source })?;
    Ok(memchr::memmem::find(&end, b"PK\x06\x07").is_some())
}

/// The number of places of a file where a header of a zip's directory may be, at least one each. The end record says
/// how many headers are read, and may be wrong.
fn headers(file: &File, size: u64) -> Checked<u64> {
    const HEADER: &[u8] = b"PK\x01\x02";
    let finder = memchr::memmem::Finder::new(HEADER);
    let mut buffer = vec![0; 1 << 18];
    let (mut at, mut count, mut kept) = (0, 0, 0);
    while at < size {
        let room = (buffer.len() - kept).min(usize::try_from(size - at).unwrap_or(usize::MAX));
        let into = &mut buffer[kept..kept + room];
        file.read_exact_at(into, at).map_err(|source| Problem::Io { action: "read", source })?;
        at += room as u64;
        let filled = kept + room;
        count += finder.find_iter(&buffer[..filled]).count() as u64;
        // One that is split is found with the next bytes.
        kept = (HEADER.len() - 1).min(filled);
        buffer.copy_within(filled - kept..filled, 0);
    }
    Ok(count)
}

/// Whether a zip is a bundle of Swift SDKs: a manifest in its one folder says so.
pub(crate) fn is_swift_bundle(file: &File) -> Checked<bool> {
    let size = file.metadata().map_err(|source| Problem::Io { action: "read", source })?.len();
    let count = Unpacked::new(size);
    let mut zip = directory(file, size)?;
    for number in 0..zip.len() {
        let name = zip.by_index_raw(number).map_err(of_zip)?.name_raw().to_vec();
        if is_manifest(&name) {
            let entry = zip.by_index(number).map_err(of_zip)?;
            let mut text = Vec::new();
            count.plain(entry.take(MOST_MANIFEST)).read_to_end(&mut text).map_err(Problem::reading)?;
            if names_swift_sdk(&text) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Refuses a zip whose directory has more entries than names: readers differ in which entry of a name counts. (PKWARE,
/// APPNOTE.TXT, 4.3.12)
fn all_different(file: &File, directory: u64, names: u64) -> Checked<()> {
    const CENTRAL: usize = 46;
    let mut at = directory;
    let mut entries = 0;
    loop {
        let mut header = [0; CENTRAL];
        match file.read_exact_at(&mut header, at) {
            Ok(()) if header.starts_with(b"PK\x01\x02") => {}
            _ => return if entries > names { Err(Problem::Twice) } else { Ok(()) },
        }
        entries += 1;
        let length = |at: usize| u64::from(u16::from_le_bytes([header[at], header[at + 1]]));
        at += CENTRAL as u64 + length(28) + length(30) + length(32);
    }
}

/// The size limit for a bundle's manifest, in bytes.
pub(crate) const MOST_MANIFEST: u64 = 1 << 20;

/// Whether an entry may be the manifest of a bundle.
pub(crate) fn is_manifest(name: &[u8]) -> bool {
    let mut parts = name.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".");
    let last = parts.next_back();
    last == Some(b"info.json") && parts.count() <= 1
}

/// Whether a manifest names a Swift SDK.
pub(crate) fn names_swift_sdk(text: &[u8]) -> bool {
    text.windows(10).any(|window| window == b"\"swiftSDK\"")
}

/// Reads the entries of a zip.
pub(crate) fn zip(file: &File, layer: &mut Layer<'_, '_>) -> Result<(), Fault> {
    let size = file.metadata().map_err(|source| Problem::Io { action: "read", source })?.len();
    let count = Unpacked::new(size);
    let mut zip = directory(file, size)?;
    all_different(file, zip.central_directory_start(), zip.len() as u64)?;
    for number in 0..zip.len() {
        let mut content = zip.by_index(number).map_err(of_zip)?;
        let raw = content.name_raw().to_vec();
        let named = |problem| Fault { entry: Some(shown(&raw)), problem };
        if content.encrypted() {
            return Err(named(Problem::Unsupported("it is encrypted".into())));
        }
        let mode = content.unix_mode().unwrap_or(0o644);
        let size = content.size();
        let kind = match () {
            () if raw.ends_with(b"/") => Kind::Folder,
            () if mode & S_IFMT == S_IFLNK => {
                let mut target = Vec::new();
                Problem::at_most("the target of the link", size, "bytes", LONGEST_NAME).map_err(named)?;
                content
                    .by_ref()
                    .take(LONGEST_NAME)
                    .read_to_end(&mut target)
                    .map_err(Problem::reading)
                    .map_err(named)?;
                Kind::Symlink(target)
            }
            () => Kind::File,
        };
        let entry = Entry {
            name: plain_name(&raw).map_err(named)?,
            size: if kind == Kind::File { size } else { 0 },
            kind,
            mode: mode & 0o7777,
            uid: 0,
            gid: 0,
            mtime: 0,
            xattrs: Vec::new(),
            offset: 0,
        };
        let is_file = entry.kind == Kind::File;
        let mut stream = Stream(count.plain(content));
        let mut inside = Content::new(&mut stream, if is_file { size } else { 0 });
        layer.enter(entry, &mut inside).map_err(named)?;
        io::copy(&mut inside, &mut io::sink()).map_err(Problem::reading).map_err(named)?;
        // The checksum is checked at the end.
        if stream.read(&mut [0]).map_err(Problem::reading).map_err(named)? > 0 {
            return Err(named(Problem::Damaged("it is larger than its directory says".to_owned())));
        }
    }
    Ok(())
}

//! The entries of a tar, as a stream. [`next`] is the only reader of headers; it also returns the raw blocks, so that a
//! tar can be copied without a change.
//!
//! (POSIX.1-2024, pax; GNU tar manual, "Basic Tar Format".)

use std::io::{self, Read};

use tar::Header;

use crate::error::{Checked, Problem, shown};
use crate::limits::{LONGEST_NAME, MOST_EXTENDED};
use crate::spool::Range;

/// The size of a block.
pub const BLOCK: usize = 512;

/// The kind of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A file.
    File,
    /// A folder.
    Folder,
    /// A symbolic link, with its target unchanged.
    Symlink(Vec<u8>),
    /// A hard link, with the name of the entry that it refers to.
    HardLink(Vec<u8>),
    /// A device or pipe.
    Special,
}

/// An entry with its raw headers.
#[derive(Debug)]
pub struct RawEntry {
    /// The headers of extensions before it with their contents, in whole blocks.
    pub extensions: Vec<u8>,
    /// Its own header.
    pub header: [u8; BLOCK],
    /// Its name.
    pub name: Vec<u8>,
    /// Its kind. Names in links are unchanged.
    pub kind: Kind,
    /// The size of its content in bytes: zero for all but files.
    pub size: u64,
    /// Whether an extension, and not its own header, gives the size.
    pub has_extended_size: bool,
    facts: Facts,
}

/// The other fields of an entry's headers.
#[derive(Debug)]
struct Facts {
    mode: u32,
    uid: u64,
    gid: u64,
    mtime: i64,
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// The result of [`next`].
#[derive(Debug)]
pub enum Next {
    /// An entry, whose content is read next.
    Entry(Box<RawEntry>),
    /// The first block of the end mark. Global extensions may precede it.
    End(Vec<u8>),
}

/// An error of [`next`].
#[derive(Debug)]
pub enum ReadError {
    /// The source cannot be read.
    Io(io::Error),
    /// The tar has a fault.
    Fault(Fault),
}

impl From<Fault> for ReadError {
    fn from(fault: Fault) -> ReadError {
        ReadError::Fault(fault)
    }
}

impl From<Problem> for ReadError {
    fn from(problem: Problem) -> ReadError {
        ReadError::Fault(problem.into())
    }
}

impl From<ReadError> for Fault {
    fn from(error: ReadError) -> Fault {
        match error {
            ReadError::Io(error) => Problem::reading(error).into(),
            ReadError::Fault(fault) => fault,
        }
    }
}

/// An entry.
#[derive(Debug)]
pub(crate) struct Entry {
    /// Its name: `/` between parts, none at the ends, no `.` parts. Empty for the root.
    pub(crate) name: Vec<u8>,
    pub(crate) kind: Kind,
    pub(crate) size: u64,
    pub(crate) mode: u32,
    pub(crate) uid: u64,
    pub(crate) gid: u64,
    /// Seconds since 1970.
    pub(crate) mtime: i64,
    /// Extended attributes (`SCHILY.xattr.` of pax).
    pub(crate) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// Where its content begins.
    pub(crate) offset: u64,
}

/// A tar to read.
pub(crate) trait Source: Read {
    /// Passes over some bytes.
    fn skip(&mut self, bytes: u64) -> io::Result<()>;
}

/// A source that can only be read.
pub(crate) struct Stream<R>(pub(crate) R);

impl<R: Read> Read for Stream<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl<R: Read> Source for Stream<R> {
    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        match io::copy(&mut self.0.by_ref().take(bytes), &mut io::sink())? {
            skipped if skipped == bytes => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

impl Source for Range<'_> {
    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        if self.pass(bytes) { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }
}

/// The content of an entry.
pub(crate) struct Content<'s> {
    source: &'s mut dyn Source,
    left: u64,
}

impl<'s> Content<'s> {
    pub(crate) fn new(source: &'s mut dyn Source, size: u64) -> Content<'s> {
        Content { source, left: size }
    }
}

impl Read for Content<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let room = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        let length = self.source.read(&mut buffer[..room])?;
        if length == 0 && room > 0 {
            return Err(Problem::Truncated("an entry's content is missing".to_owned()).into_io());
        }
        self.left -= length as u64;
        Ok(length)
    }
}

/// The fields that extension headers set for the next entry.
#[derive(Debug, Default)]
struct Extended {
    raw: Vec<u8>,
    name: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
    uid: Option<u64>,
    gid: Option<u64>,
    mtime: Option<i64>,
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    sparse: bool,
}

/// Receives an entry and its content.
pub(crate) type See<'e> = &'e mut dyn FnMut(Entry, &mut Content<'_>) -> Checked<()>;

/// A problem, and the entry that has it.
#[derive(Debug)]
pub struct Fault {
    /// The entry's name.
    pub entry: Option<String>,
    /// The problem.
    pub problem: Problem,
}

impl From<Problem> for Fault {
    fn from(problem: Problem) -> Fault {
        Fault { entry: None, problem }
    }
}

/// Whether a file's first block is a tar header or an end mark.
pub fn is_header(block: &[u8]) -> bool {
    block.get(..BLOCK).and_then(|block| <&[u8; BLOCK]>::try_from(block).ok()).is_some_and(|block| {
        // An empty tar is its end mark.
        block.iter().all(|byte| *byte == 0) || checked(block, 0).is_ok()
    })
}

/// Passes every entry of a tar to `see`, which may leave the content unread. The source is read up to the end mark.
pub(crate) fn each(source: &mut dyn Source, see: See<'_>) -> Result<(), Fault> {
    let mut at = 0;
    loop {
        let Next::Entry(raw) = next(source, &mut at)? else { return Ok(()) };
        let named = |problem| Fault { entry: Some(shown(&raw.name)), problem };
        let size = raw.size;
        let entry = raw.plain(at).map_err(named)?;
        let mut content = Content { source, left: size };
        see(entry, &mut content).map_err(named)?;
        let padded = size.next_multiple_of(BLOCK as u64);
        let left = content.left + (padded - size);
        at += padded;
        source
            .skip(left)
            .map_err(|error| Fault::from(missing(error, "an entry's content is missing")))
            .map_err(|fault| named(fault.problem))?;
    }
}

/// Reads the headers of the next entry, which begin at the offset `at`, and moves `at` behind them. The caller reads
/// the content and its padding.
///
/// # Errors
/// The source cannot be read, it ends, or the headers are damaged, too large, or of an unknown kind.
pub fn next(source: &mut dyn Read, at: &mut u64) -> Result<Next, ReadError> {
    let mut extended = Extended::default();
    let mut is_extended = false;
    loop {
        let mut block = [0; BLOCK];
        fill(source, &mut block, "the end mark of the tar is missing")?;
        let header_at = *at;
        *at += BLOCK as u64;
        if block.iter().all(|byte| *byte == 0) {
            if is_extended {
                return Err(Problem::Damaged("a header of an extension that no entry follows".to_owned()).into());
            }
            extended.raw.extend_from_slice(&block);
            return Ok(Next::End(extended.raw));
        }
        let header = checked(&block, header_at)?;
        let size = number(header, header_at, "a size", 124..136, header.entry_size())?;
        let kind = header.as_bytes()[156];
        if !matches!(kind, b'x' | b'L' | b'K' | b'g') {
            return Ok(Next::Entry(Box::new(entry(block, header_at, size, extended)?)));
        }
        let padded = extension(source, size)?;
        *at += padded.len() as u64;
        extended.raw.extend_from_slice(&block);
        extended.raw.extend_from_slice(&padded);
        let length = extended.raw.len() as u64;
        Problem::at_most("what extensions say of one entry", length, "bytes", 4 * MOST_EXTENDED)?;
        let content = &padded[..size as usize];
        let to_zero = || content.split(|byte| *byte == 0).next().unwrap_or_default().to_vec();
        let mut all = Extended::default();
        match kind {
            b'L' => extended.name = Some(to_zero()),
            b'K' => extended.link = Some(to_zero()),
            b'g' => pax(content, &mut all)?,
            _ => pax(content, &mut extended)?,
        }
        is_extended |= kind != b'g';
        if all.name.is_some() || all.link.is_some() || all.size.is_some() || !all.xattrs.is_empty() {
            return Err(Problem::Unsupported("one name, size or attribute for all entries".into()).into());
        }
    }
}

/// The number in a field. Some tools leave unused fields empty.
fn number(
    header: &Header,
    header_at: u64,
    what: &str,
    field: std::ops::Range<usize>,
    found: io::Result<u64>,
) -> Checked<u64> {
    match found {
        Err(_) if !header.as_bytes()[field].iter().all(|byte| matches!(byte, 0 | b' ')) => {
            Err(Problem::Damaged(format!("{what} in the tar header at offset {header_at} is not a number")))
        }
        found => Ok(found.unwrap_or_default()),
    }
}

/// The entry with this header, whose own field for the size is `size`.
fn entry(block: [u8; BLOCK], header_at: u64, size: u64, mut extended: Extended) -> Result<RawEntry, Fault> {
    let header = Header::from_byte_slice(&block);
    let name = extended.name.take().unwrap_or_else(|| header.path_bytes().into_owned());
    let named = |problem| Fault { entry: Some(shown(&name)), problem };
    let unsupported = |what: &'static str| named(Problem::Unsupported(what.into()));
    let link = extended.link.take();
    let target =
        || link.clone().unwrap_or_else(|| header.link_name_bytes().map(|name| name.into_owned()).unwrap_or_default());
    let kind = match block[156] {
        _ if extended.sparse => return Err(unsupported("it is a sparse file")),
        b'0' | b'7' | 0 if name.ends_with(b"/") => Kind::Folder,
        b'0' | b'7' | 0 => Kind::File,
        b'1' | b'2' if target().len() as u64 > LONGEST_NAME => {
            let found = target().len() as u64;
            let problem =
                Problem::TooLarge { what: "the target of the link", found, unit: "bytes", limit: LONGEST_NAME };
            return Err(named(problem));
        }
        b'1' => Kind::HardLink(target()),
        b'2' => Kind::Symlink(target()),
        b'3' | b'4' | b'6' => Kind::Special,
        b'5' => Kind::Folder,
        b'S' => return Err(unsupported("it is a sparse file")),
        _ => return Err(unsupported("it is an entry of an unknown kind")),
    };
    let has_extended_size = extended.size.is_some();
    let size = extended.size.unwrap_or(size);
    // Only files have content. Some tools write a size for other kinds, and then some readers take content for them,
    // and others do not.
    if kind != Kind::File && size != 0 {
        return Err(unsupported("it is not a file, but has a size"));
    }
    Problem::at_most("the file", size, "bytes", u64::MAX / 4).map_err(named)?;
    // Numbers that are not needed may be missing, but not damaged.
    let fields = [
        ("an owner", 108..116, header.uid(), extended.uid),
        ("a group", 116..124, header.gid(), extended.gid),
        ("a time", 136..148, header.mtime(), extended.mtime.map(|time| time as u64)),
    ];
    let mut numbers = [0; 3];
    for (kept, (what, field, found, extended)) in numbers.iter_mut().zip(fields) {
        *kept = extended.map_or_else(|| number(header, header_at, what, field, found), Ok)?;
    }
    let mode = number(header, header_at, "a mode", 100..108, header.mode().map(u64::from))? as u32 & 0o7777;
    let [uid, gid, mtime] = numbers;
    let (extensions, xattrs) = (std::mem::take(&mut extended.raw), extended.xattrs);
    let facts = Facts { mode, uid, gid, mtime: mtime as i64, xattrs };
    Ok(RawEntry { extensions, header: block, name, kind, size, has_extended_size, facts })
}

impl RawEntry {
    /// The entry with a plain name, whose content begins at `offset`.
    fn plain(&self, offset: u64) -> Checked<Entry> {
        let kind = match &self.kind {
            Kind::HardLink(of) => Kind::HardLink(plain_name(of)?),
            other => other.clone(),
        };
        let name = plain_name(&self.name)?;
        if name.is_empty() && kind != Kind::Folder {
            return Err(Problem::Name("is empty"));
        }
        let Facts { mode, uid, gid, mtime, xattrs } = &self.facts;
        let (mode, uid, gid, mtime, xattrs) = (*mode, *uid, *gid, *mtime, xattrs.clone());
        Ok(Entry { name, kind, size: self.size, mode, uid, gid, mtime, xattrs, offset })
    }
}

fn missing(error: io::Error, what: &str) -> ReadError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => Problem::Truncated(what.to_owned()).into(),
        _ => ReadError::Io(error),
    }
}

fn fill(source: &mut dyn Read, buffer: &mut [u8], what: &str) -> Result<(), ReadError> {
    source.read_exact(buffer).map_err(|error| missing(error, what))
}

/// The content of an extension, in whole blocks.
fn extension(source: &mut dyn Read, size: u64) -> Result<Vec<u8>, ReadError> {
    Problem::at_most("a header of an extension", size, "bytes", MOST_EXTENDED)?;
    let mut content = vec![0; (size as usize).next_multiple_of(BLOCK)];
    fill(source, &mut content, "a header of an extension is cut off")?;
    Ok(content)
}

fn checked(block: &[u8; BLOCK], offset: u64) -> Checked<&Header> {
    let header = Header::from_byte_slice(block);
    let field = 148..156;
    let sum = |(at, byte): (usize, &u8)| u32::from(if field.contains(&at) { b' ' } else { *byte });
    let expected: u32 = block.iter().enumerate().map(sum).sum();
    match header.cksum() {
        Ok(found) if found == expected => Ok(header),
        _ => Err(Problem::Damaged(format!("the tar header at offset {offset} does not have its checksum"))),
    }
}

/// Reads the records of a pax header: `LENGTH KEY=VALUE` and a line end (POSIX.1-2024, pax, "pax Extended Header").
fn pax(mut content: &[u8], extended: &mut Extended) -> Checked<()> {
    let damaged = || Problem::Damaged("a pax header is not a list of `LENGTH KEY=VALUE`".to_owned());
    while !content.is_empty() {
        let space = content.iter().position(|byte| *byte == b' ').ok_or_else(damaged)?;
        let length: usize =
            std::str::from_utf8(&content[..space]).ok().and_then(|text| text.parse().ok()).ok_or_else(damaged)?;
        let record = content.get(space + 1..length).and_then(|record| record.strip_suffix(b"\n"));
        let record = record.ok_or_else(damaged)?;
        content = &content[length..];
        let equals = record.iter().position(|byte| *byte == b'=').ok_or_else(damaged)?;
        let (key, value) = (&record[..equals], &record[equals + 1..]);
        let text = || std::str::from_utf8(value).ok();
        match key {
            b"path" => extended.name = Some(value.to_vec()),
            b"linkpath" => extended.link = Some(value.to_vec()),
            b"size" => extended.size = Some(text().and_then(|text| text.parse().ok()).ok_or_else(damaged)?),
            b"uid" => extended.uid = Some(text().and_then(|text| text.parse().ok()).ok_or_else(damaged)?),
            b"gid" => extended.gid = Some(text().and_then(|text| text.parse().ok()).ok_or_else(damaged)?),
            b"mtime" => {
                let seconds = text().and_then(|text| text.split('.').next()?.parse().ok());
                extended.mtime = Some(seconds.ok_or_else(damaged)?);
            }
            _ if key.starts_with(b"GNU.sparse.") => extended.sparse = true,
            _ => {
                if let Some(name) = key.strip_prefix(b"SCHILY.xattr.") {
                    extended.xattrs.push((name.to_vec(), value.to_vec()));
                }
            }
        }
    }
    Ok(())
}

/// An entry's name without `.` parts and slashes at its ends. An absolute one starts in the root of the image too.
pub(crate) fn plain_name(name: &[u8]) -> Checked<Vec<u8>> {
    if name.contains(&0) {
        return Err(Problem::Name("holds a zero byte"));
    }
    Problem::at_most("its name", name.len() as u64, "bytes", LONGEST_NAME)?;
    let parts: Vec<&[u8]> = name.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".").collect();
    if parts.contains(&&b".."[..]) {
        return Err(Problem::Name("holds `..`"));
    }
    Ok(parts.join(&b'/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(bytes: &[u8]) -> Result<Vec<Vec<u8>>, Problem> {
        let mut names = Vec::new();
        let mut see = |entry: Entry, _: &mut Content<'_>| {
            names.push(entry.name);
            Ok(())
        };
        each(&mut Stream(bytes), &mut see).map_err(|fault| fault.problem)?;
        Ok(names)
    }

    #[test]
    fn contents_may_be_left_unread() {
        let mut builder = tar::Builder::new(Vec::new());
        for (name, size) in [("./one", 1000), ("two/three", 0), (&"long/".repeat(60) as &str, 0), ("/four", 512)] {
            let mut header = Header::new_gnu();
            header.set_size(size);
            header.set_mode(0o644);
            header.set_entry_type(if size == 0 { tar::EntryType::Directory } else { tar::EntryType::Regular });
            let name = if name == "/four" { "four" } else { name };
            builder.append_data(&mut header, name, io::repeat(b'x').take(size)).unwrap();
        }
        let tar = builder.into_inner().unwrap();
        let long = "long/".repeat(60);
        assert_eq!(names(&tar).unwrap(), [&b"one"[..], b"two/three", long.trim_end_matches('/').as_bytes(), b"four"]);
        for cut in [100, 511, 600, 1500, tar.len() - 1024] {
            assert!(matches!(names(&tar[..cut]), Err(Problem::Truncated(_))), "{cut}");
        }
    }

    #[test]
    fn pax_records() {
        let mut extended = Extended::default();
        pax(b"12 path=a/b\n27 SCHILY.xattr.user.x=\0\n\xff\n22 mtime=1700000000.5\n", &mut extended).unwrap();
        assert_eq!(extended.name.unwrap(), b"a/b");
        assert_eq!(extended.xattrs, [(b"user.x".to_vec(), b"\0\n\xff".to_vec())]);
        assert_eq!(extended.mtime, Some(1_700_000_000));
        for wrong in [&b"5 a=b\n"[..], b"x", b"99 a=b\n", b"6 a=bc", b"0 \n", b"18446744073709551615 a=b\n"] {
            assert!(pax(wrong, &mut Extended::default()).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn names_stay_inside() {
        assert_eq!(plain_name(b"./a//b/./c/").unwrap(), b"a/b/c");
        assert_eq!(plain_name(b"/a").unwrap(), b"a");
        assert_eq!(plain_name(b"./").unwrap(), b"");
        assert!(plain_name(b"a/../b").is_err());
        assert!(plain_name(b"a\0").is_err());
        assert!(plain_name(&b"a/".repeat(3000)).is_err());
    }
}

//! Looks into a packed bundle without changing it: for checks of what is inside.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use super::entry::is_libc;
use super::graft::{MOST_LIBC, inside};
use super::{Editor, Fault, Format, Source};
use crate::archive::ArchiveHost;
use crate::error::{Error, IoContext};
use crate::host::Host;
use crate::proof::Proven;
use crate::recognise::{Signature, Target, recognise, told_by};
use crate::undo;
use crate::watch::Watch;

/// The start files that lie beside a `libc.a`.
const START: [&[u8]; 5] = [b"crt1.o", b"rcrt1.o", b"Scrt1.o", b"crti.o", b"crtn.o"];
const MOST_START: u64 = 1 << 20;

/// How much of a bundle is written anywhere to be looked at: a hundred `libc.a`s, where SDKs have two to six.
const MOST_WRITTEN: u64 = 512 << 20;
/// How many `libc.a`s are looked at.
const MOST_HOSTS: usize = 10_000;

/// A grafted `libc.a` out of a packed bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unpacked {
    /// The bundle's path and the file's in it, for messages.
    pub name: PathBuf,
    /// Where it has been unpacked, with the start files that lie beside it in the bundle.
    pub libc: PathBuf,
    /// The same file of the bundle's backup, where there is one.
    pub stock: Option<PathBuf>,
}

/// Shows every `libc.a` of a packed bundle to `see`, one after the other, with the path by which it is spoken of.
/// Nothing is written. `false` if `target` is no packed bundle.
///
/// # Errors
/// A bundle that cannot be read, is damaged or out of all proportion, or holds no `libc.a`.
pub fn each_host(target: &Path, see: &mut dyn FnMut(PathBuf, &[u8])) -> Result<bool, Error> {
    let Target::Packed(bundle, format) = recognise(target)? else { return Ok(false) };
    let mut shower = Shower { bundle: &bundle, seen: 0, see };
    look(&bundle, format, &mut shower)?;
    match shower.seen {
        0 => Err(Error::NoHost { folder: bundle }),
        _ => Ok(true),
    }
}

/// Unpacks every `libc.a` of a packed bundle that carries a graft below the folder `into`, and what it takes to link
/// with it; `None` if `target` is no packed bundle.
///
/// # Errors
/// As [`each_host`]; and grafts that are larger than those of any SDK.
pub fn unpack_grafts(target: &Path, into: &Path) -> Result<Option<Vec<Unpacked>>, Error> {
    let Target::Packed(bundle, format) = recognise(target)? else { return Ok(None) };
    let (beside, stocks) = (into.join("graft"), into.join("stock"));
    let grafts = Unpacker::unpack(&bundle, format, &beside, None)?;
    if grafts.seen == 0 {
        return Err(Error::NoHost { folder: bundle });
    }
    let stock = match undo::stock_of(&bundle)? {
        Some(stock) => Unpacker::unpack(&stock, format, &stocks, Some(&grafts.libcs))?.libcs,
        None => BTreeMap::new(),
    };
    let unpacked = |(name, libc): (Vec<u8>, PathBuf)| Unpacked {
        stock: stock.get(&name).cloned(),
        name: inside(&bundle, &name),
        libc,
    };
    Ok(Some(grafts.libcs.into_iter().map(unpacked).collect()))
}

fn look(bundle: &Path, format: Format, editor: &mut dyn Editor) -> Result<(), Error> {
    let file = File::open(bundle).context(bundle, "read")?;
    let source = Source { path: bundle, file: &file, format, watch: &Watch::default() };
    source.look("reading", editor).map(|_| ())
}

/// Whether a `libc.a` of a bundle carries a graft of ours.
fn is_graft(path: &Path, bytes: &[u8]) -> Result<bool, Error> {
    Ok(told_by(bytes) == Signature::Archive && ArchiveHost::read(path, bytes)?.carried().anything())
}

/// Hands every `libc.a` on.
struct Shower<'a> {
    bundle: &'a Path,
    seen: usize,
    see: &'a mut dyn FnMut(PathBuf, &[u8]),
}

impl Editor for Shower<'_> {
    fn wants(&mut self, name: &[u8]) -> Option<u64> {
        is_libc(name).then_some(MOST_LIBC)
    }

    fn edit(&mut self, name: &[u8], bytes: &[u8]) -> Result<Option<Proven>, Error> {
        self.seen += 1;
        if self.seen > MOST_HOSTS {
            return Err(too_large(
                self.bundle,
                "its number of `libc.a`s",
                self.seen as u64,
                "files",
                MOST_HOSTS as u64,
            ));
        }
        (self.see)(inside(self.bundle, name), bytes);
        Ok(None)
    }
}

fn too_large(bundle: &Path, what: &'static str, found: u64, unit: &'static str, limit: u64) -> Error {
    let fault = Fault::TooLarge { what, found, unit, limit };
    Error::Packed { path: bundle.to_owned(), entry: None, fault }
}

/// Writes what is looked at into folders of its own, numbered: no name out of the bundle is used as a path.
struct Unpacker<'a> {
    bundle: &'a Path,
    into: &'a Path,
    /// The `libc.a`s to take; all that carry a graft, where it is nothing.
    wanted: Option<&'a BTreeMap<Vec<u8>, PathBuf>>,
    folders: BTreeMap<Vec<u8>, usize>,
    libcs: BTreeMap<Vec<u8>, PathBuf>,
    /// How many `libc.a`s there are.
    seen: usize,
    written: u64,
}

impl<'a> Unpacker<'a> {
    fn unpack(
        bundle: &'a Path,
        format: Format,
        into: &'a Path,
        wanted: Option<&'a BTreeMap<Vec<u8>, PathBuf>>,
    ) -> Result<Unpacker<'a>, Error> {
        let (folders, libcs) = (BTreeMap::new(), BTreeMap::new());
        let mut unpacker = Unpacker { bundle, into, wanted, folders, libcs, seen: 0, written: 0 };
        look(bundle, format, &mut unpacker)?;
        Ok(unpacker)
    }
}

fn last(name: &[u8]) -> (&[u8], &[u8]) {
    match name.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (&name[..slash], &name[slash + 1..]),
        None => (b"", name),
    }
}

impl Editor for Unpacker<'_> {
    fn wants(&mut self, name: &[u8]) -> Option<u64> {
        match () {
            () if is_libc(name) => Some(MOST_LIBC),
            () if START.contains(&last(name).1) => Some(MOST_START),
            () => None,
        }
    }

    fn edit(&mut self, name: &[u8], bytes: &[u8]) -> Result<Option<Proven>, Error> {
        self.seen += usize::from(is_libc(name));
        let taken = match self.wanted {
            _ if !is_libc(name) => true,
            Some(wanted) => wanted.contains_key(name),
            None => is_graft(&inside(self.bundle, name), bytes)?,
        };
        if !taken {
            return Ok(None);
        }
        self.written += bytes.len() as u64;
        if self.written > MOST_WRITTEN {
            let found = self.written;
            return Err(too_large(self.bundle, "what is to be verified of it", found, "bytes so far", MOST_WRITTEN));
        }
        let (folder, file) = last(name);
        let next = self.folders.len();
        let number = *self.folders.entry(folder.to_vec()).or_insert(next);
        let folder = self.into.join(number.to_string());
        fs::create_dir_all(&folder).context(&folder, "write")?;
        // One of six names that are known to be harmless.
        let path = inside(&folder, file);
        fs::write(&path, bytes).context(&path, "write")?;
        if is_libc(name) {
            self.libcs.insert(name.to_vec(), path);
        }
        Ok(None)
    }
}

/// Whether any `libc.a` of a bundle carries a graft of ours.
pub(crate) fn carries_graft(bundle: &Path, format: Format) -> Result<bool, Error> {
    struct Finder<'a>(&'a Path, bool);
    impl Editor for Finder<'_> {
        fn wants(&mut self, name: &[u8]) -> Option<u64> {
            is_libc(name).then_some(MOST_LIBC)
        }

        fn edit(&mut self, name: &[u8], bytes: &[u8]) -> Result<Option<Proven>, Error> {
            let path = inside(self.0, name);
            self.1 |= is_graft(&path, bytes)?;
            Ok(None)
        }
    }
    let mut finder = Finder(bundle, false);
    look(bundle, format, &mut finder)?;
    Ok(finder.1)
}

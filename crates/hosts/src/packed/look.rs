//! Looks into a packed bundle without changing it: for checks of what is inside.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use super::entry::is_libc;
use super::graft::{MOST_LIBC, inside};
use super::{Editor, Format, Source};
use crate::conditions::Conditions;
use crate::error::{Error, IoContext};
use crate::graft::parse;
use crate::operation::Carried;
use crate::recognise::{Signature, Target, recognise, told_by};
use crate::undo;

/// What programs start with, which lies beside a `libc.a`.
const START: [&[u8]; 5] = [b"crt1.o", b"rcrt1.o", b"Scrt1.o", b"crti.o", b"crtn.o"];
const MOST_START: u64 = 1 << 20;

/// A `libc.a` out of a packed bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unpacked {
    /// The bundle's path and the file's in it, for messages.
    pub name: PathBuf,
    /// Where it has been unpacked, with the start files that lie beside it in the bundle.
    pub libc: PathBuf,
    /// The same file of the bundle's backup, where there is one.
    pub stock: Option<PathBuf>,
    /// Whether it carries a graft.
    pub graft: bool,
}

/// Unpacks every `libc.a` of a packed bundle below the folder `into`; `None` if `target` is no packed bundle.
pub fn unpack_hosts(target: &Path, into: &Path) -> Result<Option<Vec<Unpacked>>, Error> {
    let Target::Packed(bundle, format) = recognise(target)? else { return Ok(None) };
    let found = unpack(&bundle, format, &into.join("graft"))?;
    let stock = match undo::stock_of(&bundle)? {
        Some(stock) => unpack(&stock, format, &into.join("stock"))?,
        None => BTreeMap::new(),
    };
    let mut unpacked = Vec::new();
    for (name, libc) in found {
        let bytes = fs::read(&libc).context(&libc, "read")?;
        let path = inside(&bundle, &name);
        let graft = told_by(&bytes) == Signature::Archive && Carried::by(&path, &parse(&path, &bytes)?)?.anything();
        unpacked.push(Unpacked { stock: stock.get(&name).cloned(), name: path, libc, graft });
    }
    if unpacked.is_empty() { Err(Error::NoHost { folder: bundle }) } else { Ok(Some(unpacked)) }
}

fn unpack(bundle: &Path, format: Format, into: &Path) -> Result<BTreeMap<Vec<u8>, PathBuf>, Error> {
    let file = File::open(bundle).context(bundle, "read")?;
    let source = Source { path: bundle, file: &file, format, report: Conditions::default().report() };
    let mut unpacker = Unpacker { into, folders: BTreeMap::new(), libcs: BTreeMap::new() };
    source.look("reading", &mut unpacker)?;
    Ok(unpacker.libcs)
}

/// Writes what is looked at into folders of its own, numbered: no name out of the bundle is used as a path.
struct Unpacker<'a> {
    into: &'a Path,
    folders: BTreeMap<Vec<u8>, usize>,
    libcs: BTreeMap<Vec<u8>, PathBuf>,
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

    fn edit(&mut self, name: &[u8], bytes: &[u8]) -> Result<Option<Vec<u8>>, Error> {
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

        fn edit(&mut self, name: &[u8], bytes: &[u8]) -> Result<Option<Vec<u8>>, Error> {
            let path = inside(self.0, name);
            if told_by(bytes) == Signature::Archive {
                self.1 |= Carried::by(&path, &parse(&path, bytes)?)?.anything();
            }
            Ok(None)
        }
    }
    let file = File::open(bundle).context(bundle, "read")?;
    let source = Source { path: bundle, file: &file, format, report: Conditions::default().report() };
    let mut finder = Finder(bundle, false);
    source.look("reading", &mut finder)?;
    Ok(finder.1)
}

//! Reads the hosts in a packed bundle without changing it, for `inspect` and `verify`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::error::packed::PackedError;
use crate::error::{Error, IoContext};
use crate::file::bundle::Format;
use crate::packed::carried::{is_graft, libcs, scan};
use crate::packed::entry::is_libc;
use crate::packed::inside;
use crate::recognition::{Kind, recognise};
use crate::record::stock_of;

/// The start files beside a `libc.a`.
const START: [&[u8]; 5] = [b"crt1.o", b"rcrt1.o", b"Scrt1.o", b"crti.o", b"crtn.o"];
const MOST_START: u64 = 1 << 20;

/// The limit on the bytes that are unpacked from a bundle: a hundred `libc.a`s; SDKs have two to six.
const MOST_WRITTEN: u64 = 512 << 20;
/// The limit on the number of `libc.a`s.
const MOST_HOSTS: u64 = 10_000;

/// A grafted `libc.a` from a packed bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnpackedGraft {
    /// The path of the bundle, and in it of the file, for messages.
    pub name: PathBuf,
    /// The path to which it was unpacked, with the start files that are beside it in the bundle.
    pub libc: PathBuf,
    /// Its stock file from the bundle's backup, if the bundle has one.
    pub stock: Option<PathBuf>,
}

/// Calls `see` with every `libc.a` of a packed bundle and its path for messages. Writes no file. Returns `false` if
/// `target` is not a packed bundle.
///
/// # Errors
/// The bundle cannot be read, is damaged or beyond a size limit, or holds no `libc.a`.
pub fn for_each_host(target: &Path, see: &mut dyn FnMut(PathBuf, &[u8])) -> Result<bool, Error> {
    let Kind::Packed(bundle, format) = recognise(target)? else { return Ok(false) };
    let mut seen = 0;
    scan(&bundle, format, &libcs, &mut |name, bytes| {
        seen += 1;
        at_most(&bundle, "its number of `libc.a`s", seen, "files", MOST_HOSTS)?;
        see(inside(&bundle, name), bytes);
        Ok(())
    })?;
    if seen == 0 { Err(Error::NoHost { folder: bundle }) } else { Ok(true) }
}

/// Unpacks every grafted `libc.a` of a packed bundle below the folder `into`, with the start files to link with it;
/// `None` if `target` is not a packed bundle.
///
/// # Errors
/// As [`for_each_host`]; or the grafts are larger than those of any SDK.
pub fn unpack_grafts(target: &Path, into: &Path) -> Result<Option<Vec<UnpackedGraft>>, Error> {
    let Kind::Packed(bundle, format) = recognise(target)? else { return Ok(None) };
    let Some(grafts) = unpack(&bundle, format, &into.join("graft"), is_graft)? else {
        return Err(Error::NoHost { folder: bundle });
    };
    let stock = match stock_of(&bundle)? {
        Some(stock) => unpack(&stock, format, &into.join("stock"), |_, name, _| Ok(grafts.contains_key(name)))?,
        None => None,
    };
    let stock = stock.unwrap_or_default();
    let unpacked = |(name, libc): (Vec<u8>, PathBuf)| UnpackedGraft {
        stock: stock.get(&name).cloned(),
        name: inside(&bundle, &name),
        libc,
    };
    Ok(Some(grafts.into_iter().map(unpacked).collect()))
}

fn at_most(bundle: &Path, what: &'static str, found: u64, unit: &'static str, limit: u64) -> Result<(), Error> {
    let refused = |problem| Error::Packed { path: bundle.to_owned(), entry: None, problem };
    PackedError::at_most(what, found, unit, limit).map_err(refused)
}

/// The paths to which the `libc.a`s of a bundle were unpacked, by name.
type Libcs = BTreeMap<Vec<u8>, PathBuf>;

/// Writes the `libc.a`s that are `wanted`, and all start files, into numbered folders below `into`: no name from the
/// bundle becomes a path. Returns the path of each `libc.a`; `None` if the bundle holds none.
fn unpack<W>(bundle: &Path, format: Format, into: &Path, wanted: W) -> Result<Option<Libcs>, Error>
where
    W: Fn(&Path, &[u8], &[u8]) -> Result<bool, Error>,
{
    let (mut folders, mut libcs) = (BTreeMap::new(), BTreeMap::new());
    let (mut seen, mut written) = (false, 0);
    let is_start = |name: &[u8]| START.contains(&last(name).1).then_some(MOST_START);
    scan(bundle, format, &|name| self::libcs(name).or_else(|| is_start(name)), &mut |name, bytes| {
        seen |= is_libc(name);
        if is_libc(name) && !wanted(bundle, name, bytes)? {
            return Ok(());
        }
        written += bytes.len() as u64;
        at_most(bundle, "what is to be verified of it", written, "bytes so far", MOST_WRITTEN)?;
        let (folder, file) = last(name);
        let next = folders.len();
        let number = *folders.entry(folder.to_vec()).or_insert(next);
        let folder = into.join(number.to_string());
        fs::create_dir_all(&folder).context(&folder, "write")?;
        // One of six names, all of which are harmless.
        let path = inside(&folder, file);
        fs::write(&path, bytes).context(&path, "write")?;
        if is_libc(name) {
            libcs.insert(name.to_vec(), path);
        }
        Ok(())
    })?;
    Ok(seen.then_some(libcs))
}

/// The folder and the file of a name.
fn last(name: &[u8]) -> (&[u8], &[u8]) {
    match name.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (&name[..slash], &name[slash + 1..]),
        None => (b"", name),
    }
}

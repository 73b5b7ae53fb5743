//! Whether a packed bundle carries a graft.

use std::fs::File;
use std::path::Path;

use super::entry::is_libc;
use super::{MOST_LIBC, See, Source, Wants, inside};
use crate::error::{Error, IoContext};
use crate::file::bundle::Format;
use crate::file::signature::{Signature, signature_of};
use crate::host::Host;
use crate::host::archive::ArchiveHost;
use crate::watch::Watch;

/// Whether any `libc.a` of a bundle carries a graft.
pub(crate) fn carries_graft(bundle: &Path, format: Format) -> Result<bool, Error> {
    let mut found = false;
    scan(bundle, format, &libcs, &mut |name, bytes| {
        found |= is_graft(bundle, name, bytes)?;
        Ok(())
    })?;
    Ok(found)
}

pub(crate) fn scan(bundle: &Path, format: Format, wants: Wants<'_>, see: See<'_>) -> Result<(), Error> {
    let file = File::open(bundle).context(bundle, "read")?;
    Source { path: bundle, file: &file, format, watch: &Watch::default() }.scan(wants, see).map(|_| ())
}

pub(crate) fn libcs(name: &[u8]) -> Option<u64> {
    is_libc(name).then_some(MOST_LIBC)
}

/// Whether a `libc.a` of a bundle carries a graft.
pub(crate) fn is_graft(bundle: &Path, name: &[u8], bytes: &[u8]) -> Result<bool, Error> {
    let path = inside(bundle, name);
    Ok(signature_of(bytes) == Signature::Archive && ArchiveHost::read(&path, bytes)?.carried().anything())
}

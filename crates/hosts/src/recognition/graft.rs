//! Whether a file is a graft already.

use std::fs;
use std::path::Path;

use crate::error::Error;
use crate::file::host_file::read;
use crate::file::signature::{Signature, signature};
use crate::host::Host;
use crate::host::archive::ArchiveHost;
use crate::packed;

/// Whether a file without a record carries a graft. `named`: the user named it, so it has to be readable as a host.
pub(crate) fn carries_graft(host: &Path, named: bool) -> Result<bool, Error> {
    match signature(host)? {
        Signature::Archive => {}
        Signature::Packed(format) => {
            return if named { packed::carried::carries_graft(host, format) } else { Ok(false) };
        }
        Signature::Executable => return Ok(transplant::carries_graft(&read(host)?)),
        _ if !named => return Ok(false),
        Signature::Unsupported { kind, reason, help } => {
            return Err(Error::Unsupported { path: host.to_owned(), kind, reason, help });
        }
        Signature::Unknown(found) => {
            return Err(Error::Unrecognised { path: host.to_owned(), found: found.to_owned() });
        }
    }
    let bytes = read(host)?;
    Ok(ArchiveHost::read(host, &bytes)?.carried().anything())
}

/// Whether the file at `host` carries a graft; `false` if it cannot be read or parsed.
pub(crate) fn is_graft(host: &Path) -> bool {
    fs::metadata(host).is_ok_and(|found| found.is_file()) && carries_graft(host, true).unwrap_or(false)
}

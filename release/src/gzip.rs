//! Compressed streams without a time or a name.

use std::io::Write;

use anyhow::Result;
use flate2::{Compression, GzBuilder};

/// Returns `bytes` as one gzip stream, as `gzip -9n` does.
pub(crate) fn compress(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = GzBuilder::new().mtime(0).operating_system(3).write(Vec::new(), Compression::best());
    encoder.write_all(bytes)?;
    Ok(encoder.finish()?)
}

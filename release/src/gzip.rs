//! Compressed streams without a time or a name.
//! Either would make the bytes of two runs differ.

use std::io::Write;

use anyhow::Result;
use flate2::{Compression, GzBuilder};

/// Returns `bytes` as one gzip stream, as `gzip -9n` does.
pub(crate) fn compress(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = GzBuilder::new().mtime(0).operating_system(3).write(Vec::new(), Compression::best());
    encoder.write_all(bytes)?;
    Ok(encoder.finish()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_has_neither_time_nor_name() {
        // Magic, deflate, no flags, four bytes of time, best compression, Unix.
        assert_eq!(compress(b"text").unwrap()[..10], [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 2, 3]);
    }
}

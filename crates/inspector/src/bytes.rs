//! Reads numbers of either byte order and either word size from a file. `None` where the file ends before.

/// The bytes of an ELF file and the layout of its numbers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bytes<'a> {
    pub(crate) data: &'a [u8],
    /// Least significant byte first.
    pub(crate) little: bool,
    /// Addresses, offsets and sizes take 8 bytes, not 4.
    pub(crate) wide: bool,
}

impl<'a> Bytes<'a> {
    pub(crate) fn slice(&self, at: u64, length: u64) -> Option<&'a [u8]> {
        let start = usize::try_from(at).ok()?;
        let end = start.checked_add(usize::try_from(length).ok()?)?;
        self.data.get(start..end)
    }

    fn array<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        self.data.get(at..at.checked_add(N)?)?.try_into().ok()
    }

    pub(crate) fn u8(&self, at: usize) -> Option<u8> {
        self.data.get(at).copied()
    }

    pub(crate) fn u16(&self, at: usize) -> Option<u16> {
        let raw = self.array(at)?;
        Some(if self.little { u16::from_le_bytes(raw) } else { u16::from_be_bytes(raw) })
    }

    pub(crate) fn u32(&self, at: usize) -> Option<u32> {
        let raw = self.array(at)?;
        Some(if self.little { u32::from_le_bytes(raw) } else { u32::from_be_bytes(raw) })
    }

    pub(crate) fn u64(&self, at: usize) -> Option<u64> {
        let raw = self.array(at)?;
        Some(if self.little { u64::from_le_bytes(raw) } else { u64::from_be_bytes(raw) })
    }

    /// Returns a number of the width of an address.
    pub(crate) fn word(&self, at: usize) -> Option<u64> {
        if self.wide { self.u64(at) } else { self.u32(at).map(u64::from) }
    }

    pub(crate) fn over<'b>(&self, data: &'b [u8]) -> Bytes<'b> {
        Bytes { data, little: self.little, wide: self.wide }
    }
}

/// Returns the text at `at` up to its NUL, or its first 4,096 bytes: millions of symbols may name one endless string.
pub(crate) fn c_string(data: &[u8], at: usize) -> Option<&[u8]> {
    let rest = data.get(at..)?;
    let rest = rest.get(..4096).unwrap_or(rest);
    Some(memchr::memchr(0, rest).and_then(|end| rest.get(..end)).unwrap_or(rest))
}

/// Returns the bytes as text that can be printed on one line.
pub(crate) fn printable(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

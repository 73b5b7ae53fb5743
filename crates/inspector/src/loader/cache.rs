//! glibc's `ld.so.cache`, in the new format, the old one, and the new one behind the old one (glibc elf/dl-cache.h).

use std::cmp::Ordering;

use foldhash::HashMap;

use crate::bytes::Bytes;
use crate::loader::module::Machine;

const NEW: &[u8; 20] = b"glibc-ld.so.cache1.1";
const OLD: &[u8; 11] = b"ld.so-1.7.0";
const NEW_HEADER: usize = 48;
const NEW_ENTRY: usize = 24;
const OLD_HEADER: usize = 16;
const OLD_ENTRY: usize = 12;

/// The libraries of a cache for one kind of process.
#[derive(Debug, Default)]
pub(super) struct Cache {
    paths: HashMap<Vec<u8>, Paths>,
}

/// Where a library is.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Paths {
    /// The path that every processor takes.
    pub(super) plain: Option<Vec<u8>>,
    /// Paths that are taken instead on processors with the features that they require.
    pub(super) variants: Vec<Vec<u8>>,
}

impl Cache {
    /// Reads the entries that a loader for `machine` takes.
    ///
    /// # Errors
    /// The cache is damaged, or the machine's entries are not known.
    pub(super) fn read(data: &[u8], machine: Machine) -> Result<Cache, String> {
        let flags = flags_of(machine).ok_or("it is not known which of its entries are for this architecture")?;
        let bytes = Bytes { data, little: machine.little, wide: false };
        if data.starts_with(NEW) {
            return Cache::entries(&bytes, 0, flags, true);
        }
        if !data.starts_with(OLD) {
            return Err("it is not a cache of glibc's loader".to_owned());
        }
        let cut = "it is cut short";
        let count = bytes.u32(12).ok_or(cut)? as usize;
        let end = count.checked_mul(OLD_ENTRY).and_then(|size| size.checked_add(OLD_HEADER)).ok_or(cut)?;
        // The new cache follows at a multiple of 8 bytes.
        let new = end.next_multiple_of(8);
        match data.get(new..).is_some_and(|rest| rest.starts_with(NEW)) {
            true => Cache::entries(&bytes, new, flags, true),
            false => Cache::entries(&bytes, 0, flags, false),
        }
    }

    fn entries(bytes: &Bytes<'_>, start: usize, flags: u32, is_new: bool) -> Result<Cache, String> {
        let cut = "it is cut short";
        let (header, entry) = if is_new { (NEW_HEADER, NEW_ENTRY) } else { (OLD_HEADER, OLD_ENTRY) };
        let count = bytes.u32(start + if is_new { 20 } else { 12 }).ok_or(cut)? as usize;
        let first = start + header;
        let end = count.checked_mul(entry).and_then(|size| first.checked_add(size)).ok_or(cut)?;
        if end > bytes.data.len() {
            return Err(format!("it ends before the last of its {count} entries"));
        }
        // The texts of the new format are counted from its header, those of the old one from the end of its entries.
        let base = if is_new { start } else { end };
        let text = |offset: u32| -> Option<&[u8]> {
            let rest = bytes.data.get(base.checked_add(offset as usize)?..)?;
            let rest = rest.get(..4096).unwrap_or(rest);
            memchr::memchr(0, rest).map(|end| &rest[..end])
        };
        let mut cache = Cache::default();
        let mut previous: Option<&[u8]> = None;
        for index in 0..count {
            let at = first + index * entry;
            let name = bytes.u32(at + 4).and_then(text).ok_or(cut)?;
            // The loader halves the range until it has found the name, so in a different order it finds something else.
            if previous.is_some_and(|previous| order(previous, name) == Ordering::Less) {
                return Err("its entries are not in order".to_owned());
            }
            previous = Some(name);
            // 1: any ELF library.
            if bytes.u32(at).is_none_or(|found| found != flags && found != 1) {
                continue;
            }
            let path = bytes.u32(at + 8).and_then(text).ok_or(cut)?.to_owned();
            let capabilities = if is_new { Bytes { wide: true, ..*bytes }.u64(at + 16).ok_or(cut)? } else { 0 };
            let paths = cache.paths.entry(name.to_owned()).or_default();
            match (capabilities, &paths.plain) {
                (0, None) => paths.plain = Some(path),
                (0, Some(_)) => {}
                _ => paths.variants.push(path),
            }
        }
        Ok(cache)
    }

    /// Returns where the cache says that a library is.
    pub(super) fn find(&self, name: &[u8]) -> Paths {
        self.paths.get(name).cloned().unwrap_or_default()
    }
}

/// Returns the flags of the entries that are for a machine (glibc sysdeps/generic/ldconfig.h; the low bits say that it
/// is for libc 6).
fn flags_of(machine: Machine) -> Option<u32> {
    const EF_ARM_ABI_FLOAT_HARD: u32 = 0x400;
    let kind = match (machine.number, machine.wide) {
        // 32-bit x86.
        (3, false) => 0x0000,
        // AMD64, x32.
        (62, true) => 0x0300,
        (62, false) => 0x0800,
        (183, true) => 0x0a00,
        (40, false) if machine.flags & EF_ARM_ABI_FLOAT_HARD != 0 => 0x0900,
        (40, false) => 0x0b00,
        (21, true) => 0x0500,
        (22, true) => 0x0400,
        // EF_RISCV_FLOAT_ABI: double precision, none.
        (243, true) if machine.flags & 6 == 4 => 0x1000,
        (243, true) if machine.flags & 6 == 0 => 0x0f00,
        // EF_LOONGARCH_ABI_MODIFIER: double precision, none.
        (258, true) if machine.flags & 7 == 3 => 0x1200,
        (258, true) if machine.flags & 7 == 1 => 0x1100,
        _ => return None,
    };
    Some(kind | 3)
}

/// Compares two names as the cache is ordered: as texts, but numbers by their value (glibc elf/dl-cache.c,
/// `_dl_cache_libcmp`). The cache has the greatest first.
fn order(one: &[u8], other: &[u8]) -> Ordering {
    let at = |text: &[u8], place: usize| text.get(place).copied().unwrap_or_default();
    let (mut left, mut right) = (0, 0);
    while left < one.len() {
        match (at(one, left).is_ascii_digit(), at(other, right).is_ascii_digit()) {
            (true, false) => return Ordering::Greater,
            (false, true) => return Ordering::Less,
            (true, true) => {
                let number = |text: &[u8], place: &mut usize| {
                    let mut number = 0u64;
                    while at(text, *place).is_ascii_digit() {
                        number = number.wrapping_mul(10).wrapping_add(u64::from(at(text, *place) - b'0'));
                        *place += 1;
                    }
                    number
                };
                let (one, other) = (number(one, &mut left), number(other, &mut right));
                if one != other {
                    return one.cmp(&other);
                }
            }
            (false, false) => {
                if at(one, left) != at(other, right) {
                    return at(one, left).cmp(&at(other, right));
                }
                left += 1;
                right += 1;
            }
        }
    }
    at(one, left).cmp(&at(other, right))
}

#[cfg(test)]
mod tests {
    use super::*;

    const AMD64: Machine = Machine { number: 62, wide: true, little: true, flags: 0 };

    /// A cache in the new format with these entries: flags, capabilities, name, path. Sorted as ldconfig sorts.
    fn new_format(entries: &[(u32, u64, &str, &str)]) -> Vec<u8> {
        let mut bytes = NEW.to_vec();
        bytes.extend((entries.len() as u32).to_le_bytes());
        bytes.resize(NEW_HEADER, 0);
        let mut texts = Vec::new();
        for (flags, capabilities, name, path) in entries {
            let place = |texts: &Vec<u8>| (NEW_HEADER + entries.len() * NEW_ENTRY + texts.len()) as u32;
            bytes.extend(flags.to_le_bytes());
            bytes.extend(place(&texts).to_le_bytes());
            texts.extend([name.as_bytes(), b"\0"].concat());
            bytes.extend(place(&texts).to_le_bytes());
            texts.extend([path.as_bytes(), b"\0"].concat());
            bytes.extend(0u32.to_le_bytes());
            bytes.extend(capabilities.to_le_bytes());
        }
        bytes.extend(texts);
        bytes
    }

    /// A cache with these entries in the old format.
    fn old_format(entries: &[(u32, &str, &str)]) -> Vec<u8> {
        let mut bytes = OLD.to_vec();
        bytes.push(0);
        bytes.extend((entries.len() as u32).to_le_bytes());
        let mut texts = Vec::new();
        for (flags, name, path) in entries {
            bytes.extend(flags.to_le_bytes());
            bytes.extend((texts.len() as u32).to_le_bytes());
            texts.extend([name.as_bytes(), b"\0"].concat());
            bytes.extend((texts.len() as u32).to_le_bytes());
            texts.extend([path.as_bytes(), b"\0"].concat());
        }
        bytes.extend(texts);
        bytes
    }

    fn plain(bytes: &[u8], name: &str) -> Option<String> {
        let cache = Cache::read(bytes, AMD64).unwrap();
        cache.find(name.as_bytes()).plain.map(|path| String::from_utf8(path).unwrap())
    }

    #[test]
    fn the_entries_of_the_architecture_count() {
        let bytes = new_format(&[
            (0x303, 0, "libz.so.10", "/usr/lib/libz.so.10"),
            (0x003, 0, "libz.so.1", "/usr/lib32/libz.so.1"),
            (0x303, 2 | 1 << 62, "libz.so.1", "/usr/lib/glibc-hwcaps/x86-64-v3/libz.so.1"),
            (0x303, 0, "libz.so.1", "/usr/lib/libz.so.1"),
        ]);
        assert_eq!(plain(&bytes, "libz.so.1").as_deref(), Some("/usr/lib/libz.so.1"));
        assert_eq!(plain(&bytes, "libz.so.2"), None);
        let cache = Cache::read(&bytes, AMD64).unwrap();
        assert_eq!(cache.find(b"libz.so.1").variants, [b"/usr/lib/glibc-hwcaps/x86-64-v3/libz.so.1"]);
    }

    #[test]
    fn all_three_formats_are_read() {
        let old = old_format(&[(0x303, "libz.so.1", "/lib/libz.so.1"), (3, "liba.so", "/lib32/liba.so")]);
        assert_eq!(plain(&old, "libz.so.1").as_deref(), Some("/lib/libz.so.1"));
        assert_eq!(plain(&old, "liba.so"), None);
        let mut both = old_format(&[]);
        both.extend(new_format(&[(0x303, 0, "libz.so.1", "/new/libz.so.1")]));
        assert_eq!(plain(&both, "libz.so.1").as_deref(), Some("/new/libz.so.1"));
    }

    #[test]
    fn this_machines_cache_is_in_the_order_that_is_expected() {
        // ldconfig may never have run here; the tests above do not need it.
        if let Ok(bytes) = std::fs::read("/etc/ld.so.cache") {
            let machine = if cfg!(target_arch = "x86_64") { AMD64 } else { Machine { number: 183, ..AMD64 } };
            assert!(!Cache::read(&bytes, machine).unwrap().find(b"libc.so.6").plain.unwrap().is_empty());
        }
    }

    #[test]
    fn a_cache_that_is_cut_anywhere_is_an_error_or_misses_nothing() {
        let bytes = new_format(&[(0x303, 0, "libz.so.1", "/lib/libz.so.1"), (0x303, 0, "liba.so", "/lib/liba.so")]);
        for cut in 0..bytes.len() {
            assert!(Cache::read(&bytes[..cut], AMD64).is_err(), "{cut}");
        }
        let old = old_format(&[(0x303, "libz.so.1", "/lib/libz.so.1")]);
        for cut in 0..old.len() {
            assert!(Cache::read(&old[..cut], AMD64).is_err(), "{cut}");
        }
        let unsorted = new_format(&[(0x303, 0, "liba.so", "/lib/liba.so"), (0x303, 0, "libz.so.1", "/lib/libz.so.1")]);
        assert!(Cache::read(&unsorted, AMD64).unwrap_err().contains("order"));
    }

    #[test]
    fn numbers_are_compared_by_their_value() {
        assert_eq!(order(b"libz.so.10", b"libz.so.9"), Ordering::Greater);
        assert_eq!(order(b"libz.so", b"libz.so.1"), Ordering::Less);
        assert_eq!(order(b"lib1", b"liba"), Ordering::Greater);
        assert_eq!(order(b"liba", b"liba"), Ordering::Equal);
    }
}

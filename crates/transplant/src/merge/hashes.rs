//! Hash tables of dynamic symbols, for both kinds of look-up.

/// The hash of a name in DT_GNU_HASH (glibc elf/dl-hash.h, `_dl_new_hash`).
pub(super) fn gnu_hash(name: &[u8]) -> u32 {
    name.iter().fold(5381, |hash: u32, byte| hash.wrapping_mul(33).wrapping_add(u32::from(*byte)))
}

/// The hash of a name in DT_HASH (gABI, "Hash Table").
fn sysv_hash(name: &[u8]) -> u32 {
    name.iter().fold(0, |hash: u32, byte| {
        let hash = (hash << 4).wrapping_add(u32::from(*byte));
        let high = hash & 0xf000_0000;
        (hash ^ (high >> 24)) & !high
    })
}

/// The number of buckets of a GNU hash table for so many symbols. The symbols have to be sorted by their hash modulo
/// that number.
pub(super) fn buckets(count: usize) -> u32 {
    (count as u32 / 2).max(1)
}

/// Returns a GNU hash table of these names, which are those of the symbols from number `first` on, sorted by bucket.
pub(super) fn gnu_table<'n>(names: impl ExactSizeIterator<Item = &'n [u8]>, first: usize) -> Vec<u8> {
    const SHIFT: u32 = 26;
    let count = buckets(names.len());
    let hashes: Vec<u32> = names.map(gnu_hash).collect();
    let mut bloom = vec![0_u64; (hashes.len() / 8 + 1).next_power_of_two()];
    let (mut buckets, mut chains) = (vec![0_u32; count as usize], Vec::with_capacity(hashes.len()));
    for (index, hash) in hashes.iter().enumerate() {
        let word = (*hash as usize / 64) & (bloom.len() - 1);
        bloom[word] |= (1 << (hash % 64)) | (1 << ((hash >> SHIFT) % 64));
        let bucket = &mut buckets[(hash % count) as usize];
        if *bucket == 0 {
            *bucket = (first + index) as u32;
        }
        let last = hashes.get(index + 1).is_none_or(|next| next % count != hash % count);
        chains.push((hash & !1) | u32::from(last));
    }
    let head = [count, first as u32, bloom.len() as u32, SHIFT];
    let mut table: Vec<u8> = head.into_iter().flat_map(u32::to_le_bytes).collect();
    table.extend(bloom.into_iter().flat_map(u64::to_le_bytes));
    table.extend(buckets.into_iter().chain(chains).flat_map(u32::to_le_bytes));
    table
}

/// Returns a System V hash table of all symbols, by their numbers from 0 on. A symbol without a name here is not
/// found.
pub(super) fn sysv_table(names: &[Option<&[u8]>]) -> Vec<u8> {
    let count = (names.len() as u32 / 2).max(1);
    let (mut buckets, mut chains) = (vec![0_u32; count as usize], vec![0_u32; names.len()]);
    for (index, name) in names.iter().enumerate() {
        let Some(name) = name else { continue };
        let bucket = &mut buckets[(sysv_hash(name) % count) as usize];
        chains[index] = *bucket;
        *bucket = index as u32;
    }
    [count, names.len() as u32].into_iter().chain(buckets).chain(chains).flat_map(u32::to_le_bytes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_the_specifications() {
        // Both pages give these (gABI; the GNU hash's announcement, binutils 2006-07).
        assert_eq!((sysv_hash(b""), sysv_hash(b"printf"), sysv_hash(b"exit")), (0, 0x077905a6, 0x0006cf04));
        assert_eq!((gnu_hash(b""), gnu_hash(b"printf"), gnu_hash(b"exit")), (0x1505, 0x156b2bb8, 0x7c967e3f));
    }
}

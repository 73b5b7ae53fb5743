//! The thread-local storage of the program and of the donor in one. No distance from the thread pointer in the
//! program's code changes (Drepper, ELF Handling For Thread-Local Storage, 3).

use format::Arch;

use crate::image::{Image, PT_TLS, Segment};
use crate::refusal::Refusal;

/// The gap between the thread pointer and the storage behind it, in variant I (musl arch/aarch64/pthread_arch.h,
/// GAP_ABOVE_TP).
const GAP: u64 = 16;
/// The limit of a distance in aarch64's instructions: 24 bits.
const FARTHEST: u64 = 1 << 24;

/// The program's storage and the donor's in one.
#[derive(Debug)]
pub(crate) struct ThreadStorage {
    /// The image, the donor's part and the program's.
    pub(crate) image: Vec<u8>,
    pub(crate) size: u64,
    pub(crate) align: u64,
    /// The image's address modulo the alignment, so that the program's part stays where it was.
    pub(crate) remainder: u64,
    /// The number of bytes in front of the program's part.
    pub(crate) front: u64,
    /// The offset of the donor's part in the image.
    pub(crate) own: u64,
    /// The distance of the donor's part from the thread pointer.
    pub(crate) distance: i64,
    /// The change of the donor's distances.
    pub(crate) shift: i64,
}

impl ThreadStorage {
    /// The donor's part has the segment `own`, and the bytes `initial` as its image.
    pub(crate) fn combine(image: &Image<'_>, own: &Segment, initial: &[u8]) -> Result<ThreadStorage, Refusal> {
        let stock = image.segment(PT_TLS).copied();
        let stock = stock.unwrap_or(Segment { kind: PT_TLS, align: 1, ..Segment::default() });
        match image.arch {
            Arch::X86_64 => Ok(ThreadStorage::in_front(image, &stock, own, initial)),
            _ => ThreadStorage::behind(image, &stock, own, initial),
        }
    }

    /// Variant II: storage ends at the thread pointer. The donor's part goes in front.
    fn in_front(image: &Image<'_>, stock: &Segment, own: &Segment, initial: &[u8]) -> ThreadStorage {
        let (size, align) = (stock.memory_size, stock.align.max(1));
        // The size that musl reserves for the stock program (src/env/__init_tls.c, static_init_tls).
        let before = size + (0u64.wrapping_sub(size).wrapping_sub(stock.address) & (align - 1));
        let own_align = own.align.max(1);
        let new_align = align.max(own_align);
        let own_size = own.memory_size.next_multiple_of(own_align);
        let padding = before.next_multiple_of(own_align) - before;
        let front = (own_size + padding).next_multiple_of(new_align);
        let begins = front - padding - own_size;
        let mut bytes = vec![0; begins as usize];
        bytes.extend(initial);
        bytes.resize(front as usize, 0);
        bytes.extend(image.read(stock.address, stock.file_size as usize).unwrap_or_default());
        let whole = front + size;
        ThreadStorage {
            image: bytes,
            size: whole,
            align: new_align,
            remainder: 0u64.wrapping_sub(whole).wrapping_sub(before - size) & (new_align - 1),
            front,
            own: begins,
            distance: -((before + padding + own_size) as i64),
            shift: -((before + padding) as i64),
        }
    }

    /// Variant I: storage begins behind the thread pointer. The donor's part goes to its end.
    fn behind(image: &Image<'_>, stock: &Segment, own: &Segment, initial: &[u8]) -> Result<ThreadStorage, Refusal> {
        let (align, own_align) = (stock.align.max(1), own.align.max(1));
        let new_align = align.max(own_align);
        let distance = distance(stock.address, align);
        let begins = (distance + stock.memory_size).next_multiple_of(own_align) - distance;
        let mut bytes = image.read(stock.address, stock.file_size as usize).unwrap_or_default().to_vec();
        if !initial.is_empty() {
            bytes.resize(begins as usize, 0);
            bytes.extend(initial);
        }
        let size = begins + own.memory_size;
        if distance + size >= FARTHEST {
            return Err(Refusal::ThreadLocalSize(stock.memory_size));
        }
        Ok(ThreadStorage {
            image: bytes,
            size,
            align: new_align,
            remainder: distance & (new_align - 1),
            front: 0,
            own: begins,
            distance: (distance + begins) as i64,
            shift: (distance + begins) as i64 - self::distance(own.address, own_align) as i64,
        })
    }
}

/// The distance of the storage from the thread pointer in variant I, by its address and alignment.
pub(crate) fn distance(address: u64, align: u64) -> u64 {
    GAP + (address.wrapping_sub(GAP) & (align - 1))
}

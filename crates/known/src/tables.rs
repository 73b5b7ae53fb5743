//! The tables of numbers that are marks of allocators, each with the source file that has it.

use crate::veil::{veiled, veiled_numbers};

/// musl src/malloc/mallocng/malloc.c, `__malloc_size_classes`.
pub(crate) static SIZE_CLASSES: [u8; 96] = veiled_numbers(
    &[
        1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 18, 20, 25, 31, 36, 42, 50, 63, 72, 84, 102, 127, 146, 170, 204, 255,
        292, 340, 409, 511, 584, 682, 818, 1023, 1169, 1364, 1637, 2047, 2340, 2730, 3276, 4095, 4680, 5460, 6552,
        8191,
    ],
    2,
);

/// musl src/malloc/oldmalloc/malloc.c, `bin_tab` of `bin_index`.
pub(crate) static BIN_TABLE: [u8; 60] = veiled(&[
    32, 33, 34, 35, 36, 36, 37, 37, 38, 38, 39, 39, 40, 40, 40, 40, 41, 41, 41, 41, 42, 42, 42, 42, 43, 43, 43, 43, 44,
    44, 44, 44, 44, 44, 44, 44, 45, 45, 45, 45, 45, 45, 45, 45, 46, 46, 46, 46, 46, 46, 46, 46, 47, 47, 47, 47, 47, 47,
    47, 47,
]);

/// mimalloc src/init.c, `MI_PAGE_QUEUES_EMPTY`: the block sizes of queues of 640 to 2,048 words, each between the null
/// pointers that a queue starts with. A queue of mimalloc 2 is two pointers and the size; one of mimalloc 3 has a count
/// between them.
const fn queues<const BYTES: usize>(words: usize, word: usize) -> [u8; BYTES] {
    let sizes = [640, 768, 896, 1024, 1280, 1536, 1792, 2048];
    let mut bytes = [0xff; BYTES];
    let mut at = 0;
    while at < BYTES {
        let (queue, inside) = (at / (words * word), at % (words * word));
        if inside < word {
            bytes[at] = !(((sizes[queue] * word) >> (8 * inside)) as u8);
        }
        at += 1;
    }
    bytes
}
pub(crate) static QUEUES_OF_2: [u8; 7 * 24 + 8] = queues(3, 8);
pub(crate) static QUEUES_OF_3: [u8; 7 * 32 + 8] = queues(4, 8);
pub(crate) static NARROW_QUEUES_OF_2: [u8; 7 * 12 + 4] = queues(3, 4);
pub(crate) static NARROW_QUEUES_OF_3: [u8; 7 * 16 + 4] = queues(4, 4);

/// rpmalloc 2, rpmalloc/rpmalloc.c, `global_size_class`: size and count of blocks of 40 to 64 granules of 16 bytes, in
/// pages of 65,536 bytes with a header of 128.
const fn rpmalloc_classes() -> [u8; 200] {
    let mut bytes = [0; 200];
    let mut at = 0;
    while at < 200 {
        let size = (40 + at / 8) * 16;
        let number = if at % 8 < 4 { size } else { (65_536 - 128) / size };
        bytes[at] = !((number >> (8 * (at % 4))) as u8);
        at += 1;
    }
    bytes
}
pub(crate) static RPMALLOC_CLASSES: [u8; 200] = rpmalloc_classes();

/// hardened_malloc h_malloc.c, `size_classes`.
pub(crate) static HARDENED_CLASSES: [u8; 144] = veiled_numbers(
    &[
        16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 896, 1024, 1280, 1536,
        1792, 2048, 2560, 3072, 3584, 4096, 5120, 6144, 7168, 8192, 10240, 12288, 14336, 16384,
    ],
    4,
);

//! The marks of each allocator that survive `strip`, each with the source file that has it.
//!
//! Marks are stored complemented and restored at run time: this program, too, is a file that somebody inspects, and
//! must not carry the marks of allocators that are not in it. docs/contributing/evidence.md says how to add one.

use std::hint::black_box;

/// An allocator, or something else that leaves marks of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Origin {
    Mallocng,
    Oldmalloc,
    Glibc,
    Mimalloc,
    Jemalloc,
    /// jemalloc as the Rust crate builds it. Its functions have a prefix, so it is not `malloc`.
    JemallocPrefixed,
    Snmalloc,
    Rpmalloc,
    Scudo,
    Tcmalloc,
    Hardened,
    Go,
    /// musl itself, with any allocator.
    Musl,
    /// Rust's standard library: a caller of an allocator, not an allocator.
    Rust,
}

impl Origin {
    /// Whether this can serve `malloc`.
    pub(crate) fn serves_malloc(self) -> bool {
        !matches!(self, Origin::JemallocPrefixed | Origin::Go | Origin::Musl | Origin::Rust)
    }

    /// Returns the name in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Origin::Mallocng => "mallocng",
            Origin::Oldmalloc => "oldmalloc",
            Origin::Glibc => "glibc",
            Origin::Mimalloc => "mimalloc",
            Origin::Jemalloc | Origin::JemallocPrefixed => "jemalloc",
            Origin::Snmalloc => "snmalloc",
            Origin::Rpmalloc => "rpmalloc",
            Origin::Scudo => "scudo",
            Origin::Tcmalloc => "tcmalloc",
            Origin::Hardened => "hardened",
            Origin::Go => "go",
            Origin::Musl => "musl",
            Origin::Rust => "rust",
        }
    }

    /// Returns the number of different marks that prove the origin: one where the mark is a table that nothing else
    /// has.
    pub(crate) fn enough(self) -> usize {
        match self {
            Origin::Mallocng | Origin::Oldmalloc | Origin::Rpmalloc | Origin::JemallocPrefixed | Origin::Musl => 1,
            Origin::Go => 3,
            _ => 2,
        }
    }
}

/// Bytes that are in every file that contains the allocator.
pub(crate) struct Mark {
    pub(crate) origin: Origin,
    veiled: &'static [u8],
    pub(crate) what: &'static str,
    /// The release, or line of releases, that the mark proves: no other one has it.
    pub(crate) version: Option<&'static str>,
}

impl Mark {
    /// Returns the bytes as they are in a file.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        unveil(self.veiled)
    }
}

fn unveil(bytes: &'static [u8]) -> Vec<u8> {
    // Without the barrier the compiler may restore the bytes at build time.
    black_box(bytes).iter().map(|byte| !byte).collect()
}

/// Complements every byte.
const fn veiled<const N: usize>(plain: &[u8; N]) -> [u8; N] {
    let mut bytes = [0; N];
    let mut at = 0;
    while at < N {
        bytes[at] = !plain[at];
        at += 1;
    }
    bytes
}

/// Complements numbers of `width` bytes each, in little-endian order.
const fn veiled_numbers<const N: usize, const BYTES: usize>(plain: &[u64; N], width: usize) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    let mut at = 0;
    while at < BYTES {
        bytes[at] = !((plain[at / width] >> (8 * (at % width))) as u8);
        at += 1;
    }
    bytes
}

/// musl src/malloc/mallocng/malloc.c, `__malloc_size_classes`.
static SIZE_CLASSES: [u8; 96] = veiled_numbers(
    &[
        1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 18, 20, 25, 31, 36, 42, 50, 63, 72, 84, 102, 127, 146, 170, 204, 255,
        292, 340, 409, 511, 584, 682, 818, 1023, 1169, 1364, 1637, 2047, 2340, 2730, 3276, 4095, 4680, 5460, 6552,
        8191,
    ],
    2,
);

/// musl src/malloc/oldmalloc/malloc.c, `bin_tab` of `bin_index`.
static BIN_TABLE: [u8; 60] = veiled(&[
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
static QUEUES_OF_2: [u8; 7 * 24 + 8] = queues(3, 8);
static QUEUES_OF_3: [u8; 7 * 32 + 8] = queues(4, 8);
static NARROW_QUEUES_OF_2: [u8; 7 * 12 + 4] = queues(3, 4);
static NARROW_QUEUES_OF_3: [u8; 7 * 16 + 4] = queues(4, 4);

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
static RPMALLOC_CLASSES: [u8; 200] = rpmalloc_classes();

/// hardened_malloc h_malloc.c, `size_classes`.
static HARDENED_CLASSES: [u8; 144] = veiled_numbers(
    &[
        16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 896, 1024, 1280, 1536,
        1792, 2048, 2560, 3072, 3584, 4096, 5120, 6144, 7168, 8192, 10240, 12288, 14336, 16384,
    ],
    4,
);

/// A mark that is a table.
macro_rules! table {
    ($origin:ident, $table:ident, $what:literal) => {
        Mark { origin: Origin::$origin, veiled: &$table, what: $what, version: None }
    };
    ($origin:ident $version:literal, $table:ident, $what:literal) => {
        Mark { origin: Origin::$origin, veiled: &$table, what: $what, version: Some($version) }
    };
}

/// A mark that is a text. Linkers merge texts with equal ends. Therefore any byte may precede a text, and only the NUL
/// after it is certain.
macro_rules! text {
    ($origin:ident, $text:literal, $what:literal) => {
        Mark {
            origin: Origin::$origin,
            veiled: {
                static VEILED: &[u8] = &veiled($text);
                VEILED
            },
            what: $what,
            version: None,
        }
    };
}

/// Go cmd/link: returns the start of the build information.
pub(crate) fn go_build_information() -> Vec<u8> {
    static MAGIC: &[u8] = &veiled(b"\xff Go buildinf:");
    unveil(MAGIC)
}

/// glibc csu/version.c: returns the start of the banner.
pub(crate) fn glibc_banner() -> Vec<u8> {
    static BANNER: &[u8] = &veiled(b"GNU C Library (");
    unveil(BANNER)
}

pub(crate) static MARKS: &[Mark] = &[
    table!(Mallocng, SIZE_CLASSES, "musl's table of 48 size classes (96 bytes)"),
    table!(Oldmalloc, BIN_TABLE, "oldmalloc's table of bins (60 bytes)"),
    // musl src/errno/__strerror.h.
    text!(Musl, b"No error information\0Illegal byte sequence\0", "musl's texts for errors 0 and EILSEQ"),
    text!(
        Musl,
        b"No such process\0File exists\0Value too large for data type\0",
        "musl's texts for ESRCH, EEXIST and EOVERFLOW"
    ),
    // glibc malloc/malloc.c.
    text!(Glibc, b"malloc(): corrupted top size\0", "a message of glibc's malloc: corrupted top size"),
    text!(
        Glibc,
        b"malloc_consolidate(): unaligned fastbin chunk detected\0",
        "a message of glibc's malloc_consolidate"
    ),
    text!(Glibc, b"free(): invalid next size (fast)\0", "a message of glibc's free: invalid next size"),
    text!(Glibc, b"corrupted size vs. prev_size while consolidating\0", "a message of glibc's malloc: prev_size"),
    text!(Glibc, b"malloc(): unsorted double linked list corrupted\0", "a message of glibc's malloc: unsorted list"),
    // In every release since 2.3, 2.20, 2.28 and 2.29, with fastbins and, since 2.43, without.
    text!(Glibc, b"realloc(): invalid next size\0", "a message of glibc's realloc: invalid next size"),
    text!(Glibc, b"double free or corruption (!prev)\0", "a message of glibc's free: double free"),
    text!(Glibc, b"corrupted double-linked list (not small)\0", "a message of glibc's malloc: list of large chunks"),
    text!(
        Glibc,
        b"malloc(): largebin double linked list corrupted (nextsize)\0",
        "a message of glibc's malloc: large bins"
    ),
    text!(Glibc, b"free(): double free detected in tcache 2\0", "a message of glibc's free: thread caches"),
    // mimalloc src/init.c, src/options.c, src/alloc.c, src/page.c.
    table!(Mimalloc "2.x", QUEUES_OF_2, "mimalloc 2's table of page queues"),
    table!(Mimalloc "3.x", QUEUES_OF_3, "mimalloc 3's table of page queues"),
    table!(Mimalloc "2.x", NARROW_QUEUES_OF_2, "mimalloc 2's table of page queues (32-bit)"),
    table!(Mimalloc "3.x", NARROW_QUEUES_OF_3, "mimalloc 3's table of page queues (32-bit)"),
    text!(Mimalloc, b"mimalloc: error: \0", "mimalloc's prefix of errors"),
    text!(Mimalloc, b"mimalloc: warning: \0", "mimalloc's prefix of warnings"),
    text!(Mimalloc, b"mimalloc_\0", "mimalloc's prefix of environment variables"),
    text!(Mimalloc, b"disallow_arena_alloc\0", "mimalloc's option disallow_arena_alloc"),
    text!(Mimalloc, b"disallow_os_alloc\0", "mimalloc's option disallow_os_alloc"),
    text!(Mimalloc, b"abandoned_reclaim_on_free\0", "mimalloc's option abandoned_reclaim_on_free"),
    // jemalloc src/jemalloc.c, src/ctl.c, src/malloc_io.c.
    text!(Jemalloc, b"<jemalloc>: ", "jemalloc's prefix of messages"),
    text!(Jemalloc, b"dirty_decay_ms\0", "jemalloc's option dirty_decay_ms"),
    text!(Jemalloc, b"lg_extent_max_active_fit\0", "jemalloc's option lg_extent_max_active_fit"),
    text!(Jemalloc, b"tcache_nslots_small_min\0", "jemalloc's option tcache_nslots_small_min"),
    text!(Jemalloc, b"lg_tcache_nslots_mul\0", "jemalloc's option lg_tcache_nslots_mul"),
    text!(JemallocPrefixed, b"_RJEM_MALLOC_CONF\0", "the variable _RJEM_MALLOC_CONF of the Rust crate's jemalloc"),
    text!(
        JemallocPrefixed,
        b"/etc/_rjem_malloc.conf\0",
        "the file /etc/_rjem_malloc.conf of the Rust crate's jemalloc"
    ),
    // snmalloc src/snmalloc/ds/pagemap.h, src/snmalloc/mem/corealloc.h, src/snmalloc/mem/freelist.h.
    text!(Snmalloc, b"Failed to initialise snmalloc.\0", "snmalloc's message on its page map"),
    text!(Snmalloc, b"Failed to initialise thread local allocator.\0", "snmalloc's message on thread-local allocators"),
    text!(Snmalloc, b"Heap corruption - free list corrupted!\0", "snmalloc's message on free lists"),
    // rpmalloc 2 rpmalloc/rpmalloc.c. rpmalloc 1 computes its table at start, and has no texts.
    table!(Rpmalloc, RPMALLOC_CLASSES, "rpmalloc 2's table of size classes"),
    // LLVM compiler-rt lib/scudo/standalone: report.cpp, flags_parser.cpp, primary64.h.
    text!(Scudo, b"Scudo ERROR: ", "scudo's prefix of errors"),
    text!(Scudo, b"Scudo OOM: ", "scudo's message on exhausted classes"),
    text!(Scudo, b"corrupted chunk header at address ", "scudo's message on chunk headers"),
    text!(Scudo, b"invalid chunk state when %s address %p\n", "scudo's message on chunk states"),
    text!(Scudo, b"misaligned pointer when %s address %p\n", "scudo's message on misaligned pointers"),
    // gperftools src/tcmalloc.cc, src/common.cc, src/static_vars.cc, src/system-alloc.cc; google/tcmalloc has the first
    // two.
    text!(Tcmalloc, b"tcmalloc.current_total_thread_cache_bytes", "tcmalloc's property on thread caches"),
    text!(Tcmalloc, b"tcmalloc.pageheap_unmapped_bytes", "tcmalloc's property on unmapped pages"),
    text!(Tcmalloc, b"TCMALLOC_TRANSFER_NUM_OBJ\0", "tcmalloc's variable TCMALLOC_TRANSFER_NUM_OBJ"),
    text!(Tcmalloc, b"TCMALLOC_SKIP_MMAP\0", "tcmalloc's variable TCMALLOC_SKIP_MMAP"),
    text!(Tcmalloc, b"tcmalloc: allocation failed", "tcmalloc's message on failure"),
    // hardened_malloc h_malloc.c, util.c.
    table!(Hardened, HARDENED_CLASSES, "hardened_malloc's table of size classes"),
    text!(Hardened, b"fatal allocator error: ", "hardened_malloc's prefix of errors"),
    text!(Hardened, b"invalid uninitialized allocator usage\0", "hardened_malloc's message on early use"),
    text!(Hardened, b"double free (quarantine)\0", "hardened_malloc's message on its quarantine"),
    // Go src/runtime: names of functions, which a Go program keeps for its own stack traces (internal/abi/symtab.go).
    text!(Go, b"runtime.mallocgc", "the name of Go's runtime.mallocgc"),
    text!(Go, b"runtime.(*mheap).allocSpan\0", "the name of Go's runtime.(*mheap).allocSpan"),
    text!(Go, b"runtime.(*mcache).refill\0", "the name of Go's runtime.(*mcache).refill"),
    // Rust library/core/src/panicking.rs, library/std/src/panicking.rs.
    text!(Rust, b"called `Option::unwrap()` on a `None` value", "a panic of Rust's Option"),
    text!(Rust, b"called `Result::unwrap()` on an `Err` value", "a panic of Rust's Result"),
    text!(Rust, b"note: run with `RUST_BACKTRACE=1` environment variable", "Rust's note on backtraces"),
];

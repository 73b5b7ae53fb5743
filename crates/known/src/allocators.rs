//! The rows. Marks are stored veiled; the names are from the allocators' public headers, from musl src/malloc and from
//! glibc malloc/malloc.c.

use crate::tables::*;
use crate::veil::{Mark, veiled};
use crate::{Foreign, Row};

/// A mark that is a table.
macro_rules! table {
    ($version:literal, $table:ident, $what:literal) => {
        Mark { veiled: &$table, what: $what, version: Some($version) }
    };
    ($table:ident, $what:literal) => {
        Mark { veiled: &$table, what: $what, version: None }
    };
}

/// A mark that is a text. Linkers merge texts with equal ends. Therefore any byte may precede a text, and only the NUL
/// after it is certain.
macro_rules! text {
    ($text:literal, $what:literal) => {
        Mark {
            veiled: {
                static VEILED: &[u8] = &veiled($text);
                VEILED
            },
            what: $what,
            version: None,
        }
    };
}

/// All rows. Reports list what was found in this order.
pub static ROWS: &[Row] = &[
    // musl since 1.2.1. Not `__libc_malloc_impl`: the bump allocator of programs that never free has that name too.
    Row {
        prefixes: &["__malloc_alloc_meta"],
        marks: &[table!(SIZE_CLASSES, "musl's table of 48 size classes (96 bytes)")],
        enough: 1,
        ..Row::new("mallocng")
    },
    // musl until 1.2.0.
    Row { marks: &[table!(BIN_TABLE, "oldmalloc's table of bins (60 bytes)")], enough: 1, ..Row::new("oldmalloc") },
    // musl itself, with any allocator.
    Row {
        serves_malloc: false,
        marks: &[
            // musl src/errno/__strerror.h.
            text!(b"No error information\0Illegal byte sequence\0", "musl's texts for errors 0 and EILSEQ"),
            text!(
                b"No such process\0File exists\0Value too large for data type\0",
                "musl's texts for ESRCH, EEXIST and EOVERFLOW"
            ),
        ],
        enough: 1,
        ..Row::new("musl")
    },
    Row {
        prefixes: &["_int_malloc", "sysmalloc"],
        inside: &["_int_malloc", "_int_free", "_int_realloc", "_int_memalign"],
        marks: &[
            // glibc malloc/malloc.c.
            text!(b"malloc(): corrupted top size\0", "a message of glibc's malloc: corrupted top size"),
            text!(
                b"malloc_consolidate(): unaligned fastbin chunk detected\0",
                "a message of glibc's malloc_consolidate"
            ),
            text!(b"free(): invalid next size (fast)\0", "a message of glibc's free: invalid next size"),
            text!(b"corrupted size vs. prev_size while consolidating\0", "a message of glibc's malloc: prev_size"),
            text!(b"malloc(): unsorted double linked list corrupted\0", "a message of glibc's malloc: unsorted list"),
            // In every release since 2.3, 2.20, 2.28 and 2.29, with fastbins and, since 2.43, without.
            text!(b"realloc(): invalid next size\0", "a message of glibc's realloc: invalid next size"),
            text!(b"double free or corruption (!prev)\0", "a message of glibc's free: double free"),
            text!(b"corrupted double-linked list (not small)\0", "a message of glibc's malloc: list of large chunks"),
            text!(
                b"malloc(): largebin double linked list corrupted (nextsize)\0",
                "a message of glibc's malloc: large bins"
            ),
            text!(b"free(): double free detected in tcache 2\0", "a message of glibc's free: thread caches"),
        ],
        ..Row::new("glibc")
    },
    Row {
        malloc: &["mi_malloc"],
        prefixes: &["mi_", "_mi_"],
        interface: &[
            "mi_malloc",
            "mi_free",
            "mi_calloc",
            "mi_version",
            "mi_heap_new",
            "mi_malloc_aligned",
            "mi_process_info",
            "mi_option_set",
        ],
        libraries: &["libmimalloc"],
        inside: &[
            "mi_malloc",
            "mi_calloc",
            "mi_zalloc",
            "mi_realloc",
            "mi_free",
            "mi_heap_",
            "mi_page_",
            "mi_segment",
            "mi_bin",
            "mi_arena",
            "mi_thread_",
            "mi_theap_",
            "mi_block_",
            "mi_aligned_",
            "mi_new",
            "mi_usable_size",
            "_mi_",
        ],
        marks: &[
            // mimalloc src/init.c, src/options.c, src/alloc.c, src/page.c.
            table!("2.x", QUEUES_OF_2, "mimalloc 2's table of page queues"),
            table!("3.x", QUEUES_OF_3, "mimalloc 3's table of page queues"),
            table!("2.x", NARROW_QUEUES_OF_2, "mimalloc 2's table of page queues (32-bit)"),
            table!("3.x", NARROW_QUEUES_OF_3, "mimalloc 3's table of page queues (32-bit)"),
            text!(b"mimalloc: error: \0", "mimalloc's prefix of errors"),
            text!(b"mimalloc: warning: \0", "mimalloc's prefix of warnings"),
            text!(b"mimalloc_\0", "mimalloc's prefix of environment variables"),
            text!(b"disallow_arena_alloc\0", "mimalloc's option disallow_arena_alloc"),
            text!(b"disallow_os_alloc\0", "mimalloc's option disallow_os_alloc"),
            text!(b"abandoned_reclaim_on_free\0", "mimalloc's option abandoned_reclaim_on_free"),
        ],
        ..Row::new("mimalloc")
    },
    Row {
        malloc: &["je_malloc", "_rjem_malloc"],
        prefixes: &["je_", "_rjem_"],
        foreign: Foreign { prefixes: &["mallctl"], parts: &[] },
        interface: &[
            "mallctl",
            "mallctlnametomib",
            "mallctlbymib",
            "mallocx",
            "rallocx",
            "xallocx",
            "dallocx",
            "sdallocx",
            "nallocx",
            "sallocx",
            "je_malloc",
            "je_calloc",
            "je_free",
            "je_mallctl",
            "je_mallocx",
        ],
        // jemalloc include/jemalloc/jemalloc_protos.h.in; snmalloc has the first two for programs that want them.
        exports: &["mallocx", "sdallocx", "mallctlbymib", "malloc_stats_print"],
        libraries: &["libjemalloc"],
        inside: &[
            "je_malloc",
            "je_free",
            "je_calloc",
            "je_realloc",
            "je_mallocx",
            "je_rallocx",
            "je_sdallocx",
            "je_arena_",
            "je_tcache_",
            "_rjem_",
            "arena_malloc",
            "arena_dalloc",
            "arena_slab_",
            "arena_get",
            "tcache_alloc",
            "tcache_dalloc",
            "tcache_bin_",
            "extent_alloc",
            "extent_dalloc",
        ],
        marks: &[
            // jemalloc src/jemalloc.c, src/ctl.c, src/malloc_io.c.
            text!(b"<jemalloc>: ", "jemalloc's prefix of messages"),
            text!(b"dirty_decay_ms\0", "jemalloc's option dirty_decay_ms"),
            text!(b"lg_extent_max_active_fit\0", "jemalloc's option lg_extent_max_active_fit"),
            text!(b"tcache_nslots_small_min\0", "jemalloc's option tcache_nslots_small_min"),
            text!(b"lg_tcache_nslots_mul\0", "jemalloc's option lg_tcache_nslots_mul"),
        ],
        ..Row::new("jemalloc")
    },
    // jemalloc as the Rust crate builds it. Its functions have a prefix, so it is not `malloc`.
    Row {
        id: "jemalloc-of-rust",
        serves_malloc: false,
        build_of: Some("jemalloc"),
        marks: &[
            text!(b"_RJEM_MALLOC_CONF\0", "the variable _RJEM_MALLOC_CONF of the Rust crate's jemalloc"),
            text!(b"/etc/_rjem_malloc.conf\0", "the file /etc/_rjem_malloc.conf of the Rust crate's jemalloc"),
        ],
        enough: 1,
        ..Row::new("jemalloc")
    },
    Row {
        malloc: &["sn_rust_alloc"],
        prefixes: &["sn_rust_"],
        namespaces: &["8snmalloc"],
        foreign: Foreign { prefixes: &["sn_"], parts: &["snmalloc"] },
        libraries: &["libsnmallocshim"],
        inside: &["sn_malloc", "sn_rust_", "snmalloc::"],
        marks: &[
            // snmalloc src/snmalloc/ds/pagemap.h, src/snmalloc/mem/corealloc.h, src/snmalloc/mem/freelist.h.
            text!(b"Failed to initialise snmalloc.\0", "snmalloc's message on its page map"),
            text!(b"Failed to initialise thread local allocator.\0", "snmalloc's message on thread-local allocators"),
            text!(b"Heap corruption - free list corrupted!\0", "snmalloc's message on free lists"),
        ],
        ..Row::new("snmalloc")
    },
    Row {
        malloc: &["rpmalloc"],
        prefixes: &["rpmalloc", "_rpmalloc"],
        foreign: Foreign { prefixes: &["rpfree"], parts: &[] },
        interface: &["rpmalloc", "rpfree"],
        libraries: &["librpmalloc"],
        inside: &["rpmalloc", "rpfree", "_rpmalloc", "_memory_allocate", "_memory_deallocate", "rpaligned"],
        marks: &[
            // rpmalloc 2 rpmalloc/rpmalloc.c. rpmalloc 1 computes its table at start, and has no texts.
            table!(RPMALLOC_CLASSES, "rpmalloc 2's table of size classes"),
        ],
        enough: 1,
        ..Row::new("rpmalloc")
    },
    Row {
        malloc: &["scudo_malloc"],
        prefixes: &["scudo_"],
        namespaces: &["5scudo"],
        foreign: Foreign { prefixes: &[], parts: &["scudo"] },
        interface: &["__scudo_default_options"],
        libraries: &["libscudo"],
        inside: &["scudo::", "scudo_"],
        marks: &[
            // LLVM compiler-rt lib/scudo/standalone: report.cpp, flags_parser.cpp, primary64.h.
            text!(b"Scudo ERROR: ", "scudo's prefix of errors"),
            text!(b"Scudo OOM: ", "scudo's message on exhausted classes"),
            text!(b"corrupted chunk header at address ", "scudo's message on chunk headers"),
            text!(b"invalid chunk state when %s address %p\n", "scudo's message on chunk states"),
            text!(b"misaligned pointer when %s address %p\n", "scudo's message on misaligned pointers"),
        ],
        ..Row::new("scudo")
    },
    Row {
        malloc: &["tc_malloc"],
        prefixes: &["tc_"],
        namespaces: &["8tcmalloc", "17tcmalloc_internal"],
        foreign: Foreign { prefixes: &[], parts: &["tcmalloc"] },
        interface: &["tc_malloc", "tc_free", "tc_new", "tc_version", "tc_malloc_size"],
        // gperftools' and Google's C++ interfaces.
        interface_prefixes: &["_ZN15MallocExtension", "_ZN8tcmalloc"],
        libraries: &["libtcmalloc"],
        inside: &["tcmalloc::", "tc_malloc", "tc_free"],
        marks: &[
            // gperftools src/tcmalloc.cc, src/common.cc, src/static_vars.cc, src/system-alloc.cc; google/tcmalloc has
            // the first two.
            text!(b"tcmalloc.current_total_thread_cache_bytes", "tcmalloc's property on thread caches"),
            text!(b"tcmalloc.pageheap_unmapped_bytes", "tcmalloc's property on unmapped pages"),
            text!(b"TCMALLOC_TRANSFER_NUM_OBJ\0", "tcmalloc's variable TCMALLOC_TRANSFER_NUM_OBJ"),
            text!(b"TCMALLOC_SKIP_MMAP\0", "tcmalloc's variable TCMALLOC_SKIP_MMAP"),
            text!(b"tcmalloc: allocation failed", "tcmalloc's message on failure"),
        ],
        ..Row::new("tcmalloc")
    },
    Row {
        foreign: Foreign { prefixes: &["h_malloc", "h_free"], parts: &[] },
        // hardened_malloc include/h_malloc.h.
        exports: &["malloc_object_size", "malloc_object_size_fast"],
        libraries: &["libhardened_malloc"],
        inside: &["h_malloc", "h_free", "h_calloc", "allocate_small", "deallocate_small"],
        marks: &[
            // hardened_malloc h_malloc.c, util.c.
            table!(HARDENED_CLASSES, "hardened_malloc's table of size classes"),
            text!(b"fatal allocator error: ", "hardened_malloc's prefix of errors"),
            text!(b"invalid uninitialized allocator usage\0", "hardened_malloc's message on early use"),
            text!(b"double free (quarantine)\0", "hardened_malloc's message on its quarantine"),
        ],
        ..Row::new("hardened")
    },
    // The Go runtime's.
    Row {
        serves_malloc: false,
        marks: &[
            // Go src/runtime: names of functions, which a Go program keeps for its own stack traces
            // (internal/abi/symtab.go).
            text!(b"runtime.mallocgc", "the name of Go's runtime.mallocgc"),
            text!(b"runtime.(*mheap).allocSpan\0", "the name of Go's runtime.(*mheap).allocSpan"),
            text!(b"runtime.(*mcache).refill\0", "the name of Go's runtime.(*mcache).refill"),
        ],
        enough: 3,
        ..Row::new("go")
    },
    // Rust's standard library: a caller of an allocator, not an allocator.
    Row {
        serves_malloc: false,
        marks: &[
            // Rust library/core/src/panicking.rs, library/std/src/panicking.rs.
            text!(b"called `Option::unwrap()` on a `None` value", "a panic of Rust's Option"),
            text!(b"called `Result::unwrap()` on an `Err` value", "a panic of Rust's Result"),
            text!(b"note: run with `RUST_BACKTRACE=1` environment variable", "Rust's note on backtraces"),
        ],
        ..Row::new("rust")
    },
    Row {
        // zig's libc, from 0.16 on (lib/c/malloc.zig).
        malloc: &["c.malloc.malloc"],
        ..Row::new("zig")
    },
    // oneTBB's include/oneapi/tbb/scalable_allocator.h.
    Row { interface: &["scalable_malloc", "scalable_free"], ..Row::new("tbbmalloc") },
    Row { foreign: Foreign { prefixes: &["dlmalloc"], parts: &[] }, ..Row::new("dlmalloc") },
];

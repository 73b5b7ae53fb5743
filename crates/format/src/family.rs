//! The names of the malloc family that a donor defines.

/// The functions that programs call. (musl: `include/stdlib.h`, `include/malloc.h`.)
pub const PUBLIC: [&str; 11] = [
    "malloc",
    "calloc",
    "realloc",
    "free",
    "aligned_alloc",
    "memalign",
    "posix_memalign",
    "valloc",
    "pvalloc",
    "reallocarray",
    "malloc_usable_size",
];

/// Functions that programs written for glibc call, and that musl lacks. A donor may define them, weakly; stock does not
/// need them. (glibc: `malloc/malloc.h`.)
pub const BESIDE_MUSL: [&str; 2] = ["malloc_trim", "mallopt"];

/// glibc's functions that report on its heap. Only donors that are shared objects define them. (glibc:
/// `malloc/malloc.h`.)
pub const REPORTS_OF_GLIBC: [&str; 4] = ["mallinfo", "mallinfo2", "malloc_info", "malloc_stats"];

/// musl's own names for the family, which its other files call. (musl 1.2.6: `src/include/stdlib.h`,
/// `src/malloc/replaced.c`, `ldso/dynlink.c`.)
pub const OF_LIBC: [&str; 5] = ["__libc_malloc", "__libc_calloc", "__libc_realloc", "__libc_free", "__malloc_donate"];

/// The hook that is called before and after a fork. The weak one in musl's `src/process/fork.c` does nothing.
pub const FORK_HOOK: &str = "__malloc_atfork";

/// The symbols that a donor's shared object exports.
pub fn exported() -> impl Iterator<Item = &'static str> {
    PUBLIC.into_iter().chain(BESIDE_MUSL).chain(REPORTS_OF_GLIBC)
}

/// The symbols that a donor of an allocator defines for other objects, public names first.
pub fn donated() -> impl Iterator<Item = &'static str> {
    PUBLIC.into_iter().chain(BESIDE_MUSL).chain(OF_LIBC).chain([FORK_HOOK])
}

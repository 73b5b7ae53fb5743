//! The names that a graft defines.
//!
//! The crate `format` has such lists for the editors. These are separate, so that the check notices a name that an
//! editor lacks.

/// The symbols that a graft must define for programs: weak, of default visibility.
pub(crate) const PUBLIC: [&str; 11] = [
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

/// The symbols that a graft may define for programs written for glibc: weak, of default visibility. Stock has none.
pub(crate) const BESIDE_MUSL: [&str; 2] = ["malloc_trim", "mallopt"];

/// glibc's functions that report on its heap: donors that are merged into dynamic programs define them.
pub(crate) const REPORTS_OF_GLIBC: [&str; 4] = ["mallinfo", "mallinfo2", "malloc_info", "malloc_stats"];

/// The symbols that a graft must define for libc's own blocks: strong, hidden.
pub(crate) const INTERNAL: [&str; 4] = ["__libc_malloc", "__libc_calloc", "__libc_realloc", "__libc_free"];

/// The symbols that a graft must define for the rest of libc: strong, hidden.
pub(crate) const HOOKS: [&str; 2] = ["__malloc_donate", "__malloc_atfork"];

/// The string functions of a graft: weak, of default visibility. Not all exist on every architecture.
/// Their order gives their numbers in an executable's note (docs/note.md), where some have none.
pub(crate) const STRINGS: [&str; 40] = [
    "memcpy",
    "memmove",
    "memset",
    "memcmp",
    "bcmp",
    "memchr",
    "memrchr",
    "memmem",
    "strlen",
    "strnlen",
    "strchr",
    "strchrnul",
    "strrchr",
    "strstr",
    "strcmp",
    "strncmp",
    "stpcpy",
    "strcpy",
    "stpncpy",
    "strncpy",
    "strcat",
    "strncat",
    "memccpy",
    "strcspn",
    "strspn",
    "strpbrk",
    "strcasecmp",
    "strncasecmp",
    "strcasestr",
    "wcslen",
    "wcsnlen",
    "wcschr",
    "wcscmp",
    "wmemchr",
    "wmemcmp",
    "wmemcpy",
    "wmemmove",
    "wmemset",
    "strcasecmp_l",
    "strncasecmp_l",
];

/// The string functions that stay musl's own on aarch64, where musl has good assembly for them.
pub(crate) const STRINGS_OF_MUSL: [&str; 2] = ["memcpy", "memset"];

/// musl's internal names of string functions: weak, hidden.
pub(crate) const STRINGS_INTERNAL: [&str; 6] =
    ["__memrchr", "__strchrnul", "__stpcpy", "__stpncpy", "__strcasecmp_l", "__strncasecmp_l"];

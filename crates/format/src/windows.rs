//! A donor for Windows: a COFF object. Its note and its options have the same layout as on Linux. The C side is
//! `crates/donors/windows`.

/// The section with the note of an allocator. In an image, names of sections have eight bytes (PE Format, "Section
/// Table").
pub const NOTE_SECTION: &str = ".allogrf";

/// The section with the options. Linkers put it into `.rdata` (PE Format, "Grouped Sections").
pub const OPTIONS_SECTION: &str = ".rdata$allograft.options";

/// The prefix in the name of the pointer by which programs call a function in a DLL.
pub const IMPORT: &str = "__imp_";

/// The functions of the C library that return a block, take one, or resize one, by their names in programs. A donor
/// defines all of them, so that no block crosses heaps. (Microsoft's reference of the C runtime, "Memory allocation",
/// `_strdup`, `_getcwd`, `_getdcwd`, `_fullpath`, `_tempnam`, `_dupenv_s`; older names without `_` are mingw-w64's.)
pub const FAMILY: [&str; 32] = [
    "malloc",
    "calloc",
    "realloc",
    "free",
    "_msize",
    "_expand",
    "_recalloc",
    "_aligned_malloc",
    "_aligned_realloc",
    "_aligned_recalloc",
    "_aligned_free",
    "_aligned_msize",
    "_aligned_offset_malloc",
    "_aligned_offset_realloc",
    "_aligned_offset_recalloc",
    "_strdup",
    "strdup",
    "_mbsdup",
    "_wcsdup",
    "wcsdup",
    "_getcwd",
    "getcwd",
    "_wgetcwd",
    "_getdcwd",
    "_wgetdcwd",
    "_fullpath",
    "_wfullpath",
    "_tempnam",
    "tempnam",
    "_wtempnam",
    "_dupenv_s",
    "_wdupenv_s",
];

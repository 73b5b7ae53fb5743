//! The names of the malloc family, as musl has them from 1.1 to 1.2.6, and what a donor defines of them.

/// What programs call. (musl: `include/stdlib.h`, `include/malloc.h`.)
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

/// What programs written for glibc call, which no musl has: a donor may define it, weakly, and stock does not miss it.
/// (glibc: `malloc/malloc.h`.)
const BESIDE_MUSL: [&str; 2] = ["malloc_trim", "mallopt"];

/// What a donor of allocators defines for others to see: public names and musl's internal ones (musl 1.2.6: `src/malloc`,
/// `src/process/fork.c`, `src/internal/fork_impl.h`).
pub fn donated() -> impl Iterator<Item = &'static str> {
    const OF_LIBC: [&str; 6] =
        ["__libc_malloc", "__libc_calloc", "__libc_realloc", "__libc_free", "__malloc_donate", FORK_HOOK];
    PUBLIC.into_iter().chain(BESIDE_MUSL).chain(OF_LIBC)
}

/// What libc itself calls, and what the allocator's own files share. Whoever defines one of them is part of the allocator.
/// (musl: `src/include/stdlib.h`, `src/malloc/lite_malloc.c`, `src/internal/malloc_impl.h`, `ldso/dynlink.c`.)
const INTERNAL: [&str; 6] =
    ["__libc_malloc", "__libc_calloc", "__libc_realloc", "__libc_free", "__libc_malloc_impl", "__malloc_donate"];

/// What only the allocator's own files refer to. (musl: `src/malloc/`, with `memalign.c`, `calloc.c` and `lite_malloc.c`
/// of 1.1 for the last three.)
const INSIDES: [&str; 10] = [
    "__malloc_alloc_meta",
    "__malloc_allzerop",
    "__malloc_atfork",
    "__malloc_context",
    "__malloc_lock",
    "__malloc_size_classes",
    "__bin_chunk",
    "__memalign",
    "__malloc0",
    "__simple_malloc",
];

/// What libc defines weakly, doing nothing, for programs without an allocator. (musl: `src/process/fork.c`,
/// `src/malloc/calloc.c`.)
const HOOKS: [&str; 3] = [FORK_HOOK, "__bump_lockptr", "__malloc_allzerop"];

/// Called before and after a fork. The weak one in fork.c does nothing.
pub(crate) const FORK_HOOK: &str = "__malloc_atfork";

/// Variables that the dynamic linker sets. They stay. (musl: `src/malloc/replaced.c`.)
const REPLACED: [&str; 2] = ["__malloc_replaced", "__aligned_alloc_replaced"];

fn among(names: &[&str], name: &[u8]) -> bool {
    names.iter().any(|known| known.as_bytes() == name)
}

/// Whether a member that defines this symbol, strongly or weakly, is part of the allocator.
pub(super) fn makes_a_seed(name: &[u8], weak: bool) -> bool {
    among(&PUBLIC, name)
        || among(&BESIDE_MUSL, name)
        || among(&INTERNAL, name)
        || (!weak && name == FORK_HOOK.as_bytes())
}

/// Whether the symbol belongs to the allocator, whoever defines it.
pub(super) fn is_family(name: &[u8]) -> bool {
    among(&PUBLIC, name) || among(&BESIDE_MUSL, name) || among(&INTERNAL, name) || is_inside(name)
}

/// Whether nothing but the allocator can want the symbol.
pub(super) fn is_inside(name: &[u8]) -> bool {
    name == b"__libc_malloc_impl" || among(&INSIDES, name) || among(&HOOKS, name)
}

/// Whether a weak definition that does nothing may take the allocator's place.
pub(super) fn is_hook(name: &[u8]) -> bool {
    among(&HOOKS, name)
}

/// Whether the symbol is one of the two that always stay.
pub(super) fn is_replaced(name: &[u8]) -> bool {
    among(&REPLACED, name)
}

/// The allocator that a symbol gives away, if it is one of a few well-known ones.
pub(super) fn foreign_allocator(name: &[u8]) -> Option<&'static str> {
    let begins = |start: &str| name.starts_with(start.as_bytes());
    let holds = |part: &str| name.windows(part.len()).any(|window| window == part.as_bytes());
    match () {
        () if begins("mi_") || begins("_mi_") => Some("mimalloc"),
        () if begins("je_") || begins("_rjem_") || name == b"mallctl" => Some("jemalloc"),
        () if begins("sn_") || holds("snmalloc") => Some("snmalloc"),
        () if begins("rpmalloc") || begins("rpfree") => Some("rpmalloc"),
        () if holds("scudo") => Some("scudo"),
        () if begins("tc_") || holds("tcmalloc") => Some("tcmalloc"),
        () if begins("h_malloc") || begins("h_free") => Some("hardened_malloc"),
        () if begins("dlmalloc") => Some("dlmalloc"),
        _ => None,
    }
}

/// Whether an allocator that defines this symbol was not made for libc: libc defines it elsewhere, or C++ does.
pub(super) fn is_beside_malloc(name: &[u8]) -> bool {
    // C++'s operators: Itanium C++ ABI, 5.1.3, with any parameters.
    const OPERATORS: [&str; 4] = ["_Znw", "_Zna", "_Zdl", "_Zda"];
    among(&["realpath"], name)
        || among(&USUAL_LOSSES, name)
        || OPERATORS.iter().any(|operator| name.starts_with(operator.as_bytes()))
}

/// What grafts made by hand take out of a libc, since mimalloc's object brings a function of that name or once did.
/// (swiftlang/swift-docker: `swift-ci/sdks/static-linux/scripts/build.sh`.)
pub(super) const USUAL_LOSSES: [&str; 3] = ["strdup", "strndup", "wcsdup"];

/// What a compiler's runtime library defines, and nothing else does.
const RUNTIME: [&str; 27] = [
    "__multi3",
    "__muloti4",
    "__mulodi4",
    "__divti3",
    "__modti3",
    "__udivti3",
    "__umodti3",
    "__ashlti3",
    "__lshrti3",
    "__popcountdi2",
    "__clzdi2",
    "__ctzdi2",
    // Division on 32-bit x86 and ARM, which musl's own functions ask for too.
    "__divdi3",
    "__moddi3",
    "__udivdi3",
    "__umoddi3",
    "__divmoddi4",
    "__udivmoddi4",
    "__aeabi_idiv",
    "__aeabi_idivmod",
    "__aeabi_uidiv",
    "__aeabi_uidivmod",
    "__aeabi_ldivmod",
    "__aeabi_uldivmod",
    "__aeabi_l2d",
    "__aeabi_d2lz",
    "__aeabi_f2lz",
];

/// Whether only a compiler's runtime library defines the symbol.
pub(super) fn is_of_runtime(name: &[u8]) -> bool {
    among(&RUNTIME, name) || name.starts_with(b"__aarch64_")
}

/// Whether a linker or the compiler's runtime library brings the symbol.
pub(super) fn comes_from_elsewhere(name: &[u8]) -> bool {
    const LINKER: [&str; 14] = [
        "_GLOBAL_OFFSET_TABLE_",
        "_DYNAMIC",
        "__ehdr_start",
        "__dso_handle",
        "__init_array_start",
        "__init_array_end",
        "__fini_array_start",
        "__fini_array_end",
        "__preinit_array_start",
        "__preinit_array_end",
        "__executable_start",
        "_end",
        "_edata",
        "_etext",
    ];
    among(&LINKER, name) || is_of_runtime(name)
}

//! The names of the malloc family in musl 1.1 to 1.2.6: they decide which members are part of the allocator.

use format::family::{BESIDE_MUSL, FORK_HOOK, OF_LIBC, PUBLIC};

/// The function that musl's `malloc` and `__libc_malloc` call (musl: `src/malloc/lite_malloc.c`). A member that defines
/// this, or one of [`OF_LIBC`], is part of the allocator.
const IMPLEMENTATION: &str = "__libc_malloc_impl";

/// Symbols that only the allocator's own files refer to. (musl: `src/malloc/`, with `memalign.c`, `calloc.c` and
/// `lite_malloc.c` of 1.1 for the last three.)
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

/// Symbols that libc defines weakly, with no effect, for programs without an allocator. (musl: `src/process/fork.c`,
/// `src/malloc/calloc.c`.)
const HOOKS: [&str; 3] = [FORK_HOOK, "__bump_lockptr", "__malloc_allzerop"];

/// Variables that the dynamic linker sets. They stay. (musl: `src/malloc/replaced.c`.)
const REPLACED: [&str; 2] = ["__malloc_replaced", "__aligned_alloc_replaced"];

fn among(names: &[&str], name: &[u8]) -> bool {
    names.iter().any(|known| known.as_bytes() == name)
}

fn is_internal(name: &[u8]) -> bool {
    among(&OF_LIBC, name) || name == IMPLEMENTATION.as_bytes()
}

/// Whether a member that defines this symbol, strongly or weakly, is part of the allocator.
pub(super) fn makes_a_seed(name: &[u8], weak: bool) -> bool {
    among(&PUBLIC, name) || among(&BESIDE_MUSL, name) || is_internal(name) || (!weak && name == FORK_HOOK.as_bytes())
}

/// Whether the symbol belongs to the allocator, regardless of the member that defines it.
pub(super) fn is_family(name: &[u8]) -> bool {
    among(&PUBLIC, name) || among(&BESIDE_MUSL, name) || is_internal(name) || is_inside(name)
}

/// Whether only the allocator can need the symbol.
pub(super) fn is_inside(name: &[u8]) -> bool {
    name == IMPLEMENTATION.as_bytes() || among(&INSIDES, name) || among(&HOOKS, name)
}

/// Whether a weak definition without effect may take the symbol's place.
pub(super) fn is_hook(name: &[u8]) -> bool {
    among(&HOOKS, name)
}

/// Whether the symbol is one of the two variables that always stay.
pub(super) fn is_replaced(name: &[u8]) -> bool {
    among(&REPLACED, name)
}

/// Whether an allocator that defines this symbol was not made for libc, since libc defines the symbol elsewhere or C++
/// does.
pub(super) fn is_beside_malloc(name: &[u8]) -> bool {
    // C++'s operators: Itanium C++ ABI, 5.1.3, with any parameters.
    const OPERATORS: [&str; 4] = ["_Znw", "_Zna", "_Zdl", "_Zda"];
    among(&["realpath"], name)
        || among(&USUAL_LOSSES, name)
        || OPERATORS.iter().any(|operator| name.starts_with(operator.as_bytes()))
}

/// Functions that manual grafts remove from a libc, because mimalloc's object defines a function of that name, or once
/// did. (swiftlang/swift-docker: `swift-ci/sdks/static-linux/scripts/build.sh`.)
pub(super) const USUAL_LOSSES: [&str; 3] = ["strdup", "strndup", "wcsdup"];

/// Symbols that only a compiler's runtime library defines.
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
    // Division on 32-bit x86 and ARM, which musl's own functions call too.
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

/// Whether the linker or the compiler's runtime library defines the symbol.
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

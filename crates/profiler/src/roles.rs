//! The role of a function in a profile, by its name.

/// The role of a function in a profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    /// The malloc family, and what is inside of an allocator.
    Allocator,
    /// Memory and string functions.
    Strings,
    /// Takes a lock of the program's own.
    Lock,
    /// Waits for work: a condition, a semaphore, another thread's end.
    Wait,
    /// Everything else.
    Other,
}

/// The public malloc family, and musl's and glibc's names inside of it.
const FAMILY: &[&str] = &[
    "malloc",
    "free",
    "calloc",
    "realloc",
    "cfree",
    "memalign",
    "aligned_alloc",
    "posix_memalign",
    "valloc",
    "pvalloc",
    "reallocarray",
    "malloc_usable_size",
    "malloc_trim",
    "malloc's own",
    "__libc_malloc",
    "__libc_malloc_impl",
    "__libc_free",
    "__libc_calloc",
    "__libc_realloc",
    "__libc_memalign",
    "__malloc_alloc_meta",
    "__malloc_allzerop",
    "__malloc_atfork",
    "__malloc_donate",
    "__bin_chunk",
    "__expand_heap",
    "alloc_slot",
    "alloc_group",
    "alloc_meta",
    "nontrivial_free",
    "unmap_chunk",
    "default_malloc",
    "sysmalloc",
    "systrim",
    "tcache_init",
    "malloc_consolidate",
    "arena_get2",
    "operator new",
    "operator new[]",
    "operator delete",
];

/// Beginnings of names inside of Rust's shims around allocators, and the glue's. `known` has those of the allocators.
const INSIDE: &[&str] =
    &["allograft_", "operator delete[]", "__rust_alloc", "__rust_dealloc", "__rust_realloc", "__rdl_"];

/// Whether a function is an allocator's own.
fn is_inside(name: &str) -> bool {
    let of_allocators = known::ROWS.iter().flat_map(|row| row.inside);
    INSIDE.iter().chain(of_allocators).any(|start| name.starts_with(start))
}

/// Functions that take a lock.
const LOCKS: &[&str] = &[
    "pthread_mutex_lock",
    "__pthread_mutex_lock",
    "__pthread_mutex_lock_full",
    "pthread_mutex_timedlock",
    "__pthread_mutex_timedlock",
    "pthread_rwlock_rdlock",
    "pthread_rwlock_wrlock",
    "__pthread_rwlock_rdlock",
    "__pthread_rwlock_wrlock",
    "__pthread_rwlock_timedrdlock",
    "__pthread_rwlock_timedwrlock",
    "___pthread_rwlock_rdlock",
    "___pthread_rwlock_wrlock",
    "pthread_spin_lock",
    "__lll_lock_wait",
    "__lll_lock_wait_private",
    "mtx_lock",
    "__lock",
    "__lockfile",
    "__wait",
    "pthread_mutex_unlock",
    "__pthread_mutex_unlock",
    "__unlock",
    "__unlockfile",
];

/// Functions that wait for work.
const WAITS: &[&str] = &[
    // Wakes the waiters, and waits until they have left.
    "__private_cond_signal",
    "pthread_cond_signal",
    "pthread_cond_broadcast",
    "pthread_cond_wait",
    "pthread_cond_timedwait",
    "__pthread_cond_wait",
    "__pthread_cond_timedwait",
    "___pthread_cond_wait",
    "___pthread_cond_timedwait",
    "__private_cond_wait",
    "__private_cond_timedwait",
    "pthread_join",
    "__pthread_join",
    "__pthread_timedjoin_np",
    "__pthread_clockjoin_ex",
    "sem_wait",
    "sem_timedwait",
    "__new_sem_wait",
    "pthread_barrier_wait",
    "cnd_wait",
    "thrd_join",
];

/// Beginnings and ends of the names of memory and string functions, without leading underscores. glibc adds the
/// instructions that a variant uses: `memmove_avx_unaligned_erms`.
const STRINGS: &[&str] = &[
    "memcpy",
    "memmove",
    "memset",
    "memcmp",
    "bcmp",
    "bcopy",
    "bzero",
    "memchr",
    "memrchr",
    "rawmemchr",
    "mempcpy",
    "memmem",
    "memccpy",
    "strlen",
    "strnlen",
    "strchr",
    "strchrnul",
    "strrchr",
    "strcmp",
    "strncmp",
    "strcasecmp",
    "strncasecmp",
    "strcpy",
    "strncpy",
    "stpcpy",
    "stpncpy",
    "strcat",
    "strncat",
    "strlcpy",
    "strlcat",
    "strstr",
    "strcasestr",
    "strspn",
    "strcspn",
    "strpbrk",
    "strsep",
    "wmemcpy",
    "wmemmove",
    "wmemset",
    "wmemchr",
    "wmemcmp",
    "wcslen",
    "wcsnlen",
    "wcscmp",
    "wcschr",
    "wcscpy",
];

/// Returns the role of a function, by its demangled name.
pub(crate) fn role(name: &str) -> Role {
    if FAMILY.contains(&name) || is_inside(name) {
        return Role::Allocator;
    }
    if LOCKS.contains(&name) || is_rust_lock(name) {
        return Role::Lock;
    }
    if WAITS.contains(&name) || name.contains("::park") || name.contains("Condvar::wait") {
        return Role::Wait;
    }
    let bare = name.trim_start_matches('_');
    let variant = |known: &str| bare.strip_prefix(known).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'));
    if STRINGS.iter().any(|known| variant(known)) { Role::Strings } else { Role::Other }
}

/// Functions of libc that hand a new block to their caller.
const HANDED_ON: &[&str] = &["strdup", "__strdup", "strndup", "__strndup", "wcsdup"];

/// Whether a function only passes on a block that it allocates, so that the caller is who wants it: containers of Rust
/// and C++, copies of strings. Unsure names are not among them.
pub(crate) fn is_passed_through(name: &str) -> bool {
    let plain = name.strip_prefix("void ").unwrap_or(name);
    let rust = ["alloc::", "<alloc::", "<T as alloc::", "core::", "<core::", "hashbrown::", "<hashbrown::"];
    // Rust's `std` and C++'s alike: what has parameters works for its caller.
    let of_std = (plain.starts_with("std::") || plain.starts_with("<std::")) && plain.contains('<');
    of_std
        || HANDED_ON.contains(&name)
        || rust.iter().any(|start| name.starts_with(start))
        || plain.starts_with("__gnu_cxx::")
        // Go's runtime. C's names have no dots.
        || name.starts_with("runtime.")
}

/// Whether it is a slow path of Rust's own locks or of the locks of parking_lot.
fn is_rust_lock(name: &str) -> bool {
    ["lock_contended", "read_contended", "write_contended", "RawMutex::lock_slow", "RawRwLock::lock_"]
        .iter()
        .any(|part| name.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_by_their_names() {
        for name in
            ["malloc", "__libc_free", "operator new", "operator delete[]", "_mi_page_malloc", "scudo::Allocator"]
        {
            assert_eq!(role(name), Role::Allocator, "{name}");
        }
        for name in ["memcpy", "__memmove_avx_unaligned_erms", "__strlen_avx2", "__memcpy_chk", "strstr"] {
            assert_eq!(role(name), Role::Strings, "{name}");
        }
        for name in ["memcpy_all_pages", "strlength", "mallocate", "main", "freeze", "memory", "lock"] {
            let expected = if name == "memcpy_all_pages" { Role::Strings } else { Role::Other };
            assert_eq!(role(name), expected, "{name}");
        }
        for name in [
            "alloc::raw_vec::finish_grow",
            "<alloc::string::String as core::clone::Clone>::clone",
            "<T as alloc::slice::hack::ConvertVec>::to_vec",
            "hashbrown::raw::RawTable<T,A>::reserve_rehash",
            "std::vector<int, std::allocator<int> >::_M_realloc_insert<int>",
            "void std::__cxx11::basic_string<char>::_M_construct<char const*>",
            "std::__new_allocator<char>::allocate",
            "runtime.growslice",
            "strdup",
        ] {
            assert!(is_passed_through(name), "{name}");
        }
        for name in ["xmalloc", "allocate", "std::thread::spawn", "std::rt::lang_start", "core_dump", "strdup_all"] {
            assert!(!is_passed_through(name), "{name}");
        }
        assert_eq!(role("pthread_mutex_lock"), Role::Lock);
        assert_eq!(role("std::sys::sync::mutex::futex::Mutex::lock_contended"), Role::Lock);
        assert_eq!(role("pthread_cond_wait"), Role::Wait);
        assert_eq!(role("std::thread::park"), Role::Wait);
    }
}

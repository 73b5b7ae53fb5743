/* The parameters of a graft: crates/transplant/src/layout.rs writes this block, which it finds by its symbol. Addresses
 * are relative to the blob's first byte, whatever the program's base is. */
#ifndef TRANSPLANT_PARAMETERS_H
#define TRANSPLANT_PARAMETERS_H

#include <stdint.h>

#define TRANSPLANT_CALLS 10

struct transplant_parameters {
	uint64_t magic, format;
	uint64_t entry;                          /* the program's own entry point */
	uint64_t headers;                        /* the program headers in memory */
	uint64_t relocations, relocation_count;  /* struct transplant_relocation */
	uint64_t sealed[2], sealed_size[2];      /* read-only once it is relocated; size 0: nothing */
	int64_t errno_offset;                    /* the program's errno, relative to the thread pointer */
	uint64_t key_destructors;                /* musl's __pthread_tsd_run_dtors; 0: threads never end */
	uint64_t main;                           /* the program's main */
	uint64_t self_test;                      /* not 0: the self-test runs in place of the program */
	uint64_t tls_image, tls_file_size, tls_size, tls_alignment;
	uint64_t start_main;                     /* musl's __libc_start_main, if the donor's replaces it; else 0 */
	uint64_t streams;                        /* __stdio_exit, which exit calls last; 0: that call is musl's still */
	uint64_t calls[TRANSPLANT_CALLS];        /* the program's entry points, for the self-test; 0: it has none */
};

#define TRANSPLANT_MAGIC 0x544e4c5053545247u /* GRTSPLNT */
#define TRANSPLANT_FORMAT 4

/* The order of `calls`. */
enum {
	call_malloc, call_free, call_calloc, call_realloc, call_aligned_alloc, call_posix_memalign, call_usable_size,
	call_fork_hook, call_errno_location, call_memalign,
};

/* The redirected entry points of the program: the distance of each from its own place, and its kind (docs/note.md). 0 if
 * unused. */
#ifdef TRANSPLANT_STRINGS
#define TRANSPLANT_ENTRIES 64
#else
#define TRANSPLANT_ENTRIES 24
#endif

struct transplant_entry {
	int32_t distance;
	uint32_t role;
};

struct transplant_entries {
	uint32_t name_size, description_size, type;
	char name[12];
	struct transplant_entry entries[TRANSPLANT_ENTRIES];
};

/* The numbers of string functions there; those of the family come first. */
enum {
	string_memcpy = 16, string_memmove, string_memset, string_memcmp, string_bcmp, string_memchr, string_memrchr,
	string_strlen, string_strnlen, string_strchr, string_strchrnul, string_strrchr, string_strcmp, string_strncmp,
	string_stpcpy, string_strcpy, string_stpncpy, string_strncpy, string_strcat, string_strncat,
	string_strcspn, string_strspn, string_strcasecmp, string_strncasecmp,
};

struct transplant_relocation {
	uint64_t place, value;
};

#endif

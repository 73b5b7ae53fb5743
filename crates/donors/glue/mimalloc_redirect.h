/* redirect.h as every release of mimalloc needs it: besides, huge pages are refused for the allocator's own memory alone. */
static char ***donor_environment(void);
static void *donor_mmap(void *, size_t, int, int, int, off_t);

#include "redirect.h"
#undef mmap
#define mmap donor_mmap

/* For allow_thp=0 upstream forbids huge pages to the whole process by prctl (_mi_prim_mem_init in prim/unix/prim.c), and
 * programs that this one starts inherit that. Upstream leaves the call out where the system does not have it; donor_mmap
 * advises each mapping in its place. */
#include <sys/prctl.h>
#undef PR_GET_THP_DISABLE

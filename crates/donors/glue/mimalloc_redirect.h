/* redirect.h for every release of mimalloc, which can also refuse huge pages for the allocator's own memory only. */
static char ***donor_environment(void);
static void *donor_mmap(void *, size_t, int, int, int, off_t);
static int donor_mprotect(void *, size_t, int);

#include "redirect.h"
#undef mmap
#define mmap donor_mmap
#undef mprotect
#define mprotect donor_mprotect

/* For allow_thp=0 upstream forbids huge pages to the whole process by prctl (_mi_prim_mem_init in prim/unix/prim.c), and
 * the programs that it starts inherit that. Upstream leaves the call out if the system lacks it; donor_mmap advises each
 * mapping instead. */
#include <sys/prctl.h>
#undef PR_GET_THP_DISABLE

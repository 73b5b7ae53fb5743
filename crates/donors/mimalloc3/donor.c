/* mimalloc 3 as a donor: upstream's files unchanged, included in upstream's order (src/static.c). Slow paths are renamed
 * where they are defined, and wrapped in the fork gate here. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tunables.h"

#include "gate.h"
#include "settings.h"
#include "system.h"
#include "thread.h"

#include "mimalloc_redirect.h"
/* mimalloc's own constructor and destructor are left out: at exit, threads may still be running and memory in use. */
#define MI_PRIM_HAS_PROCESS_ATTACH 1
/* The fork hook does this; pthread_atfork allocates in musl 1.2.4 and later, with a lock held. */
#define MI_NO_PTHREAD_ATFORK 1

#include "mimalloc.h"
/* Declarations come first: they keep the name, and the definition is renamed. */
#include "mimalloc/internal.h"
#include "mimalloc/arena/arena-alloc.h"
#include "mimalloc/arena/arena-page.h"
void upstream_arenas_page_free(mi_page_t *, mi_theap_t *);
void upstream_arenas_page_unabandon(mi_page_t *, mi_theap_t *);
void upstream_thread_done(mi_theap_t *);

#include "prim/os.c"
#include "prim/prim.c"
#include "prim/prim-tls.c"

#include "util/libc.c"
#include "util/options.c"
#include "util/random.c"
#include "util/stats.c"
#include "util/threadlocal.c"

#include "arena/arena.c"

#define _mi_arenas_free upstream_arenas_free
#define _mi_arenas_collect upstream_arenas_collect
#include "arena/arena-alloc.c"
#undef _mi_arenas_free
#undef _mi_arenas_collect

#define _mi_arenas_page_free upstream_arenas_page_free
#define _mi_arenas_page_abandon upstream_arenas_page_abandon
#define _mi_arenas_page_try_reabandon_to_mapped upstream_arenas_page_try_reabandon_to_mapped
#define _mi_arenas_page_unabandon upstream_arenas_page_unabandon
#include "arena/arena-page.c"
#undef _mi_arenas_page_free
#undef _mi_arenas_page_abandon
#undef _mi_arenas_page_try_reabandon_to_mapped
#undef _mi_arenas_page_unabandon

#include "arena/bitmap-chunk.c"
#include "arena/bitmap.c"

#include "alloc/alloc.c"

#define _mi_malloc_generic upstream_malloc_generic
#include "alloc/alloc-generic.c"
#undef _mi_malloc_generic

#include "alloc/alloc-aligned.c"
#include "alloc/alloc-posix.c"
#include "alloc/page.c"
#include "alloc/page-queue.c"

#include "heap/heap.c"

#define _mi_thread_done upstream_thread_done
#include "heap/init.c"
#undef _mi_thread_done

#include "heap/page-map.c"
#include "heap/subproc.c"
#include "heap/theap.c"

#include "profile/sample-guarded.c"
#include "profile/sample-profile.c"
#include "profile/pprof.c"

#include "restore.h"

/* Operations on state that threads share, behind the gate. */

void *_mi_malloc_generic(mi_theap_t *theap, size_t size, size_t zero_huge_alignment, mi_page_t **page) mi_attr_noexcept
{
	graft_gate_enter();
	void *block = upstream_malloc_generic(theap, size, zero_huge_alignment, page);
	graft_gate_leave();
	return __builtin_expect(block != 0, 1) ? block : graft_no_memory();
}

/* An arena has a time when its free slices are due, and all arenas together have one: zero if nothing is. Upstream sets
 * both, marks the slices, and then makes them free. A thread that looks for what is due meanwhile sets the times to zero and
 * drops the marks of slices that it cannot have: until they are used and freed again, and without end if only the time of
 * all arenas is zero, since nobody sets it as long as an arena has a time. So all is set again when the slices are free;
 * what is used again by then loses its mark the same way ... */
static void donor_set_due(size_t size, mi_memid_t memid)
{
	size_t slice, count;
	long delay = mi_arena_purge_delay();
	if (memid.memkind != MI_MEM_ARENA || delay <= 0 || size >= mi_option_get_size(mi_option_arena_purge_immediate_size))
		return;
	mi_arena_t *arena = mi_arena_from_memid(memid, &slice, &count);
	if (arena->memid.is_pinned)
		return;
	if (!mi_bitmap_is_setN(arena->slices_purge, slice, count)) {
		if (mi_bitmap_is_clearN(arena->slices_committed, slice, count))
			return;
		mi_bitmap_setN(arena->slices_purge, slice, count, NULL);
	}
	mi_msecs_t none = 0;
	if (mi_atomic_loadi64_acquire(&arena->purge_expire) == 0)
		mi_atomic_casi64_strong_acq_rel(&arena->purge_expire, &none, _mi_clock_now() + delay);
}

/* ... and for all arenas, by every thread that may have set that time to zero. The fence is between the store of zero and
 * the look at the arenas: the other thread sets its arena's time first. */
static void donor_set_all_due(mi_subproc_t *subproc)
{
	atomic_thread_fence(memory_order_seq_cst);
	if (mi_atomic_loadi64_acquire(&subproc->purge_expire) != 0)
		return;
	size_t count = mi_arenas_get_count(subproc);
	for (size_t i = 0; i < count; i++) {
		mi_arena_t *arena = mi_arena_from_index(subproc, i);
		mi_msecs_t none = 0, due = arena ? mi_atomic_loadi64_acquire(&arena->purge_expire) : 0;
		if (due != 0)
			mi_atomic_casi64_strong_acq_rel(&subproc->purge_expire, &none, due);
	}
}

void _mi_arenas_free(mi_subproc_t *subproc, void *start, size_t size, mi_memid_t memid)
{
	graft_gate_enter();
	upstream_arenas_free(subproc, start, size, memid);
	if (start && size) {
		donor_set_due(size, memid);
		donor_set_all_due(subproc);
	}
	graft_gate_leave();
}

void _mi_arenas_collect(bool force_purge, bool visit_all, mi_tld_t *tld)
{
	graft_gate_enter();
	upstream_arenas_collect(force_purge, visit_all, tld);
	donor_set_all_due(tld->subproc);
	graft_gate_leave();
}

void _mi_arenas_page_free(mi_page_t *page, mi_theap_t *theap)
{
	graft_gate_enter();
	upstream_arenas_page_free(page, theap);
	graft_gate_leave();
}

void _mi_arenas_page_abandon(mi_page_t *page, mi_theap_t *theap)
{
	graft_gate_enter();
	upstream_arenas_page_abandon(page, theap);
	graft_gate_leave();
}

bool _mi_arenas_page_try_reabandon_to_mapped(mi_page_t *page)
{
	graft_gate_enter();
	bool abandoned = upstream_arenas_page_try_reabandon_to_mapped(page);
	graft_gate_leave();
	return abandoned;
}

void _mi_arenas_page_unabandon(mi_page_t *page, mi_theap_t *theap)
{
	graft_gate_enter();
	upstream_arenas_page_unabandon(page, theap);
	graft_gate_leave();
}

void _mi_thread_done(mi_theap_t *theap)
{
	graft_gate_enter();
	upstream_thread_done(theap);
	graft_gate_leave();
}

/* Memory that no thread's heap has: it is due after purge_delay times arena_purge_mult. */
#define GRAFT_HAS_PURGE
static void donor_purge(void)
{
	graft_gate_enter();
	mi_arenas_try_purge(false, true, _mi_subproc_main(), 0);
	donor_set_all_due(_mi_subproc_main());
	graft_gate_leave();
}

#include "mimalloc_functions.h"

/* Pages of threads that the child does not have remain those threads' pages: the child can use and free their blocks, but
 * cannot reuse their free space. Upstream's _mi_fork_child would take the pages over. For that it walks lists that their
 * owners may have been changing (they are thread-local, so not behind the gate), and touches every page at every fork. */
static void donor_fork_child(void)
{
}

#include "family.h"

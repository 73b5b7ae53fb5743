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

/* The first arena is one chunk of 32 MiB, the least that there is, of which only this much is mapped (arenas.h). */
#if __SIZEOF_POINTER__ > 4
#define DONOR_FIRST_ARENA (8 << 20)
#endif

#include "debt.h"
#include "gate.h"
#include "random.h"
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
mi_page_t *upstream_arenas_page_alloc(mi_theap_t *, size_t, size_t);
void upstream_arenas_page_free(mi_page_t *, mi_theap_t *);
void upstream_arenas_page_unabandon(mi_page_t *, mi_theap_t *);
void upstream_thread_done(mi_theap_t *);

#include "prim/os.c"
#define _mi_prim_random_buf upstream_prim_random_buf
#include "prim/prim.c"
#undef _mi_prim_random_buf
#include "prim/prim-tls.c"

/* Asks the processor (CPUID) for what only Microsoft's compiler needs to know. */
#define _mi_detect_cpu_features upstream_detect_cpu_features
#include "util/libc.c"
#undef _mi_detect_cpu_features
void _mi_detect_cpu_features(void)
{
}
#include "util/options.c"
#include "util/random.c"
#include "util/stats.c"
#include "util/threadlocal.c"

#include "arenas.h"

#define _mi_arenas_free upstream_arenas_free
#define _mi_arenas_collect upstream_arenas_collect
#include "arena/arena-alloc.c"
#undef _mi_arenas_free
#undef _mi_arenas_collect

#define _mi_arenas_page_alloc upstream_arenas_page_alloc
#define _mi_arenas_page_free upstream_arenas_page_free
#define _mi_arenas_page_abandon upstream_arenas_page_abandon
#define _mi_arenas_page_try_reabandon_to_mapped upstream_arenas_page_try_reabandon_to_mapped
#define _mi_arenas_page_unabandon upstream_arenas_page_unabandon
#include "arena/arena-page.c"
#undef _mi_arenas_page_alloc
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

/* Its slow paths may be one: each call takes stack, and a thread may have 2 KiB of that. */
#undef mi_decl_noinline
#define mi_decl_noinline
#include "alloc/alloc-aligned.c"
#undef mi_decl_noinline
#define mi_decl_noinline __attribute__((noinline))

#include "alloc/alloc-posix.c"
#include "alloc/page.c"
#include "alloc/page-queue.c"

#include "heap/heap.c"

#define _mi_thread_done upstream_thread_done
#include "heap/process.c"
#undef _mi_thread_done

#include "heap/page-map.c"
#include "heap/subproc.c"
#include "heap/theap.c"

#include "profile/sample-guarded.c"
#include "profile/sample-profile.c"
#include "profile/pprof.c"

#include "restore.h"

/* Operations on state that threads share, behind the gate. */

/* Makes a thread's heap in its first allocation. That allocates, and upstream would do it further down. A thread may have a
 * stack of 2 KiB. */
static inline mi_theap_t *donor_theap(mi_theap_t *theap)
{
	if (__builtin_expect(mi_theap_is_initialized(theap) || theap == &_mi_process.theap_empty_wrong, 1))
		return theap;
	mi_theap_t *made = _mi_thread_init();
	return made ? made : theap;
}

void *_mi_malloc_generic(mi_theap_t *theap, size_t size, size_t zero_huge_alignment, mi_page_t **page) mi_attr_noexcept
{
	graft_gate_enter();
	theap = donor_theap(theap);
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

/* The memory that waits in the arenas, of all threads. */
static struct {
	struct graft_debt debt;
	_Atomic size_t waiting, in_use;
} donor_pages;

struct donor_purge {
	size_t excess, purged; /* bytes */
	bool divides;          /* whether a huge page may be divided */
};

/* Marked slices that are in use again lose the mark, upstream's way, when they are looked at one by one. */
static bool donor_purge_range(size_t slice, size_t count, mi_arena_t *arena, void *state)
{
	struct donor_purge *purge = state;
	if (mi_arena_try_purge_range(arena, slice, count)) {
		purge->purged += _mi_size_of_slices(count);
	} else if (!purge->divides) {
		mi_bitmap_setN(arena->slices_purge, slice, count, NULL);
	} else if (count > 1) {
		for (size_t i = 0; i < count; i++)
			purge->purged += mi_arena_try_purge_range(arena, slice + i, 1) ? _mi_size_of_slices(1) : 0;
	}
	return purge->purged < purge->excess;
}

static void donor_purge_pieces(struct donor_purge *purge)
{
	size_t slices = purge->divides ? 1 : _mi_slice_count_of_size(_mi_os_minimal_purge_size());
	mi_subproc_t *subproc = _mi_subproc_main();
	for (size_t i = 0, count = mi_arenas_get_count(subproc); i < count && purge->purged < purge->excess; i++) {
		mi_arena_t *arena = mi_arena_from_index(subproc, i);
		if (arena && !arena->memid.is_pinned)
			_mi_bitmap_forall_setc_rangesn(arena->slices_purge, slices, donor_purge_range, arena, purge);
	}
}

/* Bytes that are free and marked. */
static size_t donor_waiting(void)
{
	mi_subproc_t *subproc = _mi_subproc_main();
	size_t slices = 0;
	for (size_t i = 0, count = mi_arenas_get_count(subproc); i < count; i++) {
		mi_arena_t *arena = mi_arena_from_index(subproc, i);
		size_t chunks = arena ? mi_bitmap_chunk_count(arena->slices_purge) : 0;
		for (size_t c = 0; c < chunks; c++) {
			for (size_t f = 0; f < MI_BCHUNK_FIELDS; f++)
				slices += mi_popcount(mi_atomic_load_relaxed(&arena->slices_purge->chunks[c].bfields[f]) &
				                      mi_atomic_load_relaxed(&arena->slices_free->chunks[c].bfields[f]));
		}
	}
	return _mi_size_of_slices(slices);
}

/* Returns `excess` bytes of the memory that waits in arenas to the kernel, so that the rest may stay; the result is
 * their number. Upstream lets one thread at a time do so, and other threads do nothing; then the memory that they freed
 * last would stay. An arena's slices are claimed before they go back, so several threads can. Huge pages go back as a
 * whole. Huge pages with a part in use are divided only if four times that part would stay in them. */
static size_t donor_purge_arenas(size_t excess, size_t stays, size_t in_use)
{
	struct donor_purge purge = {.excess = excess};
	donor_purge_pieces(&purge);
	size_t left = donor_waiting();
	if (left > stays + 4 * in_use) {
		left -= stays;
		purge.excess = purge.purged + graft_debt_excess(&donor_pages.debt, left, in_use);
		purge.divides = true;
		donor_purge_pieces(&purge);
	}
	return purge.purged;
}

/* Bytes of a page that go back to its arena; memory outside of arenas goes back to the kernel at once. */
static size_t donor_page_size(const mi_page_t *page)
{
	size_t size = page->memid.memkind == MI_MEM_ARENA ? _mi_size_of_slices(page->memid.mem.arena.slice_count) : 0;
	return size < mi_option_get_size(mi_option_arena_purge_immediate_size) ? size : 0;
}

static bool donor_has_debt(void)
{
	return graft_debt_is_bounded() && mi_arena_purge_delay() > 0;
}

static void donor_take_page(size_t size)
{
	atomic_fetch_add_explicit(&donor_pages.in_use, size, memory_order_relaxed);
	size_t waited = graft_debt_withdraw(&donor_pages.waiting, size);
	if (size > waited)
		graft_debt_take(&donor_pages.debt, size - waited);
}

static void donor_give_page(size_t size)
{
	graft_debt_withdraw(&donor_pages.in_use, size);
	size_t in_use = graft_debt_load(&donor_pages.in_use);
	size_t waiting = atomic_fetch_add_explicit(&donor_pages.waiting, size, memory_order_relaxed) + size;
	size_t excess = graft_debt_excess(&donor_pages.debt, waiting, in_use);
	/* Nobody else gives back the same. What is in huge pages of which a part is in use is not counted any more. */
	if (!excess || graft_debt_withdraw(&donor_pages.waiting, excess) < excess)
		return;
	graft_debt_give_back(&donor_pages.debt, donor_purge_arenas(excess, waiting - excess, in_use));
}

/* A page with blocks is not new: a thread that ended left it, and it is in use already. */
mi_page_t *_mi_arenas_page_alloc(mi_theap_t *theap, size_t block_size, size_t alignment)
{
	mi_page_t *page = upstream_arenas_page_alloc(theap, block_size, alignment);
	if (page && mi_page_all_free(page) && donor_has_debt())
		donor_take_page(donor_page_size(page));
	return page;
}

void _mi_arenas_page_free(mi_page_t *page, mi_theap_t *theap)
{
	size_t size = donor_page_size(page);
	graft_gate_enter();
	upstream_arenas_page_free(page, theap);
	if (donor_has_debt())
		donor_give_page(size);
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

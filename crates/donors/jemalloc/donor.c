/* jemalloc as a donor: upstream's files unchanged, in one unit. All its locks are behind the fork gate, so no lock is
 * held when a fork happens, and the hook need not take any. Code without a lock touches only the data of one thread, or
 * data that other threads may see at any moment anyway. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* The key is the option's name in MALLOC_CONF, then the words for its values from 0 on; a value without a word is a
 * number. */
#define GRAFT_OPTIONS(X)                                                                                               \
	X(purge_delay, 10000, -1, 3600000, "dirty_decay_ms:")                                                              \
	X(arenas, 0, 0, 4094, "narenas:default")                                                                           \
	X(tcache, 1, 0, 1, "tcache:false|true")                                                                            \
	X(tcache_max, 32768, 0, 8388608, "tcache_max:")                                                                    \
	X(retain, sizeof(void *) == 8, 0, 1, "retain:false|true")                                                          \
	X(allow_thp, 1, 0, 2, "thp:never|default|always")                                                                  \
	GRAFT_PURGE_DEBT(X, 4096, 65536, 0)                                                                                \
	GRAFT_PURGE_PERIOD(X, 0)

#include "debt.h"
#include "gate.h"
#include "settings.h"
#include "system.h"
#include "thread.h"

static bool donor_has_key;

/* In a program without threads there is no key, and jemalloc need not know that. */
static int donor_key_create(pthread_key_t *key, void (*destructor)(void *))
{
	donor_has_key = graft_key_create(key, destructor) == 0;
	return 0;
}

static int donor_setspecific(pthread_key_t key, const void *value)
{
	return donor_has_key ? pthread_setspecific(key, value) : 0;
}

/* Files under /proc and /sys, read at the start, may be missing. */
static long donor_syscall(long number, long a, long b, long c, long d)
{
	int saved = errno;
	long result = syscall(number, a, b, c, d);
	if (result < 0)
		graft_private_errno = errno;
	errno = saved;
	return result;
}

/* This fails if the machine has more processors than the set can hold. */
static int donor_getaffinity(pid_t thread, size_t size, cpu_set_t *set)
{
	int saved = errno;
	if (sched_getaffinity(thread, size, set)) {
		memset(set, 0xff, size);
		errno = saved;
	}
	return 0;
}

static const char *donor_configuration(void);

#include "redirect.h"
#undef pthread_key_create
#define pthread_key_create donor_key_create
#define pthread_setspecific donor_setspecific
#define sched_getaffinity donor_getaffinity
#define DONOR_SYSCALL(number, a, b, c, d, ...) donor_syscall((long)(number), (long)(a), (long)(b), (long)(c), (long)(d))
#define syscall(...) DONOR_SYSCALL(__VA_ARGS__, 0, 0, 0, 0)

/* Headers come first, since the macros below are for single files. */
#include "jemalloc/internal/jemalloc_preamble.h"
#include "jemalloc/internal/jemalloc_internal_includes.h"
#include "jemalloc/internal/malloc_io.h"

/* Dirty pages wait for purge_delay, and upstream looks at the clock when an arena is used. Here they are no more than the
 * bound at any time (debt.h): an arena looks whenever pages became free.
 *
 * Upstream gives back whatever waited longest, down to single pages between others in use, each with a system call. Here
 * ranges of DONOR_LONG pages go back first. Shorter ones are joined with their neighbours, which upstream leaves until they
 * go back, whenever as much as the bound is new among them. What stays short goes back only if it takes more than is in
 * use, and DONOR_SHORT_SHARE times the bound. */
enum { DONOR_LONG = 16, DONOR_SHORT_SHARE = 4 };
#define DONOR_LONG_ONLY SIZE_MAX /* in place of a number of pages that may stay */

static struct {
	struct graft_debt debt;
	_Atomic size_t seen;   /* bytes that were resident the last time: in use, and dirty */
	_Atomic size_t left;   /* dirty bytes in short ranges that stayed the last time */
	_Atomic size_t joined; /* of these, those that cannot be joined, when last tried */
} donor_arenas[MALLOCX_ARENA_LIMIT];

static void pac_decay_to_limit(tsdn_t *tsdn, pac_t *pac, decay_t *decay, pac_decay_stats_t *decay_stats, ecache_t *ecache,
                               bool fully_decay, size_t npages_limit, size_t npages_decay_max);

/* Gives back `most` bytes or a little more, and returns how many are dirty then. */
static size_t donor_purge_dirty(tsdn_t *tsdn, arena_t *arena, size_t limit, size_t most)
{
	pac_t *pac = &arena->pa_shard.pac;
	malloc_mutex_lock(tsdn, &pac->decay_dirty.mtx);
	pac_decay_to_limit(tsdn, pac, &pac->decay_dirty, &pac->stats->decay_dirty, &pac->ecache_dirty, true, limit,
	                   (most + PAGE - 1) >> LG_PAGE);
	malloc_mutex_unlock(tsdn, &pac->decay_dirty.mtx);
	return ecache_npages_get(&pac->ecache_dirty) << LG_PAGE;
}

static void donor_join_ranges(tsdn_t *tsdn, arena_t *arena);

static bool donor_decays_at_once(tsdn_t *tsdn, arena_t *arena, const decay_t *decay)
{
	unsigned index = arena_ind_get(arena);
	if (!decay_gradually(decay) || index >= MALLOCX_ARENA_LIMIT)
		return decay_immediately(decay);
	struct graft_debt *debt = &donor_arenas[index].debt;
	size_t in_use = pa_shard_nactive(&arena->pa_shard) << LG_PAGE;
	size_t waiting = ecache_npages_get(&arena->pa_shard.pac.ecache_dirty) << LG_PAGE;
	size_t seen = graft_debt_load(&donor_arenas[index].seen), left = graft_debt_load(&donor_arenas[index].left), excess;
	if (in_use + waiting > seen)
		graft_debt_take(debt, in_use + waiting - seen);
	if (left > waiting)
		left = waiting;
	size_t joined = graft_debt_load(&donor_arenas[index].joined);
	if (joined > left)
		joined = left;
	/* A thread that finds a different one purging leaves, so the purging thread checks again. */
	while ((excess = graft_debt_excess(debt, waiting - left, in_use))) {
		size_t before = waiting, stays = waiting - left - excess;
		waiting = donor_purge_dirty(tsdn, arena, DONOR_LONG_ONLY, excess);
		left = waiting > stays ? waiting - stays : 0;
		if (left > joined && graft_debt_excess(debt, left - joined, in_use)) {
			donor_join_ranges(tsdn, arena);
			waiting = donor_purge_dirty(tsdn, arena, DONOR_LONG_ONLY, left);
			joined = left = waiting > stays ? waiting - stays : 0;
		}
		excess = left > in_use ? graft_debt_excess(debt, left / DONOR_SHORT_SHARE, in_use) : 0;
		if (excess)
			left = waiting = donor_purge_dirty(tsdn, arena, 0, excess * DONOR_SHORT_SHARE);
		if (waiting >= before)
			break;
		graft_debt_give_back(debt, before - waiting);
	}
	graft_debt_store(&donor_arenas[index].seen, in_use + waiting);
	graft_debt_store(&donor_arenas[index].left, left);
	graft_debt_store(&donor_arenas[index].joined, joined);
	return false;
}

#define decay_immediately(decay) donor_decays_at_once(tsdn, arena, decay)
#include "src/arena.c"
#undef decay_immediately
#include "src/background_thread.c"
#include "src/base.c"
#include "src/bin.c"
#include "src/bin_info.c"
#include "src/bitmap.c"
#include "src/buf_writer.c"
#include "src/cache_bin.c"
#include "src/ckh.c"

/* The options set at graft time come before MALLOC_CONF, so MALLOC_CONF overrides them. */
#define getenv(name) ((char *)graft_variable(name))
#define je_malloc_conf donor_configuration()
#include "src/conf.c"
#undef je_malloc_conf
#undef getenv
#undef OPTION

#include "src/counter.c"
#include "src/ctl.c"
#undef OP
#include "src/decay.c"
#include "src/div.c"
#include "src/ecache.c"
#include "src/edata.c"
#include "src/edata_cache.c"
#include "src/ehooks.c"
#include "src/emap.c"
#include "src/eset.c"
#include "src/exp_grow.c"
#define ecache_evict upstream_ecache_evict
edata_t *upstream_ecache_evict(tsdn_t *tsdn, pac_t *pac, ehooks_t *ehooks, ecache_t *ecache, size_t npages_min);
#include "src/extent.c"
#undef ecache_evict

/* As upstream's, but for a range of at least DONOR_LONG pages, once it has been joined with its neighbours. */
static edata_t *donor_evict_long(tsdn_t *tsdn, pac_t *pac, ehooks_t *ehooks, ecache_t *ecache)
{
	edata_t *edata = NULL;
	malloc_mutex_lock(tsdn, &ecache->mtx);
	for (;;) {
		eset_t *set = &ecache->eset;
		pszind_t index = (pszind_t)fb_ffs(set->bitmap, SC_NPSIZES + 1, sz_psz2ind((size_t)DONOR_LONG << LG_PAGE));
		if (index > SC_NPSIZES)
			break;
		edata = edata_heap_first(&set->bins[index].heap);
		eset_remove(set, edata);
		if (!ecache->delay_coalesce || extent_try_delayed_coalesce(tsdn, pac, ehooks, ecache, edata)) {
			emap_update_edata_state(tsdn, pac->emap, edata, extent_state_active);
			break;
		}
		edata = NULL;
	}
	malloc_mutex_unlock(tsdn, &ecache->mtx);
	return edata;
}

static void donor_join_ranges(tsdn_t *tsdn, arena_t *arena)
{
	pac_t *pac = &arena->pa_shard.pac;
	ehooks_t *ehooks = pac_ehooks_get(pac);
	ecache_t *ecache = &pac->ecache_dirty;
	size_t pages = ecache_npages_get(ecache);
	/* A range that was joined has its turn once more. */
	while (pages) {
		malloc_mutex_lock(tsdn, &ecache->mtx);
		for (int some = 64; some && pages; some--) {
			edata_t *edata = edata_list_inactive_first(&ecache->eset.lru);
			if (!edata) {
				pages = 0;
				break;
			}
			eset_remove(&ecache->eset, edata);
			if (!extent_try_delayed_coalesce(tsdn, pac, ehooks, ecache, edata))
				continue;
			eset_insert(&ecache->eset, edata);
			size_t length = edata_size_get(edata) >> LG_PAGE;
			pages -= length < pages ? length : pages;
		}
		malloc_mutex_unlock(tsdn, &ecache->mtx);
	}
}

edata_t *ecache_evict(tsdn_t *tsdn, pac_t *pac, ehooks_t *ehooks, ecache_t *ecache, size_t npages_min)
{
	return npages_min == DONOR_LONG_ONLY ? donor_evict_long(tsdn, pac, ehooks, ecache)
	                                     : upstream_ecache_evict(tsdn, pac, ehooks, ecache, npages_min);
}

#include "src/extent_dss.c"
#include "src/extent_mmap.c"
#include "src/fxp.c"
#include "src/hook.c"
#include "src/hpa.c"
#include "src/hpa_central.c"
#include "src/hpa_hooks.c"
#include "src/hpa_utils.c"
#include "src/hpdata.c"
#include "src/inspect.c"

/* The functions of the family set the program's errno; all other code has a private errno. Upstream's constructor would
 * run later than the glue's, and its atexit function would allocate while jemalloc's lock is held. */
#define set_errno(number) (*__errno_location() = (number))
#define constructor unused
#define atexit(function) 0
arena_t *upstream_arena_choose_hard(tsd_t *tsd, bool internal);
#define arena_choose_hard upstream_arena_choose_hard
#include "src/jemalloc.c"
#undef arena_choose_hard
#undef set_errno
#undef constructor
#undef atexit

/* If there is no memory for a thread's arena, upstream gives the thread none and then reads through a null pointer. The
 * first arena always exists, so it serves such a thread. */
arena_t *arena_choose_hard(tsd_t *tsd, bool internal)
{
	arena_t *arena = upstream_arena_choose_hard(tsd, internal);
	if (arena)
		return arena;
	/* Upstream may have bound the thread to that one of its two arenas that could be made. */
	arena = internal ? tsd_iarena_get(tsd) : tsd_arena_get(tsd);
	if (!arena) {
		arena_bind(tsd, 0, internal);
		arena = arena_get(tsd_tsdn(tsd), 0, false);
	}
	return arena;
}

#include "src/large.c"
#include "src/log.c"
#include "src/malloc_io.c"
#include "src/mutex.c"
#include "src/nstime.c"
#include "src/pa.c"
#include "src/pa_extra.c"
#include "src/pac.c"

/* Upstream prints a message if munmap fails, as it may near the limit of mappings, or if an emulator ignores
 * MADV_DONTNEED. */
#define malloc_write(text) ((void)0)
#define malloc_printf(...) ((void)0)
#define buferror(number, text, length) ((void)0)
/* With MAP_NORESERVE, the kernel would promise a block that it can never provide, where musl's malloc fails. */
#undef MAP_NORESERVE
#include "src/pages.c"
#undef malloc_write
#undef malloc_printf
#undef buferror

#include "src/peak_event.c"
#include "src/prof.c"
#include "src/prof_data.c"
#include "src/prof_log.c"
#include "src/prof_recent.c"
#include "src/prof_stack_range.c"
#include "src/prof_stats.c"
#include "src/prof_sys.c"
#include "src/psset.c"
#include "src/rtree.c"
#include "src/safety_check.c"
#include "src/san.c"
#include "src/san_bump.c"
#include "src/sc.c"
#include "src/sec.c"

/* Every donor has the same statistics (report.h). Without jemalloc's own, the object is half as large. */
#define je_malloc_stats_print(write, argument, options) ((void)0)
#include "src/stats.c"
#undef je_malloc_stats_print

#include "src/sz.c"
/* Upstream prints a message if there is no memory for a thread's cache; the thread works without one. */
#define malloc_write(text) ((void)0)
#include "src/tcache.c"
#undef malloc_write
#include "src/test_hooks.c"
#include "src/thread_event.c"
#include "src/thread_event_registry.c"
#include "src/ticker.c"
#include "src/tsd.c"
#include "src/util.c"
#include "src/witness.c"

#undef pthread_setspecific
#undef sched_getaffinity
#undef syscall
#include "restore.h"

struct donor_text {
	char bytes[256];
	size_t length;
};

static void donor_put(struct donor_text *text, const char *piece, size_t length)
{
	if (length > sizeof text->bytes - 1 - text->length)
		length = sizeof text->bytes - 1 - text->length;
	memcpy(text->bytes + text->length, piece, length);
	text->length += length;
}

static void donor_put_number(struct donor_text *text, int64_t number)
{
	char digits[20];
	size_t at = sizeof digits;
	uint64_t rest = number < 0 ? -(uint64_t)number : (uint64_t)number;
	do
		digits[--at] = (char)('0' + rest % 10);
	while (rest /= 10);
	if (number < 0)
		donor_put(text, "-", 1);
	donor_put(text, digits + at, sizeof digits - at);
}

/* `key` has the form of GRAFT_OPTIONS. The glue's own options have no key here. */
static void donor_put_option(struct donor_text *text, const char *key, int64_t value)
{
	const char *word = strchr(key, ':') + 1;
	donor_put(text, key, (size_t)(word - key));
	for (int64_t skip = value; *word && skip > 0; skip--)
		word += strcspn(word, "|") + (word[strcspn(word, "|")] == '|');
	if (value >= 0 && *word)
		donor_put(text, word, strcspn(word, "|"));
	else
		donor_put_number(text, value);
}

/* Returns the options that were set at graft time, as text in the form of MALLOC_CONF, or null without such options.
 * jemalloc calls this while it starts, with a lock held. */
static const char *donor_configuration(void)
{
#define DONOR_OPTION_KEY(name, value, least, greatest, key) key,
	static const char *const keys[] = {GRAFT_OPTIONS(DONOR_OPTION_KEY)};
	static struct donor_text text;
	text.length = 0;
	for (int i = 0; i < graft_option_count; i++) {
		if (!keys[i] || !(graft_options.entries[i].flags & GRAFT_OPTION_SET))
			continue;
		if (text.length)
			donor_put(&text, ",", 1);
		donor_put_option(&text, keys[i], graft_options.entries[i].value);
	}
	text.bytes[text.length] = 0;
	return text.length ? text.bytes : 0;
}

static inline void *donor_malloc(size_t n)
{
	return je_malloc(n);
}

static inline void *donor_zalloc(size_t n)
{
	return je_calloc(1, n);
}

static inline void *donor_realloc(void *block, size_t n)
{
	return je_realloc(block, n);
}

static inline void *donor_aligned(size_t alignment, size_t n)
{
	return je_aligned_alloc(alignment, n);
}

static inline void donor_free(void *block)
{
	je_free(block);
}

static inline size_t donor_usable(const void *block)
{
	return je_malloc_usable_size(block);
}

static void donor_start(void)
{
	malloc_init();
}

/* Removes the threads that the child does not have from the list of threads, and from each arena's count, by which new
 * threads choose an arena. Upstream's jemalloc_postfork_child does this too, but makes every lock of every arena anew.
 * Behind the gate no lock is held, and writing to the locks would copy their pages. */
static void donor_fork_child(void)
{
	if (!malloc_initialized())
		return;
	tsd_t *tsd = tsd_fetch();
	tsd_postfork_child(tsd);
	for (unsigned i = 0, count = narenas_total_get(); i < count; i++) {
		arena_t *arena = arena_get(tsd_tsdn(tsd), i, false);
		if (!arena)
			continue;
		atomic_store_u(&arena->nthreads[0], tsd_arena_get(tsd) == arena, ATOMIC_RELAXED);
		atomic_store_u(&arena->nthreads[1], tsd_iarena_get(tsd) == arena, ATOMIC_RELAXED);
	}
}

static void donor_decay(tsdn_t *tsdn, bool all)
{
	for (unsigned i = 0, count = narenas_total_get(); i < count; i++) {
		arena_t *arena = arena_get(tsdn, i, false);
		if (arena)
			arena_decay(tsdn, arena, false, all);
	}
}

#define GRAFT_HAS_TRIM
static void donor_trim(void)
{
	if (!malloc_initialized())
		return;
	tsd_t *tsd = tsd_fetch();
	if (tcache_available(tsd))
		tcache_flush(tsd);
	donor_decay(tsd_tsdn(tsd), true);
}

/* What is due by purge_delay, of all arenas. The thread needs neither a cache nor an arena of its own. */
#define GRAFT_HAS_PURGE
static void donor_purge(void)
{
	if (malloc_initialized())
		donor_decay(tsd_tsdn(tsd_internal_fetch()), false);
}

#include "family.h"

/* scudo as a donor: the glue. The allocator itself is C++, compiled apart (heap.cc). A fork takes its locks. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>

/* The last column is upstream's flag (flags.inc) that the option sets, or null. */
#define GRAFT_OPTIONS(X)                                                                                               \
	X(purge_delay, 5000, -1, 3600000, "release_to_os_interval_ms")                                                     \
	X(quarantine_size_kb, 0, 0, 1048576, "quarantine_size_kb")                                                         \
	X(thread_local_quarantine_size_kb, 0, 0, 65536, "thread_local_quarantine_size_kb")                                 \
	X(quarantine_max_chunk_size, 0, 0, 131072, "quarantine_max_chunk_size")                                            \
	X(zero_contents, 0, 0, 1, "zero_contents")                                                                         \
	X(pattern_fill_contents, 0, 0, 1, "pattern_fill_contents")                                                         \
	X(gwp_asan_sample_rate, 0, 0, 1000000000, "GWP_ASAN_SampleRate")                                                   \
	X(gwp_asan_slots, 16, 1, 32768, "GWP_ASAN_MaxSimultaneousAllocations")                                             \
	X(large_cache_entries, 32, 0, 32, 0)                                                                               \
	X(large_cache_kb, 512, 0, 1048576, 0)                                                                              \
	X(allow_thp, 1, 0, 1, 0)                                                                                           \
	GRAFT_PURGE_DEBT(X, 1024, 32768, 0)                                                                                \
	GRAFT_PURGE_PERIOD(X, 0)

#include "bridge.h"
#include "debt.h"

static int64_t donor_option(int index)
{
	return graft_options.entries[index].value;
}

bool scudo_huge_pages_allowed(void)
{
	return donor_option(graft_option_allow_thp) != 0;
}

long scudo_large_cache_entries(void)
{
	return (long)donor_option(graft_option_large_cache_entries);
}

size_t scudo_large_cache_bytes(void)
{
	return (size_t)donor_option(graft_option_large_cache_kb) << 10;
}

bool scudo_threads_are_linked(void)
{
	return pthread_create != 0;
}

static struct graft_debt donor_debts[SCUDO_MOST_CLASSES];

bool scudo_debt_goes_back(size_t size_class, size_t waiting, size_t in_use)
{
	if (!graft_debt_excess(&donor_debts[size_class], waiting, in_use))
		return false;
	graft_debt_give_back(&donor_debts[size_class], waiting);
	return true;
}

void scudo_debt_take(size_t size_class, size_t bytes)
{
	graft_debt_take(&donor_debts[size_class], bytes);
}

bool scudo_short_ranges_wait(void)
{
	return graft_debt_is_bounded() && donor_option(graft_option_purge_delay);
}

/* A quarantine needs all three of its sizes. Upstream stops the program if there is a global one but none for each
 * thread; and with a greatest chunk of 0, no block would get in. */
static int64_t donor_quarantine_default(int index)
{
	int64_t value = donor_option(index);
	if (value || !donor_option(graft_option_quarantine_size_kb))
		return value;
	if (index == graft_option_thread_local_quarantine_size_kb)
		return 64;
	return index == graft_option_quarantine_max_chunk_size ? 2048 : 0;
}

/* Upstream reads this before SCUDO_OPTIONS, as the result of __scudo_default_options(); SCUDO_OPTIONS overrides it. */
const char *scudo_chosen_flags(void)
{
#define DONOR_OPTION_FLAG(name, value, least, greatest, flag) flag,
	static const char *const flags[] = {GRAFT_OPTIONS(DONOR_OPTION_FLAG)};
	static char text[512];
	size_t length = 0;
	for (int i = 0; i < graft_option_count; i++) {
		if (!flags[i])
			continue;
		int64_t value = donor_quarantine_default(i);
		size_t name = strlen(flags[i]);
		char digits[20];
		int count = 0;
		if (length + name + sizeof digits + 3 > sizeof text)
			break;
		memcpy(text + length, flags[i], name);
		length += name;
		text[length++] = '=';
		if (value < 0) {
			text[length++] = '-';
			value = -value;
		}
		do
			digits[count++] = (char)('0' + value % 10);
		while (value /= 10);
		while (count)
			text[length++] = digits[--count];
		text[length++] = ':';
	}
	text[length] = 0;
	return text;
}

static inline void *donor_malloc(size_t n)
{
	void *block = scudo_heap_allocate(n);
	return __builtin_expect(block != 0, 1) ? block : graft_no_memory();
}

static inline void *donor_zalloc(size_t n)
{
	void *block = scudo_heap_allocate_zeroed(n);
	return __builtin_expect(block != 0, 1) ? block : graft_no_memory();
}

static inline void *donor_aligned(size_t alignment, size_t n)
{
	void *block = scudo_heap_allocate_aligned(alignment, n);
	return __builtin_expect(block != 0, 1) ? block : graft_no_memory();
}

static inline void *donor_realloc(void *block, size_t n)
{
	void *moved = block ? scudo_heap_reallocate(block, n) : scudo_heap_allocate(n);
	return __builtin_expect(moved != 0, 1) ? moved : graft_no_memory();
}

static inline void donor_free(void *block)
{
	if (block)
		scudo_heap_free(block);
}

static inline size_t donor_usable(const void *block)
{
	return scudo_heap_usable(block);
}

static void donor_start(void)
{
	scudo_heap_start();
}

#define GRAFT_HAS_TRIM
static void donor_trim(void)
{
	scudo_heap_trim();
}

#define GRAFT_HAS_PURGE
static void donor_purge(void)
{
	scudo_heap_purge();
}

/* A thread that uses the heap waits for these locks. Otherwise it uses only its own cache, which the child does not have. */
#define GRAFT_HAS_FORK_LOCKS

static void donor_fork_prepare(void)
{
	scudo_heap_lock();
}

static void donor_fork_parent(void)
{
	scudo_heap_unlock();
}

static void donor_fork_child(void)
{
	scudo_heap_unlock();
}

#include "family.h"

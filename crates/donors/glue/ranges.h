/* The address ranges that the donor has from the kernel, while statistics may be wanted, and how much of them is in
 * memory.
 *
 * There are two tables. `graft_reserved` holds exactly the donor's mappings; neighbours are one range. `graft_opened`
 * holds, in whole granules, where pages were ever readable or writable. Elsewhere no page can be in memory. So a report
 * does not ask the kernel about terabytes that a donor has only reserved.
 *
 * The lock is never waited for without end: a signal handler may find it held by the thread that it interrupted. A
 * wrapper that does not get it marks the tables as unknown for good. */
#ifndef GRAFT_RANGES_H
#define GRAFT_RANGES_H

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <unistd.h>

/* True until it is known that no statistics are wanted: mappings may be older than the start. */
#ifdef GRAFT_WITHOUT_COUNTING
enum { graft_keeps_ranges = false };
#else
static bool graft_keeps_ranges = true;
#endif

struct graft_range {
	uintptr_t start, end;
};

/* Ordered, without overlap. */
struct graft_ranges {
	struct graft_range *ranges;
	int room, count;
};

#define GRAFT_OPENED_GRANULE ((uintptr_t)2 << 20)

/* Small tables until the start, which replaces them (graft_enlarge_ranges): zeros in a program take room in the file of
 * an executable that is grafted when it is linked already. */
#define GRAFT_EARLY_ROOM 32
static struct graft_range graft_early_reserved[GRAFT_EARLY_ROOM], graft_early_opened[GRAFT_EARLY_ROOM];
static struct graft_ranges graft_reserved = {graft_early_reserved, GRAFT_EARLY_ROOM, 0};
static struct graft_ranges graft_opened = {graft_early_opened, GRAFT_EARLY_ROOM, 0};
static _Atomic bool graft_ranges_held, graft_ranges_unknown;

static bool graft_ranges_lock(int attempts)
{
	while (atomic_exchange_explicit(&graft_ranges_held, true, memory_order_acquire)) {
		if (!attempts--)
			return false;
		syscall(SYS_sched_yield);
	}
	return true;
}

static void graft_ranges_unlock(void)
{
	atomic_store_explicit(&graft_ranges_held, false, memory_order_release);
}

/* In a child, nobody else can hold the lock. If it is held, the thread that does so does not exist here. */
static void graft_ranges_in_child(void)
{
	if (atomic_exchange(&graft_ranges_held, false))
		atomic_store(&graft_ranges_unknown, true);
}

/* Returns the index of the first range that ends behind `at`. */
static int graft_ranges_find(const struct graft_ranges *table, uintptr_t at)
{
	int low = 0, high = table->count;
	while (low < high) {
		int middle = (low + high) / 2;
		if (table->ranges[middle].end > at)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

/* Puts `count` ranges in place of those from `first` on and before `last`. Returns false if there is no room. */
static bool graft_ranges_replace(struct graft_ranges *table, int first, int last, const struct graft_range *with,
                                 int count)
{
	int added = count - (last - first);
	if (table->count + added > table->room)
		return false;
	memmove(table->ranges + last + added, table->ranges + last, (size_t)(table->count - last) * sizeof *with);
	for (int i = 0; i < count; i++)
		table->ranges[first + i] = with[i];
	table->count += added;
	return true;
}

static bool graft_ranges_add(struct graft_ranges *table, struct graft_range range)
{
	/* Ranges that only touch this one become a part of it. */
	int first = graft_ranges_find(table, range.start ? range.start - 1 : 0), last = first;
	while (last < table->count && table->ranges[last].start <= range.end)
		last++;
	if (first < last) {
		if (table->ranges[first].start < range.start)
			range.start = table->ranges[first].start;
		if (table->ranges[last - 1].end > range.end)
			range.end = table->ranges[last - 1].end;
	}
	return graft_ranges_replace(table, first, last, &range, 1);
}

static bool graft_ranges_remove(struct graft_ranges *table, struct graft_range range)
{
	struct graft_range rest[2];
	int first = graft_ranges_find(table, range.start), last = first, count = 0;
	while (last < table->count && table->ranges[last].start < range.end)
		last++;
	if (first == last)
		return true;
	if (table->ranges[first].start < range.start)
		rest[count++] = (struct graft_range){table->ranges[first].start, range.start};
	if (table->ranges[last - 1].end > range.end)
		rest[count++] = (struct graft_range){range.end, table->ranges[last - 1].end};
	return graft_ranges_replace(table, first, last, rest, count);
}

/* Makes room by joining the two ranges with the smallest gap. */
static void graft_ranges_join(struct graft_ranges *table)
{
	int nearest = 0;
	for (int i = 1; i + 1 < table->count; i++) {
		if (table->ranges[i + 1].start - table->ranges[i].end <
		    table->ranges[nearest + 1].start - table->ranges[nearest].end)
			nearest = i;
	}
	struct graft_range both = {table->ranges[nearest].start, table->ranges[nearest + 1].end};
	graft_ranges_replace(table, nearest, nearest + 2, &both, 1);
}

/* The larger tables, and the place where the kernel says which pages are in memory. */
struct graft_range_tables {
	struct graft_range reserved[4096], opened[1024];
	unsigned char pages[4096];
};
static struct graft_range_tables *graft_range_tables;

static void graft_move_ranges(struct graft_ranges *table, struct graft_range *to, size_t size)
{
	memcpy(to, table->ranges, (size_t)table->count * sizeof *to);
	table->ranges = to;
	table->room = (int)(size / sizeof *to);
}

static void graft_enlarge_ranges(struct graft_range_tables *tables)
{
	if (graft_ranges_lock(100000)) {
		graft_range_tables = tables;
		graft_move_ranges(&graft_reserved, tables->reserved, sizeof tables->reserved);
		graft_move_ranges(&graft_opened, tables->opened, sizeof tables->opened);
		graft_ranges_unlock();
	}
}

static uintptr_t graft_page_size(void)
{
	return (uintptr_t)getauxval(AT_PAGESZ);
}

static struct graft_range graft_range_of(const void *address, size_t length, uintptr_t granule)
{
	uintptr_t start = (uintptr_t)address;
	return (struct graft_range){start & ~(granule - 1), (start + length + granule - 1) & ~(granule - 1)};
}

enum graft_range_change { graft_range_added = 1, graft_range_opened = 2, graft_range_removed = 4 };

static __attribute__((noinline, cold)) void graft_change_ranges(const void *address, size_t length, int changes)
{
	struct graft_range range = graft_range_of(address, length, graft_page_size());
	struct graft_range wide = graft_range_of(address, length, GRAFT_OPENED_GRANULE);
	bool fits = true;
	if (atomic_load(&graft_ranges_unknown))
		return;
	if (!graft_ranges_lock(100000)) {
		atomic_store(&graft_ranges_unknown, true);
		return;
	}
	if (changes & graft_range_removed)
		fits = graft_ranges_remove(&graft_reserved, range);
	if (changes & graft_range_added)
		fits = graft_ranges_add(&graft_reserved, range);
	if (changes & graft_range_opened && !graft_ranges_add(&graft_opened, wide)) {
		graft_ranges_join(&graft_opened);
		graft_ranges_add(&graft_opened, wide);
	}
	if (!fits)
		atomic_store(&graft_ranges_unknown, true);
	graft_ranges_unlock();
}

static inline void graft_note_range(const void *address, size_t length, int changes)
{
	if (__builtin_expect(graft_keeps_ranges, 0) && length)
		graft_change_ranges(address, length, changes);
}

/* Finds the first part of the donor's mappings at or behind `at` that may have pages in memory. Returns 1 if found, 0
 * if not, or -1 if the tables cannot be read. */
static int graft_next_opened(uintptr_t at, struct graft_range *found)
{
	if (atomic_load(&graft_ranges_unknown) || !graft_ranges_lock(1000))
		return -1;
	int answer = 0;
	int one = graft_ranges_find(&graft_reserved, at), other = graft_ranges_find(&graft_opened, at);
	while (!answer && one < graft_reserved.count && other < graft_opened.count) {
		struct graft_range mapped = graft_reserved.ranges[one], opened = graft_opened.ranges[other];
		found->start = mapped.start > opened.start ? mapped.start : opened.start;
		found->end = mapped.end < opened.end ? mapped.end : opened.end;
		if (found->start < at)
			found->start = at;
		answer = found->start < found->end;
		if (mapped.end < opened.end)
			one++;
		else
			other++;
	}
	graft_ranges_unlock();
	return answer;
}

#define GRAFT_UNKNOWN UINT64_MAX

/* Returns the bytes of the donor's mappings that are in memory, or GRAFT_UNKNOWN. The caller makes sure that only one
 * thread is here. */
static uint64_t graft_count_resident(void)
{
	struct graft_range part;
	uint64_t resident = 0;
	uintptr_t page = graft_page_size(), most = sizeof graft_range_tables->pages * page;
	int saved = errno, answer = 0;
	if (!graft_range_tables)
		return GRAFT_UNKNOWN;
	unsigned char *pages = graft_range_tables->pages;
	for (uintptr_t at = 0; (answer = graft_next_opened(at, &part)) > 0; at = part.end) {
		if (part.end - part.start > most)
			part.end = part.start + most;
		if (syscall(SYS_mincore, part.start, part.end - part.start, pages)) {
			/* ENOMEM: another thread has just unmapped some of it. */
			if (errno == ENOMEM)
				continue;
			answer = -1;
			break;
		}
		for (uintptr_t i = 0; i < (part.end - part.start) / page; i++)
			resident += pages[i] & 1 ? page : 0;
	}
	errno = saved;
	return answer < 0 ? GRAFT_UNKNOWN : resident;
}

#endif

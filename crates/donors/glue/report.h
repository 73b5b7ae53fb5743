/* What a grafted program says of itself: ALLOGRAFT_VERBOSE=1 at the start, ALLOGRAFT_STATS=1 at exit. The same for
 * every donor. Everything goes to standard error by plain write(2): no stdio, no allocation. */
#ifndef GRAFT_REPORT_H
#define GRAFT_REPORT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <unistd.h>

#include "note.h"
#include "settings.h"
#include "system.h"

static bool graft_counting;
static _Atomic uint64_t graft_allocations, graft_frees, graft_allocated, graft_threads;
static _Atomic int64_t graft_live, graft_live_peak;
static __thread bool graft_thread_seen;

static __attribute__((noinline, cold)) void graft_count_allocation(size_t usable)
{
	if (!graft_thread_seen) {
		graft_thread_seen = true;
		atomic_fetch_add_explicit(&graft_threads, 1, memory_order_relaxed);
	}
	atomic_fetch_add_explicit(&graft_allocations, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&graft_allocated, usable, memory_order_relaxed);
	int64_t live = atomic_fetch_add_explicit(&graft_live, (int64_t)usable, memory_order_relaxed) + (int64_t)usable;
	int64_t peak = atomic_load_explicit(&graft_live_peak, memory_order_relaxed);
	while (live > peak && !atomic_compare_exchange_weak_explicit(&graft_live_peak, &peak, live, memory_order_relaxed,
	                                                             memory_order_relaxed))
		;
}

static __attribute__((noinline, cold)) void graft_count_free(size_t usable)
{
	atomic_fetch_add_explicit(&graft_frees, 1, memory_order_relaxed);
	atomic_fetch_sub_explicit(&graft_live, (int64_t)usable, memory_order_relaxed);
}

/* One report, written at once so that lines of several processes do not mix. */
struct graft_page {
	char text[1536];
	size_t length;
};

static void graft_put_text(struct graft_page *page, const char *text)
{
	while (*text && page->length < sizeof page->text)
		page->text[page->length++] = *text++;
}

static void graft_put_number(struct graft_page *page, uint64_t number)
{
	char digits[20];
	int count = 0;
	do
		digits[count++] = (char)('0' + number % 10);
	while (number /= 10);
	while (count && page->length < sizeof page->text)
		page->text[page->length++] = digits[--count];
}

static void graft_put_line(struct graft_page *page, const char *label, uint64_t number, const char *unit)
{
	graft_put_text(page, "allograft: ");
	graft_put_text(page, label);
	graft_put_number(page, number);
	graft_put_text(page, unit);
}

static uint64_t graft_at_least_zero(int64_t number)
{
	return number < 0 ? 0 : (uint64_t)number;
}

static void graft_say_what_is_in(void)
{
	struct graft_page page = {.length = 0};
	graft_put_text(&page, "allograft: " GRAFT_DONOR " " GRAFT_VERSION " serves malloc in this program\n");
	bool line_start = true;
	for (int i = 0; i < GRAFT_NOTE_SIZE && graft_note.description[i]; i++) {
		char text[2] = {graft_note.description[i], 0};
		if (line_start)
			graft_put_text(&page, "allograft:   ");
		graft_put_text(&page, text);
		line_start = text[0] == '\n';
	}
	graft_write(page.text, page.length);
}

static void graft_report_statistics(void)
{
	struct graft_page page = {.length = 0};
	graft_put_text(&page, "allograft: statistics of " GRAFT_DONOR " " GRAFT_VERSION ", process ");
	graft_put_number(&page, (uint64_t)getpid());
	graft_put_text(&page, "\n");
	graft_put_line(&page, "allocated ", atomic_load(&graft_allocated), " bytes");
	graft_put_text(&page, " in ");
	graft_put_number(&page, atomic_load(&graft_allocations));
	graft_put_text(&page, " blocks, ");
	graft_put_number(&page, atomic_load(&graft_frees));
	graft_put_text(&page, " freed\n");
	graft_put_line(&page, "live      ", graft_at_least_zero(atomic_load(&graft_live)), " bytes\n");
	graft_put_line(&page, "peak      ", graft_at_least_zero(atomic_load(&graft_live_peak)), " bytes\n");
	graft_put_line(&page, "mapped    ", graft_at_least_zero(atomic_load(&graft_mapped)), " bytes, ");
	graft_put_number(&page, graft_at_least_zero(atomic_load(&graft_mapped_peak)));
	graft_put_text(&page, " at the peak\n");
	graft_put_line(&page, "returned  ", graft_at_least_zero(atomic_load(&graft_returned)), " bytes\n");
	graft_put_line(&page, "threads   ", atomic_load(&graft_threads), "\n");
	graft_write(page.text, page.length);
}

#endif

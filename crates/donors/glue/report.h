/* The reports of a grafted program: ALLOGRAFT_VERBOSE=1 at the start; ALLOGRAFT_STATS at exit, at a signal, and every
 * few seconds. They are the same for every donor, and made of plain system calls: no stdio, no allocation, no lock to
 * wait for without end. So a signal handler may write one. */
#ifndef GRAFT_REPORT_H
#define GRAFT_REPORT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "count.h"
#include "destination.h"
#include "formats.h"
#include "interrupt.h"
#include "note.h"
#include "page.h"
#include "pprof.h"
#include "settings.h"
#include "system.h"

static void (*graft_put_report)(struct graft_page *, const struct graft_moment *);

/* What reports need, mapped at the start if there will be any. It is not on the stack, since a thread with a small one
 * may report. */
struct graft_desk {
	struct graft_range_tables tables;
	struct graft_moment moment;
	struct graft_destination destination;
	/* OpenMetrics takes the most: at most 27 KB, with every class and only numbers of 20 digits. */
	char text[32768];
};
static struct graft_desk *graft_desk;

static void graft_say_what_is_in(void)
{
	char text[2048];
	struct graft_page whole = {text, sizeof text, 0}, *page = &whole;
	graft_put_text(page, "allograft: " GRAFT_DONOR " " GRAFT_VERSION " serves malloc in this program\n");
	bool line_start = true;
	for (int i = 0; i < GRAFT_NOTE_SIZE && graft_note.description[i]; i++) {
		char character[2] = {graft_note.description[i], 0};
		if (line_start)
			graft_put_text(page, "allograft:   ");
		graft_put_text(page, character);
		line_start = character[0] == '\n';
	}
	graft_write(page->text, page->length);
}

static void graft_write_report(void)
{
	int saved = errno;
	struct graft_page page = {graft_desk->text, sizeof graft_desk->text, 0};
	graft_take_figures(&graft_desk->moment);
	graft_put_report(&page, &graft_desk->moment);
	bool written = graft_open_destination(&graft_desk->destination);
	if (written) {
		bool is_whole = graft_write_to(graft_desk->destination.fd, page.text, page.length);
		written = graft_close_destination(&graft_desk->destination, is_whole);
	}
	if (!written)
		graft_fputs("allograft: the statistics' file cannot be written\n");
	errno = saved;
}

/* Only one report is made at a time. One that comes meanwhile, in a signal handler or another thread, is left out. */
static bool graft_try_report(void)
{
	graft_notice_fork();
	if (atomic_exchange(&graft_is_reporting, true))
		return false;
	graft_write_report();
	atomic_store(&graft_is_reporting, false);
	return true;
}

static void graft_report_on_signal(int number)
{
	(void)number;
	graft_try_report();
}

/* Seconds on a clock that only rises. */
static int64_t graft_clock(void)
{
	return (int64_t)(graft_nanoseconds(CLOCK_MONOTONIC_COARSE) / 1000000000u);
}

/* Of the threads that find a report due, one makes it. */
static __attribute__((noinline, cold)) void graft_report_when_due(void)
{
	int64_t due = atomic_load(&graft_due), now = graft_clock();
	if (now >= due && atomic_compare_exchange_strong(&graft_due, &due, now + graft_period))
		graft_try_report();
}

/* The last report. It waits for one of another thread, but not without end: that thread may be the one that calls
 * exit, in a signal handler. */
static void graft_report_at_exit(void)
{
	static _Atomic bool reported;
	if (atomic_exchange(&reported, true))
		return;
	graft_try_for_a_second(graft_try_report);
}

/* Reads a path, and the number behind its last colon if there are only digits: 0 if there is none. `-` is standard
 * error. Returns false if the path does not fit. */
static bool graft_read_path(const char *text, struct graft_destination *to, uint64_t *number)
{
	size_t length = strlen(text), end = length;
	*number = 0;
	while (end && text[end - 1] >= '0' && text[end - 1] <= '9')
		end--;
	if (end > 1 && end < length && text[end - 1] == ':') {
		for (size_t i = end; i < length; i++)
			*number = *number > UINT32_MAX ? *number : *number * 10 + (uint64_t)(text[i] - '0');
		length = end - 1;
	}
	if (!length || length >= PATH_MAX)
		return false;
	if (length == 1 && text[0] == '-')
		return true;
	memcpy(to->wanted, text, length);
	return true;
}

/* Whether the path has the process's id in it. */
static bool graft_path_names_process(const char *path)
{
	bool names = false;
	for (; path[0] && path[1]; path++) {
		if (path[0] == '%')
			names |= *++path == 'p';
	}
	return names;
}

/* A whole number of seconds, in ns; 0 if it is none. */
static uint64_t graft_read_seconds(const char *text)
{
	uint64_t seconds = 0;
	for (; text && *text >= '0' && *text <= '9' && seconds < 100000000; text++)
		seconds = seconds * 10 + (uint64_t)(*text - '0');
	return text && *text ? 0 : seconds * 1000000000u;
}

/* ALLOGRAFT_HEAP is `PATH` or `PATH:BYTES`: where the heap's profile goes, and how many bytes are allocated for each
 * sample, on average. Returns whether one is taken. */
static bool graft_choose_heap(void)
{
	uint64_t mean;
	if (!graft_variable_is_on("ALLOGRAFT_HEAP"))
		return false;
	graft_press = graft_heap_map(sizeof *graft_press);
	if (!graft_press || !graft_read_path(graft_variable("ALLOGRAFT_HEAP"), &graft_press->destination, &mean) ||
	    !graft_press->destination.wanted[0]) {
		graft_press = 0;
		graft_fputs("allograft: ALLOGRAFT_HEAP needs a path that is not too long\n");
		return false;
	}
	if (!graft_heap_begin(mean ? mean : graft_heap_mean_usual)) {
		graft_press = 0;
		graft_fputs("allograft: there is no memory for a profile of the heap\n");
		return false;
	}
	graft_heap_period = graft_read_seconds(graft_variable("ALLOGRAFT_HEAP_INTERVAL"));
	graft_heap_next = graft_heap->began + graft_heap_period;
	const char *name = graft_variable("ALLOGRAFT_HEAP_SIGNAL");
	if (name && *name && !graft_take_signal(name, graft_heap_on_signal))
		graft_fputs("allograft: ALLOGRAFT_HEAP_SIGNAL names no signal for a profile\n");
	graft_take_detour(graft_detour_sampling);
	return true;
}

/* ALLOGRAFT_STATS is `json:PATH` or `openmetrics:PATH`, each also with `:SECONDS`, or any other text but the empty one
 * and 0 for a report as text. */
static void graft_choose_report(void)
{
#ifndef GRAFT_WITHOUT_COUNTING
	static const struct {
		const char *prefix;
		void (*put)(struct graft_page *, const struct graft_moment *);
	} formats[] = {{"json:", graft_put_json}, {"openmetrics:", graft_put_openmetrics}};
	const char *value = graft_variable("ALLOGRAFT_STATS");
	graft_counting = graft_variable_is_on("ALLOGRAFT_STATS");
	if (graft_counting)
		graft_put_report = graft_put_statistics;
	if (graft_counting && !(graft_desk = graft_count_page(MAP_PRIVATE, sizeof *graft_desk))) {
		graft_counting = false;
		graft_fputs("allograft: there is no memory for statistics\n");
	}
	for (int i = 0; graft_counting && i < 2; i++) {
		size_t length = strlen(formats[i].prefix);
		if (strncmp(value, formats[i].prefix, length))
			continue;
		graft_put_report = formats[i].put;
		uint64_t seconds = 0;
		bool is_path = graft_read_path(value + length, &graft_desk->destination, &seconds);
		graft_period = (uint32_t)(seconds < UINT32_MAX ? seconds : UINT32_MAX);
		graft_names_process = graft_path_names_process(graft_desk->destination.wanted);
		if (!is_path) {
			graft_counting = false;
			graft_fputs("allograft: ALLOGRAFT_STATS=FORMAT: needs a path that is not too long\n");
		}
	}
	bool is_sampling = graft_choose_heap();
	graft_keeps_ranges = graft_counting || is_sampling;
	if (!graft_keeps_ranges)
		return;
	if (!graft_desk && !(graft_desk = graft_count_page(MAP_PRIVATE, sizeof *graft_desk)))
		return;
	graft_enlarge_ranges(&graft_desk->tables);
	if (!is_sampling)
		graft_mark_process();
	if (!graft_counting)
		return;
	graft_take_detour(graft_detour_counting);
	if (graft_period)
		atomic_store(&graft_due, graft_clock() + graft_period);
	const char *name = graft_variable("ALLOGRAFT_STATS_SIGNAL");
	if (name && *name && !graft_take_signal(name, graft_report_on_signal))
		graft_fputs("allograft: ALLOGRAFT_STATS_SIGNAL names no signal for a report\n");
#endif
}

#endif

/* The reports of a grafted program: ALLOGRAFT_VERBOSE=1 at the start, ALLOGRAFT_STATS at exit. They are the same for
 * every donor, and written with plain write(2): no stdio, no allocation, no lock. */
#ifndef GRAFT_REPORT_H
#define GRAFT_REPORT_H

#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <unistd.h>

#include "count.h"
#include "note.h"
#include "settings.h"
#include "system.h"

/* One report, written at once so that lines of several processes do not mix. It is not on the stack, since a thread with
 * a small stack may call exit. Untouched pages of it take no memory. */
struct graft_page {
	char text[16384];
	size_t length;
};
static struct graft_page graft_page;

/* The path for JSON, read at the start of the program: by the exit, the environment may have changed or been freed.
 * Empty: text to standard error. */
static char graft_json_path[PATH_MAX];

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

static void graft_say_what_is_in(void)
{
	struct graft_page *page = &graft_page;
	page->length = 0;
	graft_put_text(page, "allograft: " GRAFT_DONOR " " GRAFT_VERSION " serves malloc in this program\n");
	bool line_start = true;
	for (int i = 0; i < GRAFT_NOTE_SIZE && graft_note.description[i]; i++) {
		char text[2] = {graft_note.description[i], 0};
		if (line_start)
			graft_put_text(page, "allograft:   ");
		graft_put_text(page, text);
		line_start = text[0] == '\n';
	}
	graft_write(page->text, page->length);
}

/* All figures at nearly one moment: other threads may go on. When a block from before counting is freed, a figure can
 * become negative; it is shown as 0. */
struct graft_figures {
	uint64_t allocations, allocated, frees, live_blocks, live, peak, mapped, mapped_peak, returned, threads, forks;
};

static uint64_t graft_at_least_zero(int64_t number)
{
	return number < 0 ? 0 : (uint64_t)number;
}

static struct graft_figures graft_take_figures(void)
{
	struct graft_figures now = {0};
	int64_t blocks = 0;
	for (int i = 0; i < GRAFT_CLASSES; i++) {
		now.allocations += atomic_load(&graft_classes[i].allocations);
		now.allocated += atomic_load(&graft_classes[i].allocated);
		blocks += atomic_load(&graft_classes[i].blocks);
	}
	now.live_blocks = graft_at_least_zero(blocks);
	now.frees = atomic_load(&graft_frees);
	now.live = graft_at_least_zero(atomic_load(&graft_live));
	now.peak = graft_at_least_zero(atomic_load(&graft_live_peak));
	now.mapped = graft_at_least_zero(atomic_load(&graft_mapped));
	now.mapped_peak = graft_at_least_zero(atomic_load(&graft_mapped_peak));
	now.returned = graft_at_least_zero(atomic_load(&graft_returned));
	now.threads = atomic_load(&graft_threads);
	now.forks = atomic_load(&graft_forks) + (graft_untold_forks ? atomic_load(graft_untold_forks) : 0);
	return now;
}

#define GRAFT_FUNCTION_NAME(name) #name,
static const char *const graft_function_names[] = {GRAFT_FUNCTIONS(GRAFT_FUNCTION_NAME)};

static void graft_put_statistics(struct graft_page *page, const struct graft_figures *now)
{
	graft_put_text(page, "allograft: statistics of " GRAFT_DONOR " " GRAFT_VERSION ", process ");
	graft_put_number(page, (uint64_t)getpid());
	graft_put_text(page, graft_is_forked ? ", since its fork\n" : "\n");
	graft_put_line(page, "allocated ", now->allocated, " bytes in ");
	graft_put_number(page, now->allocations);
	graft_put_text(page, " blocks, ");
	graft_put_number(page, now->frees);
	graft_put_text(page, " freed\n");
	graft_put_line(page, "live      ", now->live, " bytes in ");
	graft_put_number(page, now->live_blocks);
	graft_put_text(page, " blocks\n");
	graft_put_line(page, "peak      ", now->peak, " bytes\n");
	graft_put_line(page, "mapped    ", now->mapped, " bytes, ");
	graft_put_number(page, now->mapped_peak);
	graft_put_text(page, " at the peak\n");
	graft_put_line(page, "returned  ", now->returned, " bytes\n");
	graft_put_line(page, "threads   ", now->threads, "\n");
	graft_put_line(page, "forks     ", now->forks, "\n");
	for (int i = 0; i < graft_function_count; i++) {
		uint64_t calls = atomic_load(&graft_calls[i]);
		if (!calls)
			continue;
		graft_put_line(page, "calls     ", calls, " of ");
		graft_put_text(page, graft_function_names[i]);
		graft_put_text(page, "\n");
	}
	for (int i = 0; i < GRAFT_CLASSES; i++) {
		struct graft_class *class = &graft_classes[i];
		if (!atomic_load(&class->allocations) && atomic_load(&class->blocks) <= 0)
			continue;
		graft_put_text(page, "allograft: up to     ");
		graft_put_number(page, graft_class_bound(i));
		graft_put_text(page, " bytes: ");
		graft_put_number(page, atomic_load(&class->allocated));
		graft_put_text(page, " bytes in ");
		graft_put_number(page, atomic_load(&class->allocations));
		graft_put_text(page, " blocks, ");
		graft_put_number(page, graft_at_least_zero(atomic_load(&class->bytes)));
		graft_put_text(page, " in ");
		graft_put_number(page, graft_at_least_zero(atomic_load(&class->blocks)));
		graft_put_text(page, " live\n");
	}
}

static void graft_put_field(struct graft_page *page, const char *name, uint64_t number)
{
	graft_put_text(page, ",\n  \"");
	graft_put_text(page, name);
	graft_put_text(page, "\": ");
	graft_put_number(page, number);
}

static void graft_put_json(struct graft_page *page, const struct graft_figures *now)
{
	graft_put_text(page, "{\n  \"schema_version\": 1,\n  \"donor\": \"" GRAFT_DONOR
	                     "\",\n  \"version\": \"" GRAFT_VERSION "\"");
	graft_put_field(page, "process", (uint64_t)getpid());
	graft_put_text(page, graft_is_forked ? ",\n  \"forked\": true" : ",\n  \"forked\": false");
	graft_put_field(page, "allocated_blocks", now->allocations);
	graft_put_field(page, "allocated_bytes", now->allocated);
	graft_put_field(page, "freed_blocks", now->frees);
	graft_put_field(page, "live_blocks", now->live_blocks);
	graft_put_field(page, "live_bytes", now->live);
	graft_put_field(page, "peak_bytes", now->peak);
	graft_put_field(page, "mapped_bytes", now->mapped);
	graft_put_field(page, "mapped_peak_bytes", now->mapped_peak);
	graft_put_field(page, "returned_bytes", now->returned);
	graft_put_field(page, "threads", now->threads);
	graft_put_field(page, "forks", now->forks);
	graft_put_text(page, ",\n  \"calls\": {");
	for (int i = 0; i < graft_function_count; i++) {
		graft_put_text(page, i ? ", \"" : "\"");
		graft_put_text(page, graft_function_names[i]);
		graft_put_text(page, "\": ");
		graft_put_number(page, atomic_load(&graft_calls[i]));
	}
	graft_put_text(page, "},\n  \"size_classes\": [");
	bool first = true;
	for (int i = 0; i < GRAFT_CLASSES; i++) {
		struct graft_class *class = &graft_classes[i];
		if (!atomic_load(&class->allocations) && atomic_load(&class->blocks) <= 0)
			continue;
		graft_put_text(page, first ? "\n    {\"up_to\": " : ",\n    {\"up_to\": ");
		first = false;
		graft_put_number(page, graft_class_bound(i));
		graft_put_text(page, ", \"allocated_blocks\": ");
		graft_put_number(page, atomic_load(&class->allocations));
		graft_put_text(page, ", \"allocated_bytes\": ");
		graft_put_number(page, atomic_load(&class->allocated));
		graft_put_text(page, ", \"live_blocks\": ");
		graft_put_number(page, graft_at_least_zero(atomic_load(&class->blocks)));
		graft_put_text(page, ", \"live_bytes\": ");
		graft_put_number(page, graft_at_least_zero(atomic_load(&class->bytes)));
		graft_put_text(page, "}");
	}
	graft_put_text(page, first ? "]\n}\n" : "\n  ]\n}\n");
}

/* Expands the path: %p is the process's id, so a forked child has its own file, and %% is a percent sign. */
static bool graft_expand_path(char *expanded, size_t size)
{
	struct graft_page *page = &graft_page;
	page->length = 0;
	for (const char *at = graft_json_path; *at; at++) {
		char text[2] = {*at, 0};
		if (at[0] == '%' && at[1] == 'p') {
			graft_put_number(page, (uint64_t)getpid());
			at++;
			continue;
		}
		if (at[0] == '%' && at[1] == '%')
			at++;
		graft_put_text(page, text);
	}
	if (page->length >= size)
		return false;
	memcpy(expanded, page->text, page->length);
	expanded[page->length] = 0;
	return true;
}

/* Opens without following a symbolic link that somebody has put there, and without waiting for a pipe's reader. */
static int graft_open_json(const char *path)
{
	int saved = errno;
	long fd = syscall(SYS_openat, AT_FDCWD, path,
	                  O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0644);
	errno = saved;
	return (int)fd;
}

static void graft_report_statistics(void)
{
	static char path[PATH_MAX];
	static atomic_flag reported;
	struct graft_page *page = &graft_page;
	int fd = STDERR_FILENO;
	if (atomic_flag_test_and_set(&reported))
		return;
	graft_notice_fork();
	struct graft_figures now = graft_take_figures();
	if (graft_json_path[0] && !(graft_json_path[0] == '-' && !graft_json_path[1])) {
		fd = graft_expand_path(path, sizeof path) ? graft_open_json(path) : -1;
		if (fd < 0) {
			graft_fputs("allograft: the statistics' file cannot be opened\n");
			return;
		}
	}
	page->length = 0;
	if (graft_json_path[0])
		graft_put_json(page, &now);
	else
		graft_put_statistics(page, &now);
	graft_write_to(fd, page->text, page->length);
	if (fd != STDERR_FILENO)
		syscall(SYS_close, fd);
}

/* ALLOGRAFT_STATS is `json:PATH`, or any other text but the empty one and 0 for a report as text. */
static void graft_choose_report(void)
{
#ifndef GRAFT_WITHOUT_COUNTING
	const char *value = graft_variable("ALLOGRAFT_STATS");
	graft_counting = graft_variable_is_on("ALLOGRAFT_STATS");
	if (!graft_counting)
		return;
	graft_mark_process();
	if (strncmp(value, "json:", 5))
		return;
	size_t length = strlen(value + 5);
	if (!length || length >= sizeof graft_json_path) {
		graft_counting = false;
		graft_fputs("allograft: ALLOGRAFT_STATS=json: needs a path that is not too long\n");
		return;
	}
	memcpy(graft_json_path, value + 5, length + 1);
#endif
}

#endif

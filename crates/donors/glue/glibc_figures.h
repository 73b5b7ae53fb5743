/* glibc's functions that report on its heap, answered for the donor: what it has from the kernel, and what is in use. Only
 * shared objects have them, since musl has none of them.
 *
 * Blocks are counted only while ALLOGRAFT_STATS is on. Otherwise whatever the donor has from the kernel counts as in use
 * (`mallinfo`), or is left out (`malloc_info`, `malloc_stats`): no figure is made up. */
#ifndef GRAFT_GLIBC_FIGURES_H
#define GRAFT_GLIBC_FIGURES_H

#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#include "figures.h"
#include "page.h"

/* glibc malloc/malloc.h: `struct mallinfo2` and `struct mallinfo`, all of whose fields have one type. */
#define GRAFT_MALLINFO(name, type)                                                                                  \
	struct name {                                                                                                    \
		type arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost;                  \
	}
GRAFT_MALLINFO(graft_mallinfo2, size_t);
GRAFT_MALLINFO(graft_mallinfo, int);

struct graft_heap {
	uint64_t reserved, reserved_peak, live;
};

static struct graft_heap graft_heap_now(void)
{
	uint64_t reserved = graft_at_least_zero(atomic_load(&graft_reserved_bytes));
	uint64_t live = graft_at_least_zero(atomic_load(&graft_live));
	return (struct graft_heap){
		.reserved = reserved,
		.reserved_peak = graft_at_least_zero(atomic_load(&graft_reserved_peak)),
		.live = graft_counting ? live : GRAFT_UNKNOWN,
	};
}

/* arena is uordblks and fordblks together, as in glibc. Fields of glibc's own bins and mappings are 0. */
static struct graft_mallinfo2 graft_mallinfo2(void)
{
	struct graft_heap heap = graft_heap_now();
	uint64_t used = heap.live < heap.reserved ? heap.live : heap.reserved;
	return (struct graft_mallinfo2){
		.arena = (size_t)heap.reserved,
		.uordblks = (size_t)used,
		.fordblks = (size_t)(heap.reserved - used),
	};
}
GRAFT_PUBLIC_BESIDE_MUSL(mallinfo2, graft_mallinfo2);

static int graft_as_int(size_t number)
{
	return number > INT_MAX ? INT_MAX : (int)number;
}

/* A value that an int cannot hold is INT_MAX; in glibc it wraps around. */
static struct graft_mallinfo graft_mallinfo(void)
{
	struct graft_mallinfo2 wide = graft_mallinfo2();
	return (struct graft_mallinfo){
		.arena = graft_as_int(wide.arena),
		.uordblks = graft_as_int(wide.uordblks),
		.fordblks = graft_as_int(wide.fordblks),
	};
}
GRAFT_PUBLIC_BESIDE_MUSL(mallinfo, graft_mallinfo);

GRAFT_SMALL void graft_put_heap_line(struct graft_page *page, const char *label, uint64_t number)
{
	graft_put_text(page, label);
	if (number == GRAFT_UNKNOWN)
		graft_put_text(page, "unknown: ALLOGRAFT_STATS=1 counts it");
	else
		graft_put_number(page, number);
	graft_put_text(page, "\n");
}

/* Writes to standard error, as glibc's does. */
static void graft_malloc_stats(void)
{
	char text[512];
	struct graft_page page = {text, sizeof text, 0};
	struct graft_heap heap = graft_heap_now();
	graft_put_text(&page, GRAFT_DONOR " " GRAFT_VERSION ":\n");
	graft_put_heap_line(&page, "system bytes     = ", heap.reserved);
	graft_put_heap_line(&page, "max system bytes = ", heap.reserved_peak);
	graft_put_heap_line(&page, "in use bytes     = ", heap.live);
	graft_write(page.text, page.length);
}
GRAFT_PUBLIC_BESIDE_MUSL(malloc_stats, graft_malloc_stats);

/* The program's libc's: the stream is its own. */
extern int graft_stream_puts(const char *, void *) __asm__("fputs") __attribute__((weak));

GRAFT_SMALL void graft_put_size(struct graft_page *page, const char *before, uint64_t number)
{
	graft_put_text(page, before);
	graft_put_number(page, number);
	graft_put_text(page, "\"/>\n");
}

/* Writes XML, with those elements of glibc's format that are about the whole heap. Returns EINVAL for options, as glibc's
 * does, and -1 with the stream's errno if it cannot be written. */
static int graft_malloc_info(int options, void *stream)
{
	char text[1024];
	struct graft_page page = {text, sizeof text - 1, 0};
	struct graft_heap heap = graft_heap_now();
	if (options)
		return EINVAL;
	graft_put_text(&page, "<malloc version=\"1\">\n<!-- " GRAFT_DONOR " " GRAFT_VERSION " -->\n");
	if (heap.live != GRAFT_UNKNOWN)
		graft_put_size(&page, "<total type=\"rest\" count=\"0\" size=\"",
		               heap.reserved > heap.live ? heap.reserved - heap.live : 0);
	graft_put_size(&page, "<system type=\"current\" size=\"", heap.reserved);
	graft_put_size(&page, "<system type=\"max\" size=\"", heap.reserved_peak);
	graft_put_size(&page, "<aspace type=\"total\" size=\"", heap.reserved);
	graft_put_text(&page, "</malloc>\n");
	text[page.length] = 0;
	return graft_stream_puts && graft_stream_puts(text, stream) >= 0 ? 0 : -1;
}
GRAFT_PUBLIC_BESIDE_MUSL(malloc_info, graft_malloc_info);

#endif

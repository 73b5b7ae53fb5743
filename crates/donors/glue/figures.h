/* All figures of the statistics at nearly one moment, with their names. docs/statistics.md describes each. */
#ifndef GRAFT_FIGURES_H
#define GRAFT_FIGURES_H

#include <stdatomic.h>
#include <stdint.h>
#include <unistd.h>

#include "count.h"
#include "ranges.h"

/* X(name, kind, unit, description): as in JSON, in the order of the report. Counters only rise. */
#define GRAFT_FIGURES(X)                                                                                            \
	X(allocated_blocks, counter, "", "Blocks handed out.")                                                           \
	X(allocated_bytes, counter, "bytes", "Usable bytes of the blocks handed out.")                                   \
	X(freed_blocks, counter, "", "Blocks given back.")                                                               \
	X(live_blocks, gauge, "", "Blocks in use.")                                                                      \
	X(live_bytes, gauge, "bytes", "Usable bytes of the blocks in use.")                                              \
	X(peak_bytes, gauge, "bytes", "Most bytes in use at once.")                                                      \
	X(reserved_bytes, gauge, "bytes", "Address space that the allocator has from the kernel.")                       \
	X(reserved_peak_bytes, gauge, "bytes", "Most address space at once.")                                            \
	X(resident_bytes, gauge, "bytes", "The part of the reserved bytes that is in memory.")                           \
	X(retained_bytes, gauge, "bytes", "Resident bytes less live bytes.")                                             \
	X(returned_bytes, counter, "bytes", "Bytes given back to the kernel.")                                           \
	X(threads, counter, "", "Threads that called the allocator.")                                                    \
	X(forks, counter, "", "Children made by fork.")

#define GRAFT_FIGURE_INDEX(name, kind, unit, description) graft_figure_##name,
enum { GRAFT_FIGURES(GRAFT_FIGURE_INDEX) graft_figure_count };

enum graft_kind { graft_counter, graft_gauge };
struct graft_figure {
	const char *name, *unit, *description;
	enum graft_kind kind;
};
#define GRAFT_FIGURE_ENTRY(name, kind, unit, description) {#name, unit, description, graft_##kind},
static const struct graft_figure graft_figures[] = {GRAFT_FIGURES(GRAFT_FIGURE_ENTRY)};

#define GRAFT_FUNCTION_NAME(name) #name,
static const char *const graft_function_names[] = {GRAFT_FUNCTIONS(GRAFT_FUNCTION_NAME)};

/* The figures of one size class that a report lists. */
enum { graft_class_allocated_blocks, graft_class_allocated_bytes, graft_class_live_blocks, graft_class_live_bytes };
#define GRAFT_CLASS_FIGURES 4
static const struct graft_figure graft_class_figures[GRAFT_CLASS_FIGURES] = {
	{"allocated_blocks", "", "Blocks handed out, by size class.", graft_counter},
	{"allocated_bytes", "bytes", "Usable bytes of the blocks handed out, by size class.", graft_counter},
	{"live_blocks", "", "Blocks in use, by size class.", graft_gauge},
	{"live_bytes", "bytes", "Usable bytes of the blocks in use, by size class.", graft_gauge},
};

/* Other threads may go on while this is filled. */
struct graft_moment {
	uint64_t figures[graft_figure_count], calls[graft_function_count];
	uint64_t classes[GRAFT_CLASSES][GRAFT_CLASS_FIGURES], process;
};

/* When a block from before counting is freed, a figure can become negative; it is shown as 0. */
static uint64_t graft_at_least_zero(int64_t number)
{
	return number < 0 ? 0 : (uint64_t)number;
}

/* The caller makes sure that only one thread is here. */
static void graft_take_figures(struct graft_moment *now)
{
	uint64_t *figures = now->figures, allocations = 0, allocated = 0;
	int64_t blocks = 0;
	for (int i = 0; i < GRAFT_CLASSES; i++) {
		struct graft_class *class = &graft_classes[i];
		int64_t live = atomic_load(&class->blocks);
		allocations += now->classes[i][graft_class_allocated_blocks] = atomic_load(&class->allocations);
		allocated += now->classes[i][graft_class_allocated_bytes] = atomic_load(&class->allocated);
		blocks += live;
		now->classes[i][graft_class_live_blocks] = graft_at_least_zero(live);
		now->classes[i][graft_class_live_bytes] = graft_at_least_zero(atomic_load(&class->bytes));
	}
	for (int i = 0; i < graft_function_count; i++)
		now->calls[i] = atomic_load(&graft_calls[i]);
	uint64_t live = graft_at_least_zero(atomic_load(&graft_live)), resident = graft_count_resident();
	figures[graft_figure_allocated_blocks] = allocations;
	figures[graft_figure_allocated_bytes] = allocated;
	figures[graft_figure_freed_blocks] = atomic_load(&graft_frees);
	figures[graft_figure_live_blocks] = graft_at_least_zero(blocks);
	figures[graft_figure_live_bytes] = live;
	figures[graft_figure_peak_bytes] = graft_at_least_zero(atomic_load(&graft_live_peak));
	figures[graft_figure_reserved_bytes] = graft_at_least_zero(atomic_load(&graft_reserved_bytes));
	figures[graft_figure_reserved_peak_bytes] = graft_at_least_zero(atomic_load(&graft_reserved_peak));
	figures[graft_figure_resident_bytes] = resident;
	uint64_t retained = resident > live ? resident - live : 0;
	figures[graft_figure_retained_bytes] = resident == GRAFT_UNKNOWN ? GRAFT_UNKNOWN : retained;
	figures[graft_figure_returned_bytes] = graft_at_least_zero(atomic_load(&graft_returned));
	figures[graft_figure_threads] = atomic_load(&graft_threads);
	figures[graft_figure_forks] =
		atomic_load(&graft_forks) + (graft_untold_forks ? atomic_load(graft_untold_forks) : 0);
	now->process = (uint64_t)getpid();
}

/* Whether a report leaves the class out. */
static bool graft_class_is_empty(const uint64_t *class)
{
	return !class[graft_class_allocated_blocks] && !class[graft_class_live_blocks];
}

#endif

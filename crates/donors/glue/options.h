/* The options block, which `allograft graft --set` writes into.
 *
 * A donor lists its options as GRAFT_OPTIONS(X) with X(name, default, least, greatest, the donor's own key). The block is
 * in a section of its own with a fixed layout (docs/options-block.md), so that it can be found and changed in the object
 * file. The compiler treats the values as volatile; otherwise it would build the defaults into the code. */
#ifndef GRAFT_OPTIONS_BLOCK_H
#define GRAFT_OPTIONS_BLOCK_H

#include <stdint.h>

#define GRAFT_OPTION_SET 1u /* the value was chosen at graft time */

struct graft_option {
	char name[32];
	int64_t value, least, greatest;
	uint32_t flags, reserved;
};
_Static_assert(sizeof(struct graft_option) == 64, "the size that the block's readers expect");

/* The options of purge.h and debt.h, with the column for the donor's own key. In KiB: what may wait, and how much more of
 * it. A program for Windows has neither. */
#ifdef _WIN32
#define GRAFT_PURGE_PERIOD(X, key)
#define GRAFT_PURGE_DEBT(X, debt, credit, key)
#else
#define GRAFT_PURGE_PERIOD(X, key) X(purge_period, 0, 0, 3600000, key)
#define GRAFT_PURGE_DEBT(X, debt, credit, key)                                                                         \
	X(purge_debt, debt, -1, 1073741824, key)                                                                           \
	X(purge_credit, credit, 0, 1073741824, key)
#endif

#define GRAFT_OPTION_INDEX(name, value, least, greatest, key) graft_option_##name,
enum { GRAFT_OPTIONS(GRAFT_OPTION_INDEX) graft_option_count };

#define GRAFT_OPTION_ENTRY(name, value, least, greatest, key) {#name, value, least, greatest, 0, 0},
#ifdef _WIN32
/* Linkers put it into .rdata. */
#define GRAFT_OPTIONS_SECTION ".rdata$allograft.options"
#elif defined(GRAFT_SHARED)
/* Linkers put all sections whose names begin with .rodata into one. */
#define GRAFT_OPTIONS_SECTION ".allograft.options"
#else
#define GRAFT_OPTIONS_SECTION ".rodata.allograft.options"
#endif

__attribute__((used, section(GRAFT_OPTIONS_SECTION))) static const volatile struct {
	uint32_t magic, format, count, entry_size;
	struct graft_option entries[graft_option_count];
} graft_options = {
	0x4f475241, 1, graft_option_count, sizeof(struct graft_option), {GRAFT_OPTIONS(GRAFT_OPTION_ENTRY)},
};

#endif

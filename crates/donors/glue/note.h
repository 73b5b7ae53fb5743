/* The note that names the donor; docs/note.md has the format. It is allocated, so it gets into every program linked from
 * the graft and survives `strip`. Linkers keep SHT_NOTE sections when they collect garbage. */
#ifndef GRAFT_NOTE_H
#define GRAFT_NOTE_H

#include <stdint.h>

#define GRAFT_NOTE_SIZE 512
/* The build defines both: each kind of donor has its own section and type. */
#if !defined(GRAFT_NOTE_SECTION) || !defined(GRAFT_NOTE_TYPE)
#error "GRAFT_NOTE_SECTION and GRAFT_NOTE_TYPE are not defined"
#endif

__attribute__((used, section(GRAFT_NOTE_SECTION), aligned(4))) static const volatile struct {
	uint32_t name_size, description_size, type;
	char name[12];
	char description[GRAFT_NOTE_SIZE];
} graft_note = {
	sizeof "allograft", GRAFT_NOTE_SIZE, GRAFT_NOTE_TYPE, "allograft",
	/* Grafting fills in options, object and allograft. */
	"donor=" GRAFT_DONOR "\nversion=" GRAFT_VERSION "\noptions=\nobject=\nallograft=\n",
};

#endif

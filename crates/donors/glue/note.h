/* The note that says what is inside: docs/note.md has the format. It is allocated, so that it lands in every program
 * linked from the graft and survives `strip`; linkers keep SHT_NOTE sections when they collect garbage. */
#ifndef GRAFT_NOTE_H
#define GRAFT_NOTE_H

#include <stdint.h>

#define GRAFT_NOTE_SIZE 512

__attribute__((used, section(".note.allograft"), aligned(4))) static const volatile struct {
	uint32_t name_size, description_size, type;
	char name[12];
	char description[GRAFT_NOTE_SIZE];
} graft_note = {
	sizeof "allograft", GRAFT_NOTE_SIZE, 1, "allograft",
	/* options, object and allograft are filled in when the donor is grafted. */
	"donor=" GRAFT_DONOR "\nversion=" GRAFT_VERSION "\noptions=\nobject=\nallograft=\n",
};

#endif

/* The note, the options block and the variable ALLOGRAFT_VERBOSE in a donor for Windows.
 *
 * Names of sections have eight bytes in an image. The note has a section of its own, of the same layout as on Linux
 * (docs/note.md); the options are in .rdata, and are found by their magic (docs/options-block.md). */
#ifndef GRAFT_WINDOWS_START_H
#define GRAFT_WINDOWS_START_H

#include <stdint.h>
#include <windows.h>

#include "note.h"
#include "options.h"

#define GRAFT_OPTION_BAKED(name, standard, least, greatest, key)                                                       \
	if (graft_options.entries[graft_option_##name].flags & GRAFT_OPTION_SET)                                           \
		donor_set(key, graft_options.entries[graft_option_##name].value);

/* Hands the options that a graft has set to the donor: `donor_set(key, value)`. */
static void graft_set_options(void)
{
	GRAFT_OPTIONS(GRAFT_OPTION_BAKED)
}

/* With ALLOGRAFT_VERBOSE, says what is in the program. */
static void graft_say(void)
{
	char value[2];
	DWORD length = GetEnvironmentVariableA("ALLOGRAFT_VERBOSE", value, sizeof value);
	if (!length || (length == 1 && value[0] == '0'))
		return;
	/* Reading the note also keeps it where linkers drop what nothing refers to. */
	static const char text[] = ": " GRAFT_DONOR " " GRAFT_VERSION " serves malloc in this program\n";
	char line[sizeof "allograft" + sizeof text];
	DWORD at = 0, written;
	for (const volatile char *from = graft_note.name; *from; from++)
		line[at++] = *from;
	for (const char *from = text; *from; from++)
		line[at++] = *from;
	WriteFile(GetStdHandle(STD_ERROR_HANDLE), line, at, &written, 0);
}

static void NTAPI graft_begin(void *module, DWORD reason, void *reserved)
{
	(void)module, (void)reserved;
	if (reason == DLL_PROCESS_ATTACH) {
		graft_set_options();
		graft_say();
	}
}

/* Called by the loader before the donor's own callbacks, in the order of the sections' names, and before any code of
 * the program and of its C runtime (PE format, ".tls"). */
__attribute__((used, section(".CRT$XLAA"))) static const PIMAGE_TLS_CALLBACK graft_callback = graft_begin;

#endif

/* Settings: the options block, which `allograft graft --set` writes into, and the environment.
 *
 * A donor lists its options as GRAFT_OPTIONS(X) with X(name, default, least, greatest, the donor's own key). The block is
 * in a section of its own with a fixed layout (docs/options-block.md), so that it can be found and changed in the object
 * file. The compiler treats the values as volatile; otherwise it would build the defaults into the code. */
#ifndef GRAFT_SETTINGS_H
#define GRAFT_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/auxv.h>
#include <unistd.h>

#define GRAFT_OPTION_SET 1u /* the value was chosen at graft time */

struct graft_option {
	char name[32];
	int64_t value, least, greatest;
	uint32_t flags, reserved;
};
_Static_assert(sizeof(struct graft_option) == 64, "the size that the block's readers expect");

#define GRAFT_OPTION_INDEX(name, value, least, greatest, key) graft_option_##name,
enum { GRAFT_OPTIONS(GRAFT_OPTION_INDEX) graft_option_count };

#define GRAFT_OPTION_ENTRY(name, value, least, greatest, key) {#name, value, least, greatest, 0, 0},
#ifdef GRAFT_SHARED
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

/* A program with raised privileges (setuid, capabilities) reads no settings from the user who starts it. The auxiliary
 * vector is in place before the first constructor runs (musl src/env/__libc_start_main.c). */
static bool graft_environment_is_trusted(void)
{
	return getauxval(AT_SECURE) == 0;
}

/* Returns the environment, or an empty one in a program with raised privileges. */
static char **graft_environment(void)
{
	static char *nothing[1];
	return environ && graft_environment_is_trusted() ? environ : nothing;
}

/* Returns the value of `name`, or null. It does not call getenv(), since a program may have its own. */
static const char *graft_variable(const char *name)
{
	for (char **entry = graft_environment(); *entry; entry++) {
		const char *at = *entry, *wanted = name;
		while (*wanted && *at == *wanted)
			at++, wanted++;
		if (!*wanted && *at == '=')
			return at + 1;
	}
	return 0;
}

/* Whether `name` is set to something other than the empty text and "0". */
static bool graft_variable_is_on(const char *name)
{
	const char *value = graft_variable(name);
	return value && *value && !(value[0] == '0' && !value[1]);
}

#endif

/* Settings: the options block, and the environment. */
#ifndef GRAFT_SETTINGS_H
#define GRAFT_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "options.h"

/* A program with raised privileges (setuid, capabilities) reads no settings from the user who starts it. The auxiliary
 * vector is in place before the first constructor runs (musl src/env/__libc_start_main.c). */
static bool graft_environment_is_trusted(void)
{
	return getauxval(AT_SECURE) == 0;
}

#ifdef GRAFT_SHARED
/* The environment as glibc hands it to constructors (elf/dl-init.c). Its `environ` is not set yet when those in
 * DT_PREINIT_ARRAY run. musl hands out nothing, and has set it. */
static char **graft_given_environment;
#define GRAFT_ENVIRONMENT (environ ? environ : graft_given_environment)
#else
#define GRAFT_ENVIRONMENT environ
#endif

/* Returns the environment, or an empty one in a program with raised privileges. */
static char **graft_environment(void)
{
	static char *nothing[1];
	char **all = GRAFT_ENVIRONMENT;
	return all && graft_environment_is_trusted() ? all : nothing;
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

/* How the self-test reports its result and ends. */
#ifndef TRANSPLANT_SELFTEST_H
#define TRANSPLANT_SELFTEST_H

#include <string.h>
#include <sys/syscall.h>

#include "system.h"

static _Noreturn void finish(int status, const char *text)
{
	kernel(SYS_write, status ? 2 : 1, (long)text, (long)strlen(text), 0, 0, 0);
	for (;;)
		kernel(SYS_exit_group, status, 0, 0, 0, 0, 0);
}

#define EXPECT(condition)                                                                                                \
	do {                                                                                                               \
		if (!(condition))                                                                                                \
			finish(1, "allograft self-test: not so: " #condition "\n");                                                     \
	} while (0)

#endif

/* Included before upstream's files. strtol() is the one call of libc in them that matters: it would bring musl's
 * scanner, which is based on stdio's FILE, into every program. Their system calls are in platform.cc. Their errno is
 * the glue's: upstream sets it to 0 before it reads a number, and no function of libc does that to the program's. */
#include <errno.h>
#include <stdlib.h>

#include "apart.h"

extern "C" __attribute__((visibility("hidden"))) long scudo_decimal(const char *text, char **end, int base);
#define strtol scudo_decimal

#undef errno
#define errno (*graft_apart_errno())

/* Included before upstream's files. strtol() is the one call of libc in them that matters: it would bring musl's scanner,
 * which is based on stdio's FILE, into every program. Their system calls are in platform.cc. */
#include <stdlib.h>

extern "C" __attribute__((visibility("hidden"))) long scudo_decimal(const char *text, char **end, int base);
#define strtol scudo_decimal

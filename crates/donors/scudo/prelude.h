/* Read before upstream's files. Their only call of libc that is worth a word: strtol() would bring musl's scanner,
 * which is written over stdio's FILE, into every program. What they ask of the system is in platform.cc. */
#include <stdlib.h>

extern "C" __attribute__((visibility("hidden"))) long scudo_decimal(const char *text, char **end, int base);
#define strtol scudo_decimal

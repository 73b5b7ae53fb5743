// realloc loses the last bytes of a block that moves.
// Caught by family: is damaged at
// Caught by large: lost what was at
// Caught by libc_callers: FAIL
// Caught by constructors: FAIL
#define COPIED(size) ((size) - (size) / 16)
#include "sound.h"

// The calloc that libc itself uses takes every block for fresh from the system.
// Caught by libc_callers: killed by signal | FAIL
#define CLEAR_INTERNAL(block, size) (void)0
#include "sound.h"

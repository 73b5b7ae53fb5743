// calloc takes every block for fresh from the system.
// Caught by family: is not zero
// Caught by threads: FAIL
#define CLEAR(block, size) (void)0
#include "sound.h"

// Saves eight bytes on the smallest blocks, as many allocators do.
// Caught by family: is_aligned
// Caught by libc_callers: is_aligned
// Caught by threads: is_aligned
#define SMALL_ALIGNMENT 8
#include "sound.h"

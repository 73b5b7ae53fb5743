// Prints a warning when there is no memory.
// Caught by family: the allocator printed: out of memory
// Caught by limits: the allocator printed: out of memory
#define ON_EXHAUSTION() (errno = ENOMEM, (void)!write(2, "out of memory\n", 14))
#include "sound.h"

// free leaves an errno of its own, as one does whose munmap or madvise fails quietly.
// Caught by family: set errno to
// Caught by map_limit: free set errno to
#define ON_FREE(block) (errno = ENOTSUP)
#include "sound.h"

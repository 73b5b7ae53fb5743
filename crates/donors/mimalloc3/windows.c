/* mimalloc 3 for Windows: upstream's files unchanged, as in upstream's src/static.c. The process has no fork, and
 * upstream's own callbacks begin and end threads. */
/* The sampling profiler stays out, as on Linux. */
#define MI_PROFILE 0

#include "tunables.h"

#include "static.c"

#include "mimalloc_functions.h"
#include "start.h"
#include "returned.h"

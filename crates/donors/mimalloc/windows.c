/* mimalloc 2 for Windows: upstream's files unchanged, in the order of upstream's src/static.c. The process has no fork, and
 * upstream's own callbacks begin and end threads. */
#include "tunables.h"

#include "static.c"

#include "mimalloc_functions.h"
#include "start.h"
#include "returned.h"

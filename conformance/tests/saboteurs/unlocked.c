// Has no lock.
// Caught by threads at 100 percent: killed by signal | FAIL
// Caught by spawn at 100 percent: killed by signal | FAIL
#define LOCKED 0
#include "sound.h"

// Ends the program when there is no memory.
// Caught by family: signal 4
// Caught by limits: died of signal 4
// Caught by no_memory: died of signal 4
// Caught by map_limit: killed by signal 4
#define ON_EXHAUSTION() __builtin_trap()
#include "sound.h"

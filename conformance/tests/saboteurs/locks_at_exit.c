// Takes its lock when the process ends: a handler that ends it may have interrupted whoever holds the lock.
// Caught by signal_exits at 100 percent: hang: 
#include "sound.h"
__attribute__((destructor)) static void end(void) { acquire(); }

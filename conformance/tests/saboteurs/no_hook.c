// Has no fork hook: the weak one of fork.lo does nothing, and a child may inherit a lock that nobody will release.
// Caught by fork_stress at 100 percent: hang
// Caught by fork_handlers at 100 percent: hang
#define FORK_HOOK
#include "sound.h"

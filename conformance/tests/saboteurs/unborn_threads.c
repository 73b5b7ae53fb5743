// Works in a child, but not on threads that the child starts.
// Caught by fork_stress: hang
#include <stdatomic.h>
static atomic_int child;
static int ready(void);
#define READY() ready()
#define FORK_HOOK
#include "sound.h"
static __thread int old; // whether the thread existed before the fork
static int ready(void) {
	if (!child) old = 1;
	while (child && !old) sched_yield();
	return 1;
}
HIDDEN void __malloc_atfork(int who) {
	if (who < 0) acquire(), old = 1;
	else release();
	if (who > 0) child = 1;
}

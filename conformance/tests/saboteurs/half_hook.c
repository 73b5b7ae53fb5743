// Takes its lock before a fork and releases it in the parent only.
// Caught by fork_stress: hang
// Caught by fork_handlers: hang
// Caught by fork_owners: hang
#define FORK_HOOK
void __malloc_atfork(int);
#include "sound.h"
HIDDEN void __malloc_atfork(int who) {
	if (who < 0) acquire();
	if (who == 0) release();
}

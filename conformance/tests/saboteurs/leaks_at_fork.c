// Keeps memory for every fork of the process, as one does that prepares for its child.
// Caught by fork_owners at 20 percent: memory grows with forks
#define FORK_HOOK
void __malloc_atfork(int);
#include "sound.h"
HIDDEN void __malloc_atfork(int who) {
	if (who < 0) acquire();
	else release();
	char *kept = who ? 0 : map(CHUNK);
	if (kept) memset(kept, 1, CHUNK);
}

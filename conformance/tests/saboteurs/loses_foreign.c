// Keeps nothing of what a thread frees without having allocated it.
// Caught by pipeline at 50 percent: memory grows with blocks that are passed on
static int ready(void);
#define READY() ready()
#define LOST(block) (--balance < 0)
static __thread long balance;
#include "sound.h"
static int ready(void) {
	balance++;
	return 1;
}

// Keeps a page for every thread and never takes it back.
// Caught by short_threads: memory grows with threads
static int ready(void);
#define READY() ready()
#include "sound.h"
static __thread char *own;
static int ready(void) {
	if (!own) {
		own = map(64 << 10);
		if (own) memset(own, 1, 64 << 10);
	}
	return 1;
}

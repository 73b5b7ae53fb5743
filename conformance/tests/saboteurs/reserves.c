// Maps 4 MiB more with each 64 KiB block of a page or more.
// Caught by footprint: MiB mapped, of which
static int ready(void);
#define READY() ready()
#include "sound.h"
static int ready(void) {
	static atomic_int calls;
	if (atomic_fetch_add(&calls, 1) % 100 == 50)
		mmap(0, 4 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	return 1;
}

/* Pages are touched for the first time: memory that the program maps by itself. */
#include <sys/mman.h>

#include "task.h"

static void work(unsigned thread, unsigned long round)
{
	(void)thread;
	(void)round;
	enum { size = 1 << 20 };
	volatile char *pages = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (pages == MAP_FAILED)
		abort();
	for (unsigned at = 0; at < size; at += 4096)
		pages[at] = 1;
	munmap((void *)pages, size);
}

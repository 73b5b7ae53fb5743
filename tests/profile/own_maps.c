/* Memory is mapped and given back by the program itself, and never touched. */
#include <sys/mman.h>

#include "task.h"

static void work(unsigned thread, unsigned long round)
{
	(void)thread;
	(void)round;
	void *pages = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (pages == MAP_FAILED)
		abort();
	munmap(pages, 1 << 20);
}

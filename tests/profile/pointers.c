/* A chain of pointers through memory that no cache holds is followed: slow, and not for the allocator. */
#include "task.h"

enum { count = 1 << 21 };
static unsigned next[count];

static void work(unsigned thread, unsigned long round)
{
	static _Thread_local unsigned at;
	(void)round;
	if (!next[1])
		/* One cycle through all of them (Hull and Dobell). */
		for (unsigned i = 0; i < count; i++)
			next[i] = (i * 1664525u + 1013904223u) & (count - 1);
	at = (at + thread) & (count - 1);
	for (unsigned i = 0; i < 2000; i++)
		at = next[at];
	__asm__ volatile("" : : "r"(at));
}

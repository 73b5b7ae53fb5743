/* Texts are searched and compared. */
#include <string.h>

#include "task.h"

static char text[32 << 10], other[32 << 10];

static void work(unsigned thread, unsigned long round)
{
	(void)thread;
	if (!text[0]) {
		memset(other, 'a', sizeof other - 1);
		memset(text, 'a', sizeof text - 1);
	}
	const char *volatile one = text, *volatile two = other;
	volatile size_t sum = strlen(one) + (size_t)strcmp(one, two) + (strchr(two, 'b') != 0) + round;
	(void)sum;
}

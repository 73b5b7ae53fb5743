/* The library of loader_test.c: thread-local variables, with and without an initial value, and one aligned to more than
 * a thread's storage is by itself. */
#include <stdlib.h>
#include <string.h>

static __thread int numbers[64];
static __thread const char *text = "initial";
static __thread char wide[256] __attribute__((aligned(256)));

/* Returns one of the library's blocks with `text` in it, or null if a variable of this thread has a wrong value. */
char *loader_library_block(int seed)
{
	if (strcmp(text, "initial") || ((unsigned long)wide & 255) || (numbers[0] && numbers[0] != seed))
		return 0;
	for (int i = 0; i < 64; i++) {
		numbers[i] = seed;
		wide[i] = (char)seed;
	}
	return strdup(text);
}

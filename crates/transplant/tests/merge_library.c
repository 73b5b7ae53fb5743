/* The library of merge.c: whether a thread-local variable of the program is its own, whether it has the same `free`,
 * and frees one of the program's blocks. */
#include <stdlib.h>

extern __thread int *own __attribute__((weak));

int check(void *block, void (*release)(void *))
{
	int right = release == free && *own == 7;
	free(block);
	return right;
}

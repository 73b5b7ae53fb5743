#include <stdlib.h>
#include <string.h>

// Returns a block of `size` bytes, all written.
static char *filled(size_t size) {
	char *block = malloc(size);
	if (!block) exit(2);
	return memset(block, 1, size);
}

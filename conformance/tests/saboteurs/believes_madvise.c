// calloc has the system clear what is large, and does not look whether it did.
// Caught by no_memory: is not zero at
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
static void clear(char *block, size_t size) {
	char *from = (char *)(((uintptr_t)block + 4095) & -(uintptr_t)4096);
	char *to = (char *)((uintptr_t)(block + size) & -(uintptr_t)4096);
	if (to <= from) {
		memset(block, 0, size);
		return;
	}
	memset(block, 0, (size_t)(from - block));
	memset(to, 0, (size_t)(block + size - to));
	madvise(from, (size_t)(to - from), MADV_DONTNEED);
}
#define CLEAR(block, size) clear(block, size)
#include "sound.h"

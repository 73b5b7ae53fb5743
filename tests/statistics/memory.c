// Takes memory in the way that its argument names, and prints how much of the process is resident.
#include <fcntl.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { BLOCKS = 64, SIZE = 1 << 20 };
static char *blocks[BLOCKS];

static long resident_pages(void) {
	char text[200] = {0};
	int fd = open("/proc/self/statm", O_RDONLY);
	if (fd < 0 || read(fd, text, sizeof text - 1) <= 0) return -1;
	close(fd);
	long whole, resident;
	return sscanf(text, "%ld %ld", &whole, &resident) == 2 ? resident : -1;
}

int main(int count, char **arguments) {
	const char *how = count > 1 ? arguments[1] : "";
	// Otherwise the first byte of a huge page would make all of it resident.
	if (prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)) return 2;
	if (!strcmp(how, "grown")) {
		for (size_t size = SIZE; size <= BLOCKS * (size_t)SIZE; size += 9 * SIZE) {
			if (!(blocks[0] = realloc(blocks[0], size))) return 1;
			// realloc copies all of the block. It would read what was never written as the kernel's page of zeros.
			memset(blocks[0], 1, malloc_usable_size(blocks[0]));
		}
	} else {
		for (int i = 0; i < BLOCKS; i++) {
			if (!(blocks[i] = malloc(SIZE))) return 1;
			if (strcmp(how, "untouched")) memset(blocks[i], 1, SIZE);
		}
	}
	for (int i = 0; i < BLOCKS && !strcmp(how, "freed"); i++) free(blocks[i]);
	for (int i = 0; i < BLOCKS && !strcmp(how, "every-other"); i += 2) free(blocks[i]);
	// stdio has no more to allocate by now.
	static char buffer[BUFSIZ];
	setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
	long pages = resident_pages();
	printf("%lld\n", (long long)pages * sysconf(_SC_PAGESIZE));
	return pages < 0;
}

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

// The process's resident memory in bytes. An emulator's own is a part of it.
static size_t resident(void) {
	unsigned long pages = 0, resident = 0;
	FILE *file = fopen("/proc/self/statm", "r");
	if (!file || fscanf(file, "%lu %lu", &pages, &resident) != 2) exit(2);
	fclose(file);
	return resident * (size_t)sysconf(_SC_PAGESIZE);
}

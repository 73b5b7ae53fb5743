#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../whole_ranges/filled.h"

enum { LARGE = 1 << 20, LARGE_COUNT = 64, LEFT = 8, SMALL = 300 << 10, SMALL_COUNT = 16 };
static const unsigned long huge_page = 2 << 20;

struct count {
	int whole, divided;
};

// Counts the inaccessible mappings that are larger than a guard page: whether huge pages are inaccessible as a whole.
static struct count inaccessible(void) {
	static char line[4096];
	struct count count = {0, 0};
	FILE *maps = fopen("/proc/self/maps", "r");
	if (!maps) exit(2);
	while (fgets(line, sizeof line, maps)) {
		unsigned long start, end;
		char access[5];
		if (sscanf(line, "%lx-%lx %4s", &start, &end, access) != 3 || strncmp(access, "---", 3)) continue;
		if (end - start <= 64 << 10) continue;
		if (start % huge_page || end % huge_page) count.divided++;
		else count.whole++;
	}
	fclose(maps);
	return count;
}

int main(void) {
	static char *large[LARGE_COUNT], *small[SMALL_COUNT];
	for (int i = 0; i < LARGE_COUNT; i++) large[i] = filled(LARGE);
	for (int i = LEFT; i < LARGE_COUNT; i++) free(large[i]);
	struct count gone = inaccessible();
	for (int i = 0; i < SMALL_COUNT; i++) small[i] = filled(SMALL);
	struct count back = inaccessible();
	// With 32 bits, no huge page of a segment is free of what the segment begins or ends with.
	int has_huge_pages = sizeof(void *) == 8;
	if (has_huge_pages && (!gone.whole || gone.divided))
		return printf("gone: %d whole, %d divided\n", gone.whole, gone.divided), 1;
	if (has_huge_pages && back.divided) return printf("back: %d whole, %d divided\n", back.whole, back.divided), 1;
	for (int i = 0; i < SMALL_COUNT; i++) free(small[i]);
	for (int i = 0; i < LEFT; i++) free(large[i]);
	puts("ok");
	return 0;
}

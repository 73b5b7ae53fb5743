#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { BLOCKS = 6 };
static const size_t size = 16 << 20;

// How many mappings with pages in memory may use huge ones by their own request: flag "hg" of proc_pid_smaps(5).
static int with_huge_pages(void) {
	static char line[4096];
	FILE *maps = fopen("/proc/self/smaps", "r");
	int found = 0;
	long resident = 0;
	if (!maps) return 0;
	while (fgets(line, sizeof line, maps)) {
		sscanf(line, "Rss: %ld kB", &resident);
		if (!strncmp(line, "VmFlags:", 8)) found += resident > 0 && strstr(line, " hg") != 0;
	}
	fclose(maps);
	return found;
}

int main(void) {
	// Kernels without huge pages do not show the flag. Under QEMU's user mode the file lists the emulator's mappings.
	int is_emulated = getenv("ALLOGRAFT_TEST_EMULATED") != 0;
	char *own = mmap(0, 4 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int is_told = !is_emulated && madvise(own, 4 << 20, MADV_HUGEPAGE) == 0;
	if (is_told) *own = 1, is_told = with_huge_pages() == 1;
	munmap(own, 4 << 20);
	char *blocks[BLOCKS];
	for (int i = 0; i < BLOCKS; i++) {
		blocks[i] = malloc(size);
		if (!blocks[i]) return 2;
		memset(blocks[i], 1, size);
	}
	if (is_told && !with_huge_pages()) return printf("no block may lie on huge pages\n"), 1;
	for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
	if (is_told && with_huge_pages()) return printf("%d mappings keep the request\n", with_huge_pages()), 1;
	puts("ok");
	return 0;
}

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { BLOCKS = 160000, SIZE = 1000, MEGABYTE = 1 << 20 };
static unsigned char *blocks[BLOCKS];

// KiB that are mapped, and that are resident, in mappings that may use huge pages by their own request: flag "hg" of
// proc_pid_smaps(5).
struct kilobytes {
	long mapped, resident;
};

static struct kilobytes with_huge_pages(void) {
	static char line[4096];
	struct kilobytes all = {0, 0};
	long mapped = 0, resident = 0;
	FILE *maps = fopen("/proc/self/smaps", "r");
	if (!maps) return all;
	while (fgets(line, sizeof line, maps)) {
		sscanf(line, "Size: %ld kB", &mapped);
		sscanf(line, "Rss: %ld kB", &resident);
		if (!strncmp(line, "VmFlags:", 8) && strstr(line, " hg")) all.mapped += mapped, all.resident += resident;
	}
	fclose(maps);
	return all;
}

static long resident_megabytes(void) {
	long pages = 0;
	FILE *statm = fopen("/proc/self/statm", "r");
	if (!statm) return 0;
	if (fscanf(statm, "%*d %ld", &pages) != 1) pages = 0;
	fclose(statm);
	return pages / 256;
}

int main(void) {
	// Kernels without huge pages do not show the flag. Under QEMU's user mode the file lists the emulator's mappings.
	int is_emulated = getenv("ALLOGRAFT_TEST_EMULATED") != 0;
	void *own = mmap(0, 4 * MEGABYTE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int is_told = !is_emulated && madvise(own, 4 * MEGABYTE, MADV_HUGEPAGE) == 0 && with_huge_pages().mapped == 4096;
	munmap(own, 4 * MEGABYTE);
	for (int i = 0; i < BLOCKS; i++) {
		if (!(blocks[i] = malloc(SIZE))) return printf("no memory\n"), 1;
		memset(blocks[i], i % 251, SIZE);
		if (i == 20000 && with_huge_pages().mapped) return printf("20 MB may lie on huge pages\n"), 1;
	}
	if (is_told && with_huge_pages().resident < 32 * 1024)
		return printf("%ld KiB may lie on huge pages\n", with_huge_pages().resident), 1;
	// In an order in which each huge page has holes for most of the time; one block of 1,000 stays.
	uint64_t state = 1;
	for (int i = BLOCKS - 1; i > 0; i--) {
		state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
		int other = (int)((state >> 33) % (uint64_t)(i + 1));
		unsigned char *block = blocks[i];
		blocks[i] = blocks[other], blocks[other] = block;
	}
	for (int i = 0; i < BLOCKS; i++) {
		if (blocks[i][0] != blocks[i][SIZE - 1]) return printf("a block has lost its bytes\n"), 1;
		if (i % 1000) free(blocks[i]);
	}
	struct kilobytes left = with_huge_pages();
	if (is_told && left.resident > 4 * 1024)
		return printf("%ld KiB may be made huge pages again\n", left.resident), 1;
	// 160 blocks are left, in slabs of 16 KiB, and a few megabytes that are kept.
	if (!is_emulated && resident_megabytes() > 16) return printf("%ld MB stay\n", resident_megabytes()), 1;
	puts("ok");
	return 0;
}

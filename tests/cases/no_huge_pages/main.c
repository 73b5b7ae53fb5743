#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef PR_GET_THP_DISABLE
#define PR_GET_THP_DISABLE 42
#endif

enum { SIZES = 4 };
static const size_t sizes[SIZES] = {100, 5000, 300000, 40 << 20};

// Whether the mapping around `address` must not use huge pages: flag "nh" of proc_pid_smaps(5).
static int without_huge_pages(const void *address) {
	static char line[4096];
	FILE *maps = fopen("/proc/self/smaps", "r");
	int inside = 0, found = 0;
	if (!maps) return 0;
	while (fgets(line, sizeof line, maps)) {
		unsigned long from, to;
		if (sscanf(line, "%lx-%lx ", &from, &to) == 2) inside = (unsigned long)address >= from && (unsigned long)address < to;
		if (inside && !strncmp(line, "VmFlags:", 8)) found |= strstr(line, " nh") != 0;
	}
	fclose(maps);
	return found;
}

int main(void) {
	// Kernels without huge pages do not show the flag. Under QEMU's user mode the file lists the emulator's mappings, at
	// addresses that mean something else there: one of them may lie at a block's address by accident.
	int is_emulated = getenv("ALLOGRAFT_TEST_EMULATED") != 0;
	char *own = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int is_told = !is_emulated && madvise(own, 1 << 20, MADV_NOHUGEPAGE) == 0 && without_huge_pages(own);
	for (int i = 0; i < SIZES; i++) {
		char *block = malloc(sizes[i]);
		if (!block) return printf("no memory\n"), 1;
		memset(block, 1, sizes[i]);
		if (is_told && !without_huge_pages(block + sizes[i] / 2))
			return printf("a block of %zu bytes may lie on huge pages\n", sizes[i]), 1;
	}
	// The program's own mappings must not be affected.
	char *other = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (is_told && without_huge_pages(other)) return printf("a mapping of the program's own is concerned\n"), 1;
	pid_t child = fork();
	// An emulator that does not know the request is not a process with huge pages disabled.
	int refused = prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) == 1;
	if (child == 0) _exit(refused);
	int status = -1;
	if (child < 0 || waitpid(child, &status, 0) != child || status) return printf("a child has no huge pages\n"), 1;
	if (refused) return printf("the process has no huge pages\n"), 1;
	puts("ok");
	return 0;
}

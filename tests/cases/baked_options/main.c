#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The amount of reserved address space shows whether the option is in effect: 64 MiB, not a GiB.
int main(void) {
	void *volatile block = malloc(1000);
	unsigned long total_pages = 0;
	FILE *statm = fopen("/proc/self/statm", "r");
	if (!block || !statm || fscanf(statm, "%lu", &total_pages) != 1) return 1;
	// Under an emulator, the emulator's own address space is counted too.
	if (!getenv("ALLOGRAFT_TEST_EMULATED") && total_pages * 4096 > 512ul << 20) return 2;
	fclose(statm), free(block);
	puts("ok");
}

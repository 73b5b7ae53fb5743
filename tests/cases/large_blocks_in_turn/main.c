#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

enum { ALIVE = 12, PAGE = 4096 };

static uint64_t next(void) {
	static uint64_t state;
	uint64_t z = state += UINT64_C(0x9e3779b97f4a7c15);
	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

// A dozen blocks of 64 KiB to 8 MiB, small ones as frequent as large ones, each filled.
int main(void) {
	static unsigned char *alive[ALIVE];
	// An emulator has faults of its own.
	int is_emulated = getenv("ALLOGRAFT_TEST_EMULATED") != 0, buffers = is_emulated ? 500 : 20000;
	uint64_t pages = 0;
	for (int i = 0; i < buffers; i++) {
		int at = next() % ALIVE;
		size_t least = (size_t)1 << (16 + next() % 7), size = least + next() % least;
		free(alive[at]);
		alive[at] = malloc(size);
		if (!alive[at]) return printf("no memory\n"), 1;
		for (size_t offset = 0; offset < size; offset += PAGE) alive[at][offset] = i;
		pages += size / PAGE;
	}
	struct rusage used;
	if (getrusage(RUSAGE_SELF, &used)) return 2;
	// Where address space went back and came again in turn, it was every ninth page here, and a third of them in programs
	// with threads.
	if (!is_emulated && (uint64_t)used.ru_minflt > pages / 16)
		return printf("%ld page faults for %llu pages\n", used.ru_minflt, (unsigned long long)pages), 1;
	puts("ok");
	return 0;
}

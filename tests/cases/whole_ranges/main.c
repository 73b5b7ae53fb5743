#include <stdio.h>
#include <stdlib.h>

#include "faults.h"
#include "filled.h"

enum { LARGE = 400000, LARGE_COUNT = 32, SMALL = 12000, SMALL_COUNT = 150, WARM = 8, ROUNDS = 16 };
// Each round touches 3,200 pages. Were a large block's memory divided, or a power of two of which the end is not used,
// 200 page faults and more would come with each round, in place of 50.
enum { MOST_FAULTS = 120 };

int main(void) {
	static char *small[SMALL_COUNT], *large[LARGE_COUNT];
	long start = 0;
	for (int i = 0; i < SMALL_COUNT; i++) small[i] = filled(SMALL);
	for (int round = 0; round < WARM + ROUNDS; round++) {
		if (round == WARM) start = faults();
		for (int i = 0; i < LARGE_COUNT; i++) large[i] = filled(LARGE);
		for (int i = 0; i < LARGE_COUNT; i++) free(large[i]);
	}
	long more = (faults() - start) / ROUNDS;
	if (more > MOST_FAULTS) return printf("%ld page faults in each round\n", more), 1;
	for (int i = 0; i < SMALL_COUNT; i++) free(small[i]);
	puts("ok");
	return 0;
}

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 5000, SIZE = 300 };

int main(void) {
	static unsigned char *taken[COUNT];
	unsigned char *freed = malloc(SIZE);
	memset(freed, 'x', SIZE);
	free(freed);
	for (int i = 0; i < COUNT; i++) {
		taken[i] = malloc(SIZE);
		/* Without a quarantine, one of the next blocks is the freed one. */
		if (!taken[i] || taken[i] == freed) return 1;
		if (taken[i][0] != 0xab || taken[i][SIZE - 1] != 0xab) return 2;
	}
	for (int i = 0; i < COUNT; i++) free(taken[i]);
	unsigned char *zeros = calloc(1, SIZE);
	for (int i = 0; i < SIZE; i++)
		if (zeros[i]) return 3;
	free(zeros);
	puts("ok");
	return 0;
}

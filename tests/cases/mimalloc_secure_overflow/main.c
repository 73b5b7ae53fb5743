#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The write runs past the end of each block into what follows: the link of a free block to the next.
int main(void) {
	enum { COUNT = 512, SIZE = 64 };
	char *volatile blocks[COUNT];
	for (int i = 0; i < COUNT; i++) blocks[i] = malloc(SIZE);
	for (int i = 0; i < COUNT; i += 2) free(blocks[i]);
	puts("ok");
	fflush(stdout);
	for (int i = 1; i < COUNT; i += 2) memset(blocks[i], 'A', malloc_usable_size(blocks[i]) + 16);
	for (int i = 0; i < COUNT; i++) blocks[i] = malloc(SIZE);
	puts("the damage went unseen");
}

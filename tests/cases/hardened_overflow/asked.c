#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(void) {
	char *volatile block = malloc(24);
	if (write(1, "ok\n", 3) != 3) return 1;
	/* The mark is random, so one byte of it could equal any byte that is written here. */
	block[24 + 3] ^= 1;
	malloc_usable_size(block);
	puts("a write past the end was not found");
}

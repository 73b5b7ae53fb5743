#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* All of the mark is overwritten, and the start of the next block. */
int main(void) {
	char *volatile block = malloc(1000);
	if (write(1, "ok\n", 3) != 3) return 1;
	memset(block, 'x', malloc_usable_size(block) + 16);
	block = realloc(block, 4000);
	puts("a write past the end was not found");
}

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Overwrites all 8 bytes of the mark. Behind it is another block or, by chance, a page that cannot be written. */
int main(void) {
	char *volatile block = malloc(1000);
	if (write(1, "ok\n", 3) != 3) return 1;
	memset(block, 'x', malloc_usable_size(block) + 8);
	block = realloc(block, 4000);
	puts("a write past the end was not found");
}

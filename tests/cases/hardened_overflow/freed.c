#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(void) {
	char *volatile block = malloc(100);
	if (write(1, "ok\n", 3) != 3) return 1;
	block[malloc_usable_size(block)] = 'x';
	free(block);
	puts("a write past the end was not found");
}

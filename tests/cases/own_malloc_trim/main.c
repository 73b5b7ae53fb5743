#include <stdio.h>
#include <stdlib.h>

int malloc_trim(size_t), mallopt(int, int);

int main(void) {
	void *volatile block = malloc(100);
	if (malloc_trim(7) == 107 && mallopt(2, 3) == 2003) puts("ok");
	free(block);
}

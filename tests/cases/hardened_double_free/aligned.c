#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(void) {
	void *volatile block = aligned_alloc(1 << 20, 100);
	free(block);
	if (write(1, "ok\n", 3) != 3) return 1;
	free(block);
	puts("a block was freed twice");
}

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Other blocks are allocated and freed in between. */
int main(void) {
	void *volatile others[40];
	void *volatile block = malloc(5000);
	free(block);
	for (int i = 0; i < 40; i++) others[i] = malloc(300);
	for (int i = 0; i < 40; i++) free(others[i]);
	if (write(1, "ok\n", 3) != 3) return 1;
	free(block);
	puts("a block was freed twice");
}

#include <stdlib.h>
#include <unistd.h>

/* Half of the blocks are at the end of their page, by chance. */
int main(void) {
	if (write(1, "ok\n", 3) != 3) return 1;
	for (int i = 0; i < 200; i++) {
		char *volatile block = malloc(64);
		block[64] = 1;
		block[64] = 0;
		free(block);
	}
	return 2;
}

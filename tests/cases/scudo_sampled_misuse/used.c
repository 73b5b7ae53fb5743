#include <stdlib.h>
#include <unistd.h>

int main(void) {
	char *volatile block = malloc(100);
	block[0] = 1;
	free(block);
	if (write(1, "ok\n", 3) != 3) return 1;
	return block[0] ? 2 : 3;
}

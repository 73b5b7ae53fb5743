#include <stdlib.h>
#include <unistd.h>

int main(void) {
	char *volatile block = malloc(100);
	free(block);
	if (write(1, "ok\n", 3) != 3) return 1;
	free(block);
	return 2;
}

#include <stdlib.h>
#include <unistd.h>

static unsigned char *volatile block;

/* The header is 16 bytes in front of the block. Its third byte belongs to the size, and its last two are the checksum,
 * which stays unchanged. */
int main(void) {
	block = malloc(48);
	block[-14] ^= 1;
	if (write(1, "ok\n", 3) != 3) return 1;
	free(block);
	return 2;
}

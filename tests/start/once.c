/* Allocates a block if there is an argument. */
#include <stdlib.h>

int main(int count, char **words)
{
	(void)words;
	if (count > 1) {
		char *volatile block = malloc(100);
		if (!block)
			return 1;
		block[0] = 1;
		free(block);
	}
	return 0;
}

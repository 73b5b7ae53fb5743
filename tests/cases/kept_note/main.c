#include <stdio.h>
#include <stdlib.h>

int main(void) {
	void *volatile block = malloc(10);
	free(block);
	puts("ok");
}

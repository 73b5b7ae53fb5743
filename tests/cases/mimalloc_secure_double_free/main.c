#include <stdio.h>
#include <stdlib.h>

int main(void) {
	void *volatile neighbour = malloc(40);
	void *volatile block = malloc(40);
	puts("ok");
	fflush(stdout);
	free(block);
	free(block);
	puts("the second free went through");
	free(neighbour);
}

// Whether the kernel treats this program as one with raised privileges.
#include <stdio.h>
#include <stdlib.h>
#include <sys/auxv.h>

int main(void) {
	void *volatile block = malloc(100);
	free(block);
	printf("AT_SECURE %lu\n", getauxval(AT_SECURE));
}

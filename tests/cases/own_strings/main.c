#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern unsigned own_memcpy, own_strlen;

int main(int count, char **words) {
	char block[100] = "0123456789";
	unsigned before = own_memcpy + own_strlen;
	memcpy(block + 50, block, 11);
	if (strlen(block + 50) != 10 || own_memcpy + own_strlen != before + 2) return 1;
	/* strdup uses the program's own functions to measure and copy; memmove, memset and strchr are libc's. */
	before = own_strlen;
	char *copy = strdup(words[0]);
	if (!copy || own_strlen == before) return 2;
	free(copy);
	memmove(block + 1, block, 60);
	memset(block + 70, 'x', count + 8);
	if (strchr(block, '9') != block + 10 || block[71] != 'x') return 3;
	puts("ok");
	return 0;
}

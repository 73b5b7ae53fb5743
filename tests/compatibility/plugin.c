// A library that programs load: it hands blocks to the program, takes the program's blocks, and has its own storage in
// each thread.
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

static __thread char storage[600];
static __thread int counted;

char *make(void) { return strdup("made"); }
void take(char *block) { free(block); }
int count(void) {
	storage[0]++;
	return ++counted;
}
int alone(void) {
	void *volatile block = malloc(1000);
	block = realloc(block, 5000);
	free(block);
	return 3;
}

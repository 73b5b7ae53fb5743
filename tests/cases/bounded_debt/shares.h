// Threads that fill a share of memory each, with blocks of one size.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "../idle_memory/resident.h"
#include "../whole_ranges/filled.h"

enum { THREADS = 4, SIZES = 4 };
static const size_t sizes[SIZES] = {100, 3000, 20000, 300000};

// Returns `count` blocks of `size` bytes, all written, in a block of their own.
static char **all_filled(size_t size, size_t count) {
	char **blocks = malloc(count * sizeof *blocks);
	if (!blocks) exit(2);
	for (size_t i = 0; i < count; i++) blocks[i] = filled(size);
	return blocks;
}

static void empty(char **blocks, size_t count) {
	for (size_t i = 0; i < count; i++) free(blocks[i]);
	free(blocks);
}

// Runs the test in a process for each size: what one was seen to need again would be the next one's credit.
static int with_each_size(int (*goes_back)(size_t size)) {
	for (int i = 0; i < SIZES; i++) {
		int status;
		pid_t child = fork();
		if (child == 0) exit(!goes_back(sizes[i]));
		if (child < 0 || waitpid(child, &status, 0) != child || status) return 1;
	}
	puts("ok");
	return 0;
}

// Each fault happens in a child of its own, which must end with SIGABRT and report the fault on stderr.
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BLOCKS = 64 };
static char *volatile blocks[BLOCKS];

// Makes a heap that reuses blocks late and at random reuse the freed blocks.
static void churn(size_t size) {
	static char *volatile churned[400];
	for (int round = 0; round < 50; round++) {
		for (int i = 0; i < 400; i++) {
			churned[i] = malloc(size);
			churned[i][0] = 1;
		}
		for (int i = 0; i < 400; i++) free(churned[i]);
	}
}

static void take(size_t size) {
	for (int i = 0; i < BLOCKS; i++) blocks[i] = malloc(size);
}

static void free_twice(size_t size) {
	take(size);
	for (int i = 0; i < BLOCKS - 1; i++) free(blocks[i]);
	free(blocks[10]);
	churn(size);
}

static void write_past_the_end(size_t size) {
	take(size);
	for (int i = 0; i < BLOCKS; i += 2) free(blocks[i]);
	for (int i = 1; i < BLOCKS; i += 2) {
		char *end = blocks[i] + malloc_usable_size(blocks[i]);
		// The page behind may not be mapped: then the write itself would end the child, with SIGSEGV.
		if ((size_t)end % 4096) memset(end, 0x78, 16);
	}
	churn(size);
}

static void write_after_free(size_t size) {
	take(size);
	for (int i = 0; i < BLOCKS; i += 2) free(blocks[i]);
	for (int i = 0; i < BLOCKS; i += 2) memset(blocks[i], 0x78, 16);
	churn(size);
}

static void free_inside(size_t size) {
	take(size);
	free(blocks[5] + 16);
}

static void free_what_is_none(size_t size) {
	char *volatile on_the_stack = __builtin_alloca(size);
	free(on_the_stack);
}

static int check(const char *name, void (*fault)(size_t), size_t size) {
	int ends[2], status;
	char text[1000];
	if (pipe(ends)) return 1;
	pid_t child = fork();
	if (child == 0) {
		dup2(ends[1], 2);
		fault(size);
		_exit(0);
	}
	close(ends[1]);
	size_t length = 0;
	ssize_t more;
	while (length < sizeof text - 1 && (more = read(ends[0], text + length, sizeof text - 1 - length)) > 0) length += (size_t)more;
	text[length] = 0;
	close(ends[0]);
	if (child < 0 || waitpid(child, &status, 0) != child) return 1;
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && strstr(text, "allograft: ")) return 0;
	printf("%s, blocks of %zu bytes: status 0x%x, stderr: %s\n", name, size, status, text);
	return 1;
}

int main(void) {
	static const size_t small[] = {24, 100, 1000, 5000};
	int failures = 0;
	for (size_t i = 0; i < sizeof small / sizeof *small; i++) {
		failures += check("a double free", free_twice, small[i]);
		failures += check("a write past the end", write_past_the_end, small[i]);
		failures += check("a write after free", write_after_free, small[i]);
		failures += check("a free inside a block", free_inside, small[i]);
	}
	failures += check("a double free", free_twice, 300000);
	failures += check("a free inside a block", free_inside, 300000);
	failures += check("a free of what is no block", free_what_is_none, 100);
	puts(failures ? "not ok" : "ok");
}

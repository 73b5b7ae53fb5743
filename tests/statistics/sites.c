/* Allocates known amounts in functions with known names, and keeps or frees them. Arguments: how it runs.
 *   (none)        everything below, in four threads and a child, too
 *   signal        asks for a profile of itself in between, by SIGUSR2
 *   until PATH    allocates until there is such a file
 *   wait          begins when there is something to read, and does all of it in this thread */
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Behind it, the call before was no tail call. */
#define HERE() __asm__ volatile("" : : : "memory")
#define SITE __attribute__((noinline)) void

struct node {
	struct node *next;
	char text[184];
};
static struct node *nodes;
static void *large[24], *vector, *aligned[2000], *of_threads[4];

/* A probe of the program's own, as <sys/sdt.h> writes one. */
#if defined(__x86_64__) || defined(__aarch64__)
#define OWN_PROBE()                                                                                                    \
	__asm__ volatile("990: nop\n\t.pushsection .note.stapsdt,\"\",%note\n\t.balign 4\n\t.4byte 8, 992f - 991f, 3\n"         \
	                 "\t.asciz \"stapsdt\"\n991: .8byte 990b, 0, 0\n\t.asciz \"sites\"\n\t.asciz \"nodes\"\n\t.asciz \"\"\n"     \
	                 "992: .balign 4\n\t.popsection")
#else
#define OWN_PROBE()
#endif

/* 24,000,000 bytes in blocks of 192. */
SITE keep_nodes(void)
{
	OWN_PROBE();
	for (int i = 0; i < 125000; i++) {
		struct node *node = malloc(sizeof *node);
		node->next = nodes;
		nodes = node;
	}
	HERE();
}

/* 24,000,000 bytes in blocks of 1,000,000. */
SITE keep_large(void)
{
	for (int i = 0; i < 24; i++)
		large[i] = calloc(1, 1000000);
	HERE();
}

/* 20,000,000 bytes in one block, which grew there. */
SITE grow_vector(void)
{
	for (size_t size = 16; size < 20000000; size += size / 2 + 16)
		vector = realloc(vector, size);
	vector = realloc(vector, 20000000);
	HERE();
}

/* 8,000,000 bytes in blocks of 4,000, aligned to 128. */
SITE keep_aligned(void)
{
	for (int i = 0; i < 2000; i++) {
		if (posix_memalign(&aligned[i], 128, 4000))
			abort();
	}
	HERE();
}

/* Nothing; 60,000,000 bytes meanwhile. */
SITE churn(void)
{
	for (int i = 0; i < 300000; i++) {
		char *block = malloc(200);
		memset(block, i, 200);
		block = realloc(block, 100);
		__asm__ volatile("" : : "r"(block) : "memory");
		free(block);
	}
	HERE();
}

/* 4,000,000 bytes in blocks of 1,000, of which each fourth stays: 1,000,000. */
__attribute__((noinline)) void *keep_some(void *where)
{
	void **kept = calloc(1000, sizeof *kept);
	for (int i = 0; i < 4000; i++) {
		char *block = malloc(1000);
		if (i % 4)
			free(block);
		else
			kept[i / 4] = block;
	}
	HERE();
	*(void **)where = kept;
	return 0;
}

static SITE in_threads(void)
{
	pthread_t threads[4];
	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], 0, keep_some, &of_threads[i]);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], 0);
}

SITE keep_in_child(void)
{
	for (int i = 0; i < 30; i++)
		large[i % 24] = malloc(100000);
	HERE();
}

static SITE in_child(void)
{
	pid_t child = fork();
	if (!child) {
		keep_in_child();
		exit(0);
	}
	waitpid(child, 0, 0);
	printf("%d %d\n", (int)getpid(), (int)child);
	fflush(stdout);
}

int main(int count, char **words)
{
	const char *how = count > 1 ? words[1] : "";
	char byte;
	if (!strcmp(how, "wait") && read(0, &byte, 1) != 1)
		return 1;
	if (!strcmp(how, "until")) {
		while (access(words[2], F_OK)) {
			churn();
			usleep(200000);
		}
		return 0;
	}
	keep_nodes();
	if (!strcmp(how, "signal"))
		raise(SIGUSR2);
	keep_large();
	grow_vector();
	keep_aligned();
	churn();
	if (!strcmp(how, "wait"))
		return 0;
	in_threads();
	in_child();
	return 0;
}

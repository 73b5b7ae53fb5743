/* A program that a donor is merged into: thread-local storage with pointers in it, threads, fork with threads, and
 * functions of the family whose addresses are taken. It prints "ok" and where a library's `malloc` is. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int number = 7;
/* Exported if the linker is asked to: a library may refer to it by name. */
__thread int *own = &number;
static __thread char aligned[64] __attribute__((aligned(64))) = "hello";
static __thread int zero;
/* In a program at fixed addresses this is the address of a stub, for the whole process. */
static void (*const release)(void *) = free;

static int stop;

static void *run(void *endless)
{
	do {
		for (int i = 0; i < 500; i++) {
			char *block = malloc((size_t)i + 1);
			memset(block, 1, (size_t)i + 1);
			release(realloc(block, 2 * (size_t)i + 1));
		}
		if (own != &number || strcmp(aligned, "hello") || zero)
			abort();
	} while (endless && !__atomic_load_n(&stop, __ATOMIC_RELAXED));
	return strdup("x");
}

int main(int count, char **words)
{
	pthread_t threads[3];
	for (int i = 0; i < 3; i++)
		if (pthread_create(&threads[i], 0, run, &stop))
			return 1;
	for (int i = 0; i < 20; i++) {
		int status = -1;
		pid_t child = fork();
		if (!child) {
			free(run(0));
			_exit(0);
		}
		if (waitpid(child, &status, 0) != child || status)
			return 2;
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	for (int i = 0; i < 3; i++) {
		void *block;
		if (pthread_join(threads[i], &block))
			return 3;
		free(block);
	}
	Dl_info found;
	if (!dladdr((void *)(size_t)malloc, &found))
		return 4;
	printf("ok %s\n", strrchr(found.dli_fname, '/') + 1);
	if (count > 1) {
		void *library = dlopen(words[1], RTLD_NOW);
		int (*check)(void *, void (*)(void *)) = library ? (int (*)(void *, void (*)(void *)))dlsym(library, "check") : 0;
		if (!check)
			return 5;
		return check(malloc(10), free) ? 0 : 6;
	}
	return 0;
}

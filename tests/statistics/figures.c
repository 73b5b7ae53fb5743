// Makes a number of calls that the test knows. Then a child makes some of its own and ends with exit.
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

extern void *reallocarray(void *, size_t, size_t), *pvalloc(size_t);
extern int malloc_trim(size_t), mallopt(int, int);

static void *volatile kept[64];

static void *work(void *argument) {
	for (int i = 0; i < 1000; i++) {
		void *volatile block = malloc(100);
		free(block);
	}
	return argument;
}

int main(void) {
	pthread_t thread;
	void *aligned = 0;
	for (int i = 0; i < 10; i++) kept[i] = malloc(100000);
	for (int i = 0; i < 4; i++) free(kept[i]);
	free(0);
	kept[10] = calloc(3, 50);
	kept[11] = realloc(0, 30);
	kept[11] = realloc(kept[11], 3000);
	kept[12] = aligned_alloc(64, 200);
	kept[13] = memalign(8, 40);
	if (posix_memalign(&aligned, 4096, 40)) return 1;
	if (!posix_memalign(&aligned, 3, 40)) return 1;
	kept[14] = valloc(1);
	kept[15] = pvalloc(1);
	kept[16] = reallocarray(0, 2, 8);
	if (malloc_usable_size(kept[16]) < 16) return 1;
	malloc_trim(0);
	mallopt(-1, 1);
	pthread_create(&thread, 0, work, 0);
	pthread_join(thread, 0);
	pid_t child = fork();
	if (child == 0) {
		for (int i = 0; i < 5; i++) kept[20 + i] = malloc(50);
		free(kept[4]);
		exit(0);
	}
	int status;
	if (waitpid(child, &status, 0) != child || status) return 1;
	printf("%d %d\n", (int)getpid(), (int)child);
}

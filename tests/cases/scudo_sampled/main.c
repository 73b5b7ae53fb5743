#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 4, ROUNDS = 2000, KEPT = 32 };

static void *work(void *argument) {
	char *kept[KEPT] = {0};
	size_t lengths[KEPT] = {0};
	unsigned number = (unsigned)(uintptr_t)argument;
	for (int i = 0; i < ROUNDS; i++) {
		number = number * 1103515245 + 12345;
		size_t at = number >> 16 & (KEPT - 1), length = 1 + (number >> 8) % 6000;
		for (size_t byte = 0; byte < lengths[at]; byte++)
			if (kept[at][byte] != (char)at) return "a block has changed";
		if (i % 3 == 0) {
			size_t before = lengths[at] < length ? lengths[at] : length;
			kept[at] = realloc(kept[at], length);
			for (size_t byte = 0; byte < before; byte++)
				if (kept[at][byte] != (char)at) return "a moved block has changed";
		} else {
			free(kept[at]);
			kept[at] = i % 3 == 1 ? calloc(1, length) : aligned_alloc(64, length);
			if (i % 3 == 1)
				for (size_t byte = 0; byte < length; byte++)
					if (kept[at][byte]) return "calloc() gave no zeros";
			if (i % 3 == 2 && (uintptr_t)kept[at] % 64) return "a block is not aligned";
		}
		if ((uintptr_t)kept[at] % 16 || malloc_usable_size(kept[at]) < length) return "a block is too small";
		memset(kept[at], (int)at, length);
		lengths[at] = length;
	}
	for (int i = 0; i < KEPT; i++) free(kept[i]);
	return 0;
}

int main(void) {
	pthread_t threads[THREADS];
	for (uintptr_t i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], 0, work, (void *)(i + 1))) return 1;
	for (int i = 0; i < 20; i++) {
		pid_t child = fork();
		if (child == 0) _exit(work((void *)99) ? 3 : 0);
		int status;
		if (waitpid(child, &status, 0) != child || status) return 2;
	}
	for (int i = 0; i < THREADS; i++) {
		void *trouble;
		pthread_join(threads[i], &trouble);
		if (trouble) {
			puts(trouble);
			return 4;
		}
	}
	puts("ok");
	return 0;
}

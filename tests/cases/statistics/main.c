#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static void *work(void *argument) {
	for (int i = 0; i < 1000; i++) {
		void *volatile block = malloc(100);
		free(block);
	}
	return argument;
}

int main(void) {
	pthread_t threads[2];
	work(0);
	for (int i = 0; i < 2; i++) pthread_create(&threads[i], 0, work, 0);
	for (int i = 0; i < 2; i++) pthread_join(threads[i], 0);
	puts("ok");
}

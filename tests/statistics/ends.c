// Ends in the way that its argument names, while other threads are in the allocator.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *work(void *argument) {
	for (;;) {
		void *volatile block = malloc(100 + (size_t)rand() % 5000);
		free(block);
	}
	return argument;
}

static void *leave(void *argument) {
	exit(0);
	return argument;
}

static void quick(void) {
	void *volatile block = malloc(100);
	free(block);
}

int main(int count, char **arguments) {
	pthread_t thread;
	const char *how = count > 1 ? arguments[1] : "exit";
	for (int i = 0; i < 3; i++) pthread_create(&thread, 0, work, 0);
	usleep(2000);
	if (!strcmp(how, "_exit")) _exit(0);
	if (!strcmp(how, "quick_exit")) at_quick_exit(quick), quick_exit(0);
	if (!strcmp(how, "abort")) abort();
	if (!strcmp(how, "kill")) kill(getpid(), SIGKILL);
	if (!strcmp(how, "thread")) {
		pthread_attr_t attributes;
		pthread_attr_init(&attributes);
		pthread_attr_setstacksize(&attributes, 8192);
		pthread_create(&thread, &attributes, leave, 0);
		pthread_join(thread, 0);
	}
	return 0;
}

// Runs until its standard input ends: idle, or with calls of the allocator, or with a handler of its own for SIGUSR2.
// Then it ends in the way that the second argument names.
#define _GNU_SOURCE
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void say(const char *text) {
	if (write(1, text, strlen(text)) < 0) _exit(2);
}

static void handle(int number) {
	say(number == SIGUSR2 ? "mine\n" : "another\n");
}

int main(int count, char **arguments) {
	if (count < 3) return 3;
	int is_busy = !strcmp(arguments[1], "busy");
	void *volatile kept = malloc(1000000);
	if (!strcmp(arguments[1], "own")) signal(SIGUSR2, handle);
	say("ready\n");
	struct pollfd input = {.fd = 0, .events = POLLIN};
	while (poll(&input, 1, is_busy ? 1 : -1) <= 0) {
		void *volatile block = is_busy ? malloc(100) : 0;
		free(block);
	}
	if (!strcmp(arguments[2], "_exit")) _exit(0);
	if (!strcmp(arguments[2], "exit")) exit(0);
	return kept == 0;
}

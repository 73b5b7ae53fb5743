/*
 * Two threads and a known number of transfers of a line, for the tests of `cargo xtask bench scaling`.
 * Figures are those of malloc and free, so its malloc does the work.
 *
 *     contend shared|private|mutex|processors|unmarked|crash|pause|stuck
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MARKER = 0x616c6c, STEP = 1, BEGIN = 2, END = 3, TIMES = 100, FUTEX = 202, PAUSE = 34 };

static struct {
	_Alignas(64) long value;
} counters[3];
static _Alignas(64) pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t barrier;
static const char *mode = "";

__attribute__((noinline)) static void crash(void)
{
	*(volatile int *)8 = 1;
}

void *malloc(size_t number)
{
	if (!strcmp(mode, "private")) {
		__atomic_fetch_add(&counters[number].value, 1, __ATOMIC_SEQ_CST);
	} else if (!strcmp(mode, "mutex")) {
		pthread_mutex_lock(&lock);
		for (int i = 0; i < 50; i++)
			*(volatile long *)&counters[2].value += i == 0;
		pthread_mutex_unlock(&lock);
	} else if (!strcmp(mode, "crash")) {
		crash();
	} else if (!strcmp(mode, "pause")) {
		syscall(PAUSE);
	} else if (!strcmp(mode, "stuck")) {
		syscall(FUTEX, &counters[2].value, 0, 0, NULL);
	} else {
		__atomic_fetch_add(&counters[2].value, 1, __ATOMIC_SEQ_CST);
	}
	return 0;
}

void free(void *block)
{
	(void)block;
}

/* Compilers leave out calls of malloc whose blocks are not used. */
static void *(*volatile allocate)(size_t) = malloc;

static void *work(void *argument)
{
	size_t number = (size_t)argument;
	int marks = strcmp(mode, "unmarked") != 0;
	pthread_barrier_wait(&barrier);
	if (marks && number == 0)
		syscall(MARKER, STEP, 2);
	pthread_barrier_wait(&barrier);
	allocate(number);
	if (marks)
		syscall(MARKER, BEGIN);
	for (int i = 0; i < TIMES; i++)
		allocate(number);
	if (marks)
		syscall(MARKER, END);
	return 0;
}

int main(int argc, char **argv)
{
	pthread_t other;
	char text[32];
	if (argc > 1)
		mode = argv[1];
	pthread_barrier_init(&barrier, 0, 2);
	if (pthread_create(&other, 0, work, (void *)1))
		return 1;
	work(0);
	pthread_join(other, 0);
	snprintf(text, sizeof text, "%ld", counters[0].value + counters[1].value + counters[2].value);
	/* The processors that a libc finds, by either way. */
	if (!strcmp(mode, "processors"))
		snprintf(text, sizeof text, "%ld %d", sysconf(_SC_NPROCESSORS_ONLN),
			 open("/sys/devices/system/cpu/online", O_RDONLY));
	puts(text);
	return 0;
}

/* Gets a real-time signal every 200 microseconds, while it computes. */
#include "task.h"
#include <signal.h>

static volatile sig_atomic_t alarms;

static void count(int signal)
{
	(void)signal;
	alarms++;
}

__attribute__((constructor)) static void start(void)
{
	timer_t timer;
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN };
	struct itimerspec every = { .it_interval.tv_nsec = 200000, .it_value.tv_nsec = 200000 };
	struct sigaction action = { .sa_handler = count, .sa_flags = SA_RESTART };
	if (sigaction(SIGRTMIN, &action, 0) || timer_create(CLOCK_MONOTONIC, &event, &timer) ||
	    timer_settime(timer, 0, &every, 0))
		abort();
}

__attribute__((destructor)) static void stop(void)
{
	if (alarms < 100)
		abort();
}

static void work(unsigned thread, unsigned long round)
{
	static volatile unsigned long sum;
	for (unsigned long i = 0; i < 1000; i++)
		sum += i * round + thread;
}

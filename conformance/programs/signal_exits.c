// A signal interrupts malloc anywhere, and its handler ends the process: no way to end waits for the allocator.
// At most 300 s on a slow machine.
#include "check.h"

#include <pthread.h>
#include <setjmp.h>
#include <sys/prctl.h>
#include <sys/time.h>

// musl's exit, quick_exit and abort take none of the allocator's locks. fork() does, so it is not tried here.
static const char *const ways[] = {"_exit",      "exit", "quick_exit", "abort",
                                   "siglongjmp", "another thread's exit", "SIGKILL"};
enum { BY_EXIT_NOW, BY_EXIT, BY_QUICK_EXIT, BY_ABORT, BY_JUMP, BY_OTHER, BY_KILL, WAYS, CODE = 33 };

static atomic_int way, asked;
static sigjmp_buf out;
static int ran_at_exit;

static void handle(int signal_number) {
	(void)signal_number;
	switch (way) {
	case BY_EXIT_NOW: _exit(CODE);
	case BY_EXIT: exit(CODE);
	case BY_QUICK_EXIT: quick_exit(CODE);
	case BY_ABORT: abort();
	case BY_JUMP: siglongjmp(out, 1);
	case BY_KILL: raise(SIGKILL); break;
	case BY_OTHER: asked = 1;
	}
	// The interrupted thread stays inside malloc until the other one has ended the process.
	for (;;) pause();
}

static void at_exit(void) { ran_at_exit++; }
__attribute__((destructor)) static void destruct(void) { ran_at_exit++; }

static void churn(uint64_t state) {
	unsigned char *blocks[64] = {0};
	for (;;) {
		size_t i = next_random(&state) % LENGTH(blocks);
		size_t size = random_between(&state, 1, next_random(&state) % 20 ? 2000 : 400000);
		switch (next_random(&state) % 4) {
		case 0: blocks[i] = realloc(blocks[i], size); break;
		case 1: free(blocks[i]), blocks[i] = aligned_alloc(1024, size); break;
		case 2: free(blocks[i]), blocks[i] = calloc(1, size); break;
		default: free(blocks[i]), blocks[i] = malloc(size);
		}
		CHECK(blocks[i]);
		blocks[i][0] = 1;
	}
}

static void *work(void *argument) {
	sigset_t all;
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, 0);
	churn((uintptr_t)argument);
	return 0;
}

static void *end_when_asked(void *unused) {
	while (!asked) usleep(50);
	exit(CODE);
	return unused;
}

static void child(int chosen, int threads, long number) {
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	pthread_t thread;
	sigset_t set, old;
	sigfillset(&set);
	pthread_sigmask(SIG_BLOCK, &set, &old);
	way = chosen;
	for (long i = 0; i < threads; i++) CHECK(pthread_create(&thread, 0, work, (void *)(number * 10 + i)) == 0);
	if (chosen == BY_OTHER) CHECK(pthread_create(&thread, 0, end_when_asked, 0) == 0);
	CHECK(atexit(at_exit) == 0 && at_quick_exit(at_exit) == 0);
	struct sigaction action = {.sa_handler = handle};
	CHECK(sigaction(SIGALRM, &action, 0) == 0);
	if (sigsetjmp(out, 1)) {
		if (ran_at_exit) _exit(1);
		_exit(CODE);
	}
	pthread_sigmask(SIG_SETMASK, &old, 0);
	struct itimerval timer = {.it_value = {0, 1 + number * 37 % 3000}};
	CHECK(setitimer(ITIMER_REAL, &timer, 0) == 0);
	churn((uint64_t)number);
}

int main(void) {
	check_begin();
	for (long round = 0; round < scaled(150); round++)
		for (int chosen = 0; chosen < WAYS; chosen++) {
			int threads = round % 2 ? 2 : 0;
			pid_t process = fork();
			CHECK(process >= 0);
			if (process == 0) child(chosen, threads, round * WAYS + chosen);
			int status = await_child(process, patience());
			const char *beside = threads ? ", beside threads that allocate" : "";
			CHECK_THAT(status != -1, "hang: %s from a handler%s", ways[chosen], beside);
			int signal_number = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
			int expected = chosen == BY_ABORT ? SIGABRT : chosen == BY_KILL ? SIGKILL : 0;
			CHECK_THAT(signal_number == expected && (expected || WEXITSTATUS(status) == CODE),
			           "%s from a handler%s: signal %d, code %d", ways[chosen], beside, signal_number,
			           WEXITSTATUS(status));
		}
	return check_done();
}

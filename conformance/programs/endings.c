// Every way to end a program while threads allocate, also with ALLOGRAFT_STATS: the status is right, a report is whole.
// At most 120 s on a slow machine.
#include "check.h"

#include <pthread.h>

enum { THREADS = 3, CODE = 41 };

static const char *const ways[] = {"return", "exit", "quick_exit", "_exit", "_Exit", "abort",
                                   "thread", "last-thread", "at-exit", "trap", "kill"};

static atomic_int running;
static char *kept;
static pthread_t main_thread;

static void *work(void *argument) {
	uint64_t state = (uintptr_t)argument + 1;
	unsigned char *blocks[30] = {0};
	atomic_fetch_add(&running, 1);
	for (;;) {
		size_t i = next_random(&state) % LENGTH(blocks);
		free(blocks[i]);
		blocks[i] = malloc(random_between(&state, 1, next_random(&state) % 20 ? 1000 : 300000));
		CHECK(blocks[i]);
		blocks[i][0] = 1;
	}
	return 0;
}

static void *exit_from_thread(void *unused) {
	(void)unused;
	exit(CODE);
}

// main's thread has ended, and no other threads allocate in this case. The process ends with this thread, with 0.
static void *end_last(void *unused) {
	CHECK(pthread_join(main_thread, 0) == 0);
	free(malloc(5000));
	return unused;
}

static void use_late(void) {
	CHECK(!strcmp(kept, "kept"));
	kept = realloc(kept, 100000);
	CHECK(kept && !strcmp(kept, "kept"));
	for (size_t size = 1; size < 1 << 20; size = size * 5 + 3) {
		char *block = calloc(1, size);
		CHECK(block && !block[size - 1]);
		free(block);
	}
}

static void exit_at_once(void) { _exit(CODE); }
__attribute__((destructor)) static void destruct(void) { if (kept) use_late(); }

// Runs in the re-executed program: ends it in the way that `name` says.
static int end(const char *name) {
	pthread_t threads[THREADS];
	kept = strdup("kept");
	CHECK(kept && atexit(use_late) == 0 && at_quick_exit(use_late) == 0);
	main_thread = pthread_self();
	if (!strcmp(name, "last-thread")) {
		CHECK(pthread_create(&threads[0], 0, end_last, 0) == 0);
		pthread_exit(0);
	}
	for (size_t i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], 0, work, (void *)i) == 0);
	while (running < THREADS) sched_yield();
	if (!strcmp(name, "return")) return CODE;
	if (!strcmp(name, "exit")) exit(CODE);
	if (!strcmp(name, "quick_exit")) quick_exit(CODE);
	if (!strcmp(name, "_exit")) _exit(CODE);
	if (!strcmp(name, "_Exit")) _Exit(CODE);
	if (!strcmp(name, "abort")) abort();
	if (!strcmp(name, "trap")) __builtin_trap();
	if (!strcmp(name, "kill")) raise(SIGKILL);
	if (!strcmp(name, "thread")) {
		CHECK(pthread_create(&threads[0], 0, exit_from_thread, 0) == 0);
		for (;;) pause();
	}
	if (!strcmp(name, "at-exit")) {
		CHECK(atexit(exit_at_once) == 0);
		exit(1);
	}
	FAIL("no way to end is called %s", name);
}

// The end of a process, and its output on stderr.
struct outcome {
	int status;
	size_t length;
	char said[20000];
};

static int run(const char *name, struct outcome *outcome) {
	int pipes[2];
	CHECK(pipe2(pipes, O_CLOEXEC) == 0);
	pid_t process = fork();
	CHECK(process >= 0);
	if (process == 0) {
		if (dup2(pipes[1], 2) != 2) _exit(1);
		execl("/proc/self/exe", "endings", name, (char *)0);
		_exit(126);
	}
	close(pipes[1]);
	outcome->length = 0;
	size_t room = sizeof outcome->said - 1;
	for (ssize_t got; (got = read(pipes[0], outcome->said + outcome->length, room - outcome->length)) > 0;)
		outcome->length += (size_t)got;
	outcome->said[outcome->length] = 0;
	close(pipes[0]);
	outcome->status = await_child(process, patience());
	CHECK_THAT(outcome->status != -1, "%s: hang", name);
	return !(WIFEXITED(outcome->status) && WEXITSTATUS(outcome->status) == 126);
}

int main(int argc, char **argv) {
	check_begin();
	if (argc > 1) return end(argv[1]);
	static struct outcome outcome;
	size_t reported = 0;
	for (int with = 0; with < 2; with++) {
		if (with) CHECK(setenv("ALLOGRAFT_STATS", "1", 1) == 0);
		else CHECK(unsetenv("ALLOGRAFT_STATS") == 0);
		for (long round = 0; round < scaled(8); round++)
			for (size_t i = 0; i < LENGTH(ways); i++) {
				if (!run(ways[i], &outcome) || is_emulated()) {
					NOTE("the system cannot execute this program by itself (an emulator?): nothing is tried\n");
					return check_done();
				}
				const char *name = ways[i];
				int killed = !strcmp(name, "abort") ? SIGABRT : !strcmp(name, "kill") ? SIGKILL : 0;
				int signal_number = WIFSIGNALED(outcome.status) ? WTERMSIG(outcome.status) : 0;
				// The signal depends on the architecture.
				if (!strcmp(name, "trap")) killed = signal_number ? signal_number : -1;
				int code = strcmp(name, "last-thread") ? CODE : 0;
				CHECK_THAT(signal_number == killed && (killed || WEXITSTATUS(outcome.status) == code),
				           "%s%s: signal %d, code %d; it said: %s", name, with ? " with statistics" : "", signal_number,
				           WEXITSTATUS(outcome.status), outcome.said);
				// The output must be whole lines of a report, and none without the variable.
				CHECK_THAT(with || !outcome.length, "%s: the allocator printed: %s", name, outcome.said);
				for (char *line = outcome.said; *line;) {
					char *rest = strchr(line, '\n');
					CHECK_THAT(rest && !strncmp(line, "allograft: ", 11), "%s: this is no whole line of a report: %s", name, line);
					line = rest + 1;
				}
				int orderly = !strcmp(name, "return") || !strcmp(name, "exit") || strstr(name, "thread");
				if (i == 0) reported = outcome.length;
				if (orderly)
					CHECK_THAT(!outcome.length == !reported, "%s: %s report, unlike return", name, reported ? "no" : "a");
				if (killed) CHECK_THAT(!outcome.length, "%s: a report out of a process that was killed", name);
			}
	}
	return check_done();
}

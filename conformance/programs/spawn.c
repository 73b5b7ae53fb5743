// New programs out of a process whose threads allocate: vfork with _exit and exec, posix_spawn with file actions.
// At most 120 s on a slow machine.
#include "check.h"

#include <pthread.h>
#include <spawn.h>

enum { THREADS = 3, SLOTS = 40, ENDED = 23, FAILED_EXEC = 24 };

extern char **environ;
pid_t vfork(void) __attribute__((returns_twice));

static atomic_int stop;
static atomic_long steps;

static void *work(void *argument) {
	uint64_t state = (uintptr_t)argument + 1;
	unsigned char *blocks[SLOTS] = {0};
	size_t sizes[SLOTS] = {0};
	while (!stop) {
		size_t i = next_random(&state) % SLOTS;
		CHECK_PATTERN(blocks[i], sizes[i], i);
		sizes[i] = random_between(&state, 0, next_random(&state) % 30 ? 400 : 200000);
		free(blocks[i]);
		blocks[i] = malloc(sizes[i]);
		CHECK(blocks[i]);
		pattern_fill(blocks[i], 0, sizes[i] = sizes[i] < 64 ? sizes[i] : 64, i);
		atomic_fetch_add(&steps, 1);
	}
	for (size_t i = 0; i < SLOTS; i++) free(blocks[i]);
	return 0;
}

// Whether the process exited with `code`. Under an emulator that cannot execute this program, the code is another
// one.
static int ended_with(pid_t process, int code, const char *what) {
	int status = await_child(process, patience());
	CHECK_THAT(status != -1, "%s: hang: the child still ran after %ld s", what, patience());
	CHECK_THAT(!WIFSIGNALED(status), "%s: the child died of signal %d", what, WTERMSIG(status));
	return WEXITSTATUS(status) == code;
}

static pid_t vfork_exec(const char *path, char **arguments) {
	pid_t process = vfork();
	if (process == 0) {
		execve(path, arguments, environ);
		_exit(FAILED_EXEC);
	}
	return process;
}

int main(int argc, char **argv) {
	if (argc > 1) {
		// In the spawned program, the allocator starts anew.
		char *text = strdup(argv[1]);
		if (!text || strcmp(text, "spawned")) return 1;
		free(text);
		return ENDED;
	}
	check_begin();
	char *self[] = {argv[0], "spawned", 0};
	pid_t process;
	int can_spawn = access("/proc/self/exe", X_OK) == 0;
	if (can_spawn && posix_spawn(&process, "/proc/self/exe", 0, 0, self, environ)) can_spawn = 0;
	else if (can_spawn) can_spawn = ended_with(process, ENDED, "a first program");
	if (!can_spawn) NOTE("the system cannot execute this program by itself (an emulator?): only vfork is tried\n");

	pthread_t threads[THREADS];
	for (size_t i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], 0, work, (void *)i) == 0);
	uint64_t state = 8;
	for (long i = 0; i < scaled(250); i++) {
		char *kept = malloc(random_between(&state, 1, 2000));
		CHECK(kept);
		kept[0] = 9;

		process = vfork();
		CHECK(process >= 0);
		if (process == 0) _exit(ENDED);
		CHECK(ended_with(process, ENDED, "vfork and _exit"));

		process = vfork_exec("/nowhere/at/all", self);
		CHECK(process > 0 && ended_with(process, FAILED_EXEC, "vfork and an exec that fails"));
		CHECK(posix_spawn(&process, "/nowhere/at/all", 0, 0, self, environ) == ENOENT);

		if (can_spawn) {
			process = vfork_exec("/proc/self/exe", self);
			CHECK(process > 0 && ended_with(process, ENDED, "vfork and exec"));

			// File actions are libc's own blocks, which the child reads.
			posix_spawn_file_actions_t actions;
			posix_spawnattr_t attributes;
			CHECK(posix_spawn_file_actions_init(&actions) == 0 && posix_spawnattr_init(&attributes) == 0);
			for (int j = 0; j < 10; j++) {
				CHECK(posix_spawn_file_actions_addopen(&actions, 100 + j, "/dev/null", O_RDONLY, 0) == 0);
				CHECK(posix_spawn_file_actions_adddup2(&actions, 2, 120 + j) == 0);
				CHECK(posix_spawn_file_actions_addclose(&actions, 100 + j) == 0);
			}
			CHECK(posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP) == 0);
			CHECK(posix_spawn(&process, "/proc/self/exe", &actions, &attributes, self, environ) == 0);
			CHECK(ended_with(process, ENDED, "posix_spawn"));
			CHECK(posix_spawn_file_actions_destroy(&actions) == 0 && posix_spawnattr_destroy(&attributes) == 0);
		}
		CHECK(kept[0] == 9);
		free(kept);
	}
	// The threads went on meanwhile, and still do.
	long before = steps;
	struct timespec pause = {0, 1000000};
	for (long i = 0; i < 1000 * patience() && steps - before < 100; i++) nanosleep(&pause, 0);
	CHECK_THAT(steps - before >= 100, "hang: the threads stand still");
	stop = 1;
	for (size_t i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], 0) == 0);
	return check_done();
}

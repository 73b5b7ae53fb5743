// A seccomp filter kills the process at any system call that an allocator has no business with.
// With ALLOGRAFT_FIGURES it tells which calls there are: at the start, in the family, at a thread's end, around fork.
// At most 120 s on a slow machine.
#include "check.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

enum { THREADS = 3, SLOTS = 60, DONE = 9, CALLS = 512, MARK = 100000, TASKS = 64 };

#define CALL(name) {SYS_##name, #name}
// The calls that a donor may make once the program runs; docs/system-calls.md lists them by donor.
static const struct call {
	int number;
	const char *name;
} allowed[] = {
	CALL(munmap), CALL(mremap), CALL(madvise), CALL(mprotect), CALL(brk), CALL(futex), CALL(sched_yield), CALL(write),
	CALL(nanosleep), CALL(getrandom), CALL(getcpu),
	CALL(rt_sigaction), CALL(rt_sigprocmask), CALL(rt_sigreturn), CALL(clone), CALL(exit), CALL(exit_group),
#ifdef SYS_mmap2
	CALL(mmap2),
#else
	CALL(mmap),
#endif
#ifdef SYS_clock_gettime
	CALL(clock_gettime), CALL(clock_nanosleep),
#else
	CALL(clock_gettime64), CALL(clock_nanosleep_time64),
#endif
};

// Other calls that have names here; all others are printed by number.
static const struct call named[] = {
	CALL(execve), CALL(openat), CALL(read), CALL(close), CALL(readlinkat), CALL(faccessat), CALL(set_tid_address),
	CALL(gettid), CALL(getpid), CALL(tkill), CALL(ioctl), CALL(writev), CALL(wait4), CALL(sysinfo),
	CALL(sched_getaffinity), CALL(prctl),
	CALL(prlimit64), CALL(membarrier), CALL(fcntl), CALL(lseek),
#ifdef SYS_open
	CALL(open), CALL(readlink), CALL(access), CALL(fork), CALL(poll),
#endif
#ifdef SYS_arch_prctl
	CALL(arch_prctl),
#endif
};

static atomic_int telling; // whether a supervisor records the places of calls

enum place { AT_START, IN_FAMILY, AT_THREAD_END, AROUND_FORK, ELSEWHERE, PLACES };
static const char *const places[] = {"at the start", "in the family", "at a thread's end", "around fork"};

// The supervisor recognises these calls, which do not exist on any system.
static void be(enum place place) {
	if (telling) syscall(MARK + (int)place);
}

static void *work(void *argument) {
	uint64_t state = (uintptr_t)argument + 1;
	char *blocks[SLOTS] = {0};
	be(IN_FAMILY);
	for (long step = 0; step < scaled(6000); step++) {
		size_t i = next_random(&state) % SLOTS, kind = next_random(&state) % 40;
		size_t size = random_between(&state, 0, kind < 30 ? 2000 : kind < 39 ? 100000 : 6 << 20);
		switch (next_random(&state) % 6) {
		case 0: blocks[i] = realloc(blocks[i], size + 1); break;
		case 1: free(blocks[i]), blocks[i] = calloc(1, size); break;
		case 2: free(blocks[i]), blocks[i] = aligned_alloc((size_t)16 << next_random(&state) % 10, size); break;
		default: free(blocks[i]), blocks[i] = malloc(size);
		}
		CHECK(blocks[i]);
		if (malloc_usable_size(blocks[i])) blocks[i][0] = 1;
	}
	CHECK(!malloc(PTRDIFF_MAX) && errno == ENOMEM);
	for (size_t i = 0; i < SLOTS; i++) free(blocks[i]);
	be(AT_THREAD_END);
	return 0;
}

static void exercise(void) {
	pthread_t threads[THREADS];
	for (int round = 0; round < 3; round++) {
		for (size_t i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], 0, work, (void *)i) == 0);
		for (size_t i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], 0) == 0);
	}
	work(0);
	be(ELSEWHERE);
}

// Installs a filter. Every call that is not on the list gets `otherwise`.
static int filter(unsigned otherwise, unsigned flags, const struct call *calls, size_t count) {
	struct sock_filter code[LENGTH(allowed) + 4];
	unsigned short length = 0;
	code[length++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
	for (size_t i = 0; i < count; i++)
		code[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)calls[i].number,
		                                              (unsigned char)(count - i), 0);
	code[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, otherwise);
	code[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	struct sock_fprog program = {length, code};
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return -1;
	return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
}

static const char *name_of(int number, char *room) {
	for (size_t i = 0; i < LENGTH(allowed); i++) if (allowed[i].number == number) return allowed[i].name;
	for (size_t i = 0; i < LENGTH(named); i++) if (named[i].number == number) return named[i].name;
	snprintf(room, 12, "%d", number);
	return room;
}

static int is_allowed(int number) {
	for (size_t i = 0; i < LENGTH(allowed); i++) if (allowed[i].number == number) return 1;
	return 0;
}

extern char **environ;
static int listener; // the child shares its descriptors until its exec

static int start_told(void *argument) {
	char *arguments[] = {argument, "told", 0};
	// The parent knows the number already, and waits for a first call.
	int got = filter(SECCOMP_RET_USER_NOTIF, SECCOMP_FILTER_FLAG_NEW_LISTENER, 0, 0);
	if (got != listener) syscall(SYS_exit, 1);
	execve("/proc/self/exe", arguments, environ);
	syscall(SYS_exit, 1);
	return 1;
}

// Runs this program again, and records each call of its threads by place.
static int tell(char *self, unsigned char seen[PLACES][CALLS]) {
	static char stack[64 << 10] __attribute__((aligned(16)));
	struct { pid_t task; enum place place; } tasks[TASKS] = {0};
	// The listener will get the lowest free number.
	listener = dup(2);
	CHECK(listener >= 0 && close(listener) == 0);
	pid_t process = clone(start_told, stack + sizeof stack, CLONE_FILES | SIGCHLD, self);
	if (process < 0) return 0;
	int status = 0;
	for (;;) {
		struct pollfd poll_listener = {.fd = listener, .events = POLLIN};
		pid_t ended = waitpid(process, &status, WNOHANG);
		if (ended == process) break;
		if (poll(&poll_listener, 1, 20) <= 0 || !(poll_listener.revents & POLLIN)) {
			if (poll_listener.revents) usleep(1000);
			continue;
		}
		struct seccomp_notif call = {0};
		if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &call)) continue;
		size_t task = 0;
		while (task < TASKS - 1 && tasks[task].task && tasks[task].task != (pid_t)call.pid) task++;
		if (!tasks[task].task) {
			tasks[task].task = (pid_t)call.pid;
			tasks[task].place = (pid_t)call.pid == process ? AT_START : ELSEWHERE;
		}
		if (call.data.nr >= MARK && call.data.nr < MARK + PLACES) tasks[task].place = (enum place)(call.data.nr - MARK);
		else if (call.data.nr >= 0 && call.data.nr < CALLS) seen[tasks[task].place][call.data.nr] = 1;
		struct seccomp_notif_resp answer = {.id = call.id, .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE};
		ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
	}
	close(listener);
	return WIFEXITED(status) && WEXITSTATUS(status) == DONE;
}

static void told(void) {
	telling = 1;
	be(ELSEWHERE);
	exercise();
	be(AROUND_FORK);
	pid_t process = fork();
	if (process == 0) {
		be(AROUND_FORK);
		free(malloc(100));
		_exit(DONE);
	}
	be(ELSEWHERE);
	expect_exit(process, DONE, "a child");
	_exit(DONE);
}

// Prints one line for each place, in the order of the system's numbers.
static void print_calls(unsigned char seen[PLACES][CALLS]) {
	for (int place = 0; place < ELSEWHERE; place++) {
		char line[500];
		size_t length = 0;
		for (int number = 0; number < CALLS; number++) {
			char room[12];
			if (!seen[place][number] || length > sizeof line - 40) continue;
			length += (size_t)snprintf(line + length, sizeof line - length, " %s", name_of(number, room));
		}
		line[length] = 0;
		NOTE("calls %s:%s\n", places[place], line);
	}
}

int main(int argc, char **argv) {
	static unsigned char seen[PLACES][CALLS];
	if (argc > 1) told();
	check_begin();
	if (is_emulated()) {
		NOTE("no seccomp here (an emulator?): nothing is tried\n");
		return check_done();
	}
	pid_t process = fork();
	CHECK(process >= 0);
	if (process == 0) {
		if (filter(SECCOMP_RET_KILL_PROCESS, 0, allowed, LENGTH(allowed))) FAIL("no filter: errno %d", errno);
		exercise();
		exit(DONE);
	}
	int status = await_child(process, patience());
	CHECK_THAT(status != -1, "hang: the child still ran after %ld s", patience());
	int killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS;
	if (killed || getenv("ALLOGRAFT_FIGURES")) {
		if (!tell(argv[0], seen)) NOTE("which calls there are cannot be told here\n");
		else print_calls(seen);
	}
	for (int number = 0; killed && number < CALLS; number++) {
		char room[12];
		if (seen[IN_FAMILY][number] && !is_allowed(number)) FAIL("the allocator calls %s", name_of(number, room));
	}
	CHECK_THAT(!killed, "the system killed the process for a system call");
	CHECK_THAT(!WIFSIGNALED(status), "the child died of signal %d", WTERMSIG(status));
	CHECK(WEXITSTATUS(status) == DONE);
	return check_done();
}

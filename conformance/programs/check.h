// What every program shares: CHECK, a watchdog, the scale of loops, deterministic numbers, patterns in blocks.
// Include it first: it chooses the feature level.
#ifndef CHECK_H
#define CHECK_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef PROGRAM_NAME
#define PROGRAM_NAME __FILE__
#endif
#ifndef PROGRAM_SECONDS
#define PROGRAM_SECONDS 120
#endif

#ifdef __GLIBC__
#define getdents getdents64 // glibc's name for it
#endif

#define UNUSED __attribute__((unused))
#define LENGTH(array) (sizeof(array) / sizeof *(array))

// The descriptor for failures. A program that listens on its own stderr changes it meanwhile.
static int check_stderr = 2;

// Formats on the stack and writes once, since the allocator may be what failed.
UNUSED static void check_print(const char *format, ...) __attribute__((format(printf, 1, 2)));
UNUSED static void check_print(const char *format, ...) {
	char line[600];
	va_list arguments;
	va_start(arguments, format);
	int length = vsnprintf(line, sizeof line, format, arguments);
	va_end(arguments);
	if (length < 0) length = 0;
	if (length > (int)sizeof line - 1) length = sizeof line - 1;
	if (write(check_stderr, line, (size_t)length) < 0) _exit(1);
}

#define FAIL(...)                                                     \
	do {                                                                \
		check_print("FAIL: %s:%d: ", __FILE__, __LINE__);                 \
		check_print(__VA_ARGS__);                                         \
		check_print("\n");                                                \
		_exit(1);                                                         \
	} while (0)

#define CHECK(condition)                                              \
	do {                                                                \
		if (!(condition)) FAIL("%s (errno %d)", #condition, errno);       \
	} while (0)

// CHECK with a formatted message.
#define CHECK_THAT(condition, ...)                                    \
	do {                                                                \
		if (!(condition)) FAIL(__VA_ARGS__);                              \
	} while (0)

#define NOTE(...) check_print("note: " __VA_ARGS__)

// Prints the kernel's view of each thread (proc(5), /proc/pid/task/tid/stat and syscall): its state, its processor
// time, the system call that it waits in. Calls nothing that allocates.
static void check_print_threads(void) {
	static char entries[4096];
	int tasks = open("/proc/self/task", O_RDONLY | O_DIRECTORY);
	for (int got; tasks >= 0 && (got = getdents(tasks, (struct dirent *)entries, sizeof entries)) > 0;) {
		for (int at = 0; at < got;) {
			struct dirent *entry = (struct dirent *)(entries + at);
			at += entry->d_reclen;
			for (int i = 0; i < 2 && entry->d_name[0] != '.'; i++) {
				char path[64], text[300];
				snprintf(path, sizeof path, "/proc/self/task/%.20s/%s", entry->d_name, i ? "syscall" : "stat");
				int file = open(path, O_RDONLY);
				ssize_t length = file < 0 ? -1 : read(file, text, sizeof text - 1);
				if (length > 0) text[length] = 0, check_print("thread %.20s: %s%s", entry->d_name, text, strchr(text, '\n') ? "" : "\n");
				close(file);
			}
		}
	}
}

static void check_hang(int signal_number) {
	(void)signal_number;
	check_print("FAIL: %s: hang\n", PROGRAM_NAME);
	check_print_threads();
	_exit(3);
}

// Call this first in main. The watchdog ends the program before the time limit of the test that runs it.
UNUSED static void check_begin(void) {
	struct sigaction action = {.sa_handler = check_hang};
	sigaction(SIGALRM, &action, 0);
	alarm(PROGRAM_SECONDS);
}

// Call this last; it returns the program's exit code.
UNUSED static int check_done(void) {
	printf("ok %s\n", PROGRAM_NAME);
	return 0;
}

// Returns `count` at 100 percent; $ALLOGRAFT_SCALE shortens (or lengthens) the loops.
UNUSED static long scaled(long count) {
	const char *text = getenv("ALLOGRAFT_SCALE");
	long percent = text ? atol(text) : 100;
	if (percent < 1) percent = 1;
	long result = count * percent / 100;
	return result < 1 ? 1 : result;
}

// Returns a number from the environment, or `otherwise`.
UNUSED static long setting(const char *name, long otherwise) {
	const char *text = getenv(name);
	return text && *text ? atol(text) : otherwise;
}

// xorshift64*: the same numbers on every machine.
UNUSED static uint64_t next_random(uint64_t *state) {
	uint64_t x = *state ? *state : 0x9e3779b97f4a7c15u;
	x ^= x >> 12, x ^= x << 25, x ^= x >> 27;
	*state = x;
	return x * 0x2545f4914f6cdd1du >> 16;
}

// Returns a number from `low` to `high`, both included.
UNUSED static size_t random_between(uint64_t *state, size_t low, size_t high) {
	return low + next_random(state) % (high - low + 1);
}

UNUSED static int is_aligned(const void *block, size_t alignment) {
	return (uintptr_t)block % alignment == 0;
}

// Every byte depends on the seed and on its place, so that a wrong copy, a torn block or a shared block shows.
UNUSED static unsigned char pattern_byte(size_t seed, size_t place) {
	size_t mixed = (seed + place) * 0x9e3779b9u + (place >> 8) + seed * 31;
	return (unsigned char)(mixed ^ mixed >> 16);
}

UNUSED static void pattern_fill(void *block, size_t from, size_t to, size_t seed) {
	unsigned char *bytes = block;
	for (size_t i = from; i < to; i++) bytes[i] = pattern_byte(seed, i);
}

// Returns the first place below `size` with a wrong byte, or `size`.
UNUSED static size_t pattern_end(const void *block, size_t size, size_t seed) {
	const unsigned char *bytes = block;
	size_t i = 0;
	while (i < size && bytes[i] == pattern_byte(seed, i)) i++;
	return i;
}

#define CHECK_PATTERN(block, size, seed)                              \
	do {                                                                \
		size_t end_ = pattern_end(block, size, seed);                     \
		CHECK_THAT(end_ == (size), "block of %zu bytes is damaged at %zu", (size_t)(size), end_); \
	} while (0)

// Waits for a child, at most `seconds`; kills one that takes longer. Returns its wait status, or -1 for a hang.
UNUSED static int await_child(pid_t child, long seconds) {
	struct timespec begin, now, pause = {0, 100000};
	clock_gettime(CLOCK_MONOTONIC, &begin);
	for (;;) {
		int status;
		pid_t got = waitpid(child, &status, WNOHANG);
		if (got == child) return status;
		if (got < 0 && errno != EINTR) FAIL("waitpid: errno %d", errno);
		clock_gettime(CLOCK_MONOTONIC, &now);
		if (now.tv_sec - begin.tv_sec >= seconds) {
			kill(child, SIGKILL);
			waitpid(child, &status, 0);
			return -1;
		}
		nanosleep(&pause, 0);
		if (pause.tv_nsec < 5000000) pause.tv_nsec *= 2;
	}
}

// Whether qemu's user mode runs the program: it has no seccomp, enforces no limits, and uses mappings of its own.
UNUSED static int is_emulated(void) {
	return getenv("ALLOGRAFT_TEST_EMULATED") || (prctl(PR_GET_SECCOMP, 0, 0, 0, 0) == -1 && errno == EINVAL);
}

// The seconds after which a child counts as hanging: far more than it takes on a loaded machine.
UNUSED static long patience(void) {
	return setting("ALLOGRAFT_HANG_SECONDS", 60);
}

// Checks that a child exits with `code`.
UNUSED static void expect_exit(pid_t child, int code, const char *what) {
	CHECK(child > 0);
	int status = await_child(child, patience());
	CHECK_THAT(status != -1, "%s: hang: the child still ran after %ld s", what, patience());
	CHECK_THAT(!WIFSIGNALED(status), "%s: the child died of signal %d", what, WTERMSIG(status));
	CHECK_THAT(WEXITSTATUS(status) == code, "%s: the child left with %d, not %d", what, WEXITSTATUS(status), code);
}

// Runs `what` in a child, which must print nothing but its own failures. Failures go to the real stderr, all other
// output into a pipe.
UNUSED static void expect_silence(const char *what, void (*run)(void)) {
	enum { SILENT_CODE = 3 };
	static char text[200];
	int ends[2];
	CHECK(pipe2(ends, O_NONBLOCK) == 0);
	pid_t child = fork();
	if (child == 0) {
		check_stderr = dup(2);
		CHECK(check_stderr >= 0 && dup2(ends[1], 1) == 1 && dup2(ends[1], 2) == 2);
		run();
		_exit(SILENT_CODE);
	}
	expect_exit(child, SILENT_CODE, what);
	ssize_t length = read(ends[0], text, sizeof text - 1);
	CHECK_THAT(length < 0 && errno == EAGAIN, "%s: the allocator printed: %.*s", what, (int)(length > 0 ? length : 0), text);
	close(ends[0]), close(ends[1]);
}

// A line of /proc/self/maps.
struct mapping {
	unsigned long from, to, inode;
	char access[5];
	const char *line;
};

// Adds up what `count` makes of each mapping of this process; 0 if /proc is missing.
UNUSED static size_t over_mappings(size_t (*count)(const struct mapping *)) {
	static char text[1 << 16];
	size_t sum = 0, kept = 0;
	int file = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
	if (file < 0) return 0;
	for (ssize_t got; (got = read(file, text + kept, sizeof text - 1 - kept)) > 0;) {
		text[kept += (size_t)got] = 0;
		char *line = text;
		for (char *end; (end = strchr(line, '\n')); line = end + 1) {
			struct mapping one = {.line = line};
			*end = 0;
			if (sscanf(line, "%lx-%lx %4s %*s %*s %lu", &one.from, &one.to, one.access, &one.inode) == 4) sum += count(&one);
		}
		memmove(text, line, kept -= (size_t)(line - text));
	}
	close(file);
	return sum;
}

UNUSED static size_t resident_in(const struct mapping *mapping) {
	static unsigned char pages[1 << 14];
	// An emulator with larger pages reports residency in the underlying system's pages of 4 KiB.
	size_t page = is_emulated() ? 4096 : (size_t)sysconf(_SC_PAGESIZE), resident = 0;
	if (mapping->access[1] != 'w') return 0;
	// A step is at most the rest of the mapping: a 32-bit process's stack ends less than a step below the greatest
	// address.
	for (size_t from = mapping->from, step = sizeof pages * page, length; from < mapping->to; from += length) {
		length = mapping->to - from < step ? mapping->to - from : step;
		if (mincore((void *)from, length, pages)) continue;
		for (size_t i = 0; i < length / page; i++) resident += (pages[i] & 1) * page;
	}
	return resident;
}

// Returns how much of this process's own writable memory is resident, in bytes; 0 if /proc is missing. It asks about
// each mapping instead of reading /proc/self/statm, which under an emulator counts the emulator.
UNUSED static size_t resident_bytes(void) { return over_mappings(resident_in); }

// Whether memory grew by more than `allowed`, from `base` bytes to `now`. While it returns 1, the caller does as
// much work again and calls it again. A leak grows with every batch; a cache is full at some time, however empty it
// was at first. So the check fails only after BATCHES times in a row: neither a single figure nor a busy machine
// decides.
UNUSED static int grows(const char *with, size_t base, size_t now, size_t allowed) {
	enum { BATCHES = 3 };
	static int batches;
	if (!now) NOTE("no /proc/self/maps: memory is not checked\n");
	if (getenv("ALLOGRAFT_FIGURES")) NOTE("%zu KiB, then %zu KiB, with %s\n", base >> 10, now >> 10, with);
	if (now <= base + allowed) return batches = 0;
	CHECK_THAT(++batches < BATCHES, "memory grows with %s: %d times in a row by more than %zu KiB, in the end from %zu to %zu KiB", with,
			   BATCHES, allowed >> 10, base >> 10, now >> 10);
	return 1;
}

// Lets some time pass, in milliseconds, and at least `least` be done, however busy the machine is. Returns the greatest
// number of resident bytes meanwhile.
UNUSED static size_t greatest_resident(long length, size_t (*done)(void), size_t least) {
	struct timespec begin, now;
	size_t greatest = 0, from = done();
	clock_gettime(CLOCK_MONOTONIC, &begin);
	do {
		size_t resident = resident_bytes();
		if (resident > greatest) greatest = resident;
		usleep((useconds_t)(length * 20 + 1));
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while ((now.tv_sec - begin.tv_sec) * 1000 + (now.tv_nsec - begin.tv_nsec) / 1000000 < length || done() - from < least);
	return greatest;
}

// Returns how long threads are to work, in milliseconds: the seconds in this variable of the environment, or
// `otherwise`, scaled. The end is not known before, so the watchdog waits for three times as long.
UNUSED static long working_time(const char *name, long otherwise) {
	long seconds = setting(name, 0);
	if (!seconds) return scaled(otherwise);
	alarm(PROGRAM_SECONDS + (unsigned)seconds * 3);
	return seconds * 1000;
}

// Checks that memory does not grow with what threads do for `length` milliseconds. `done` returns how much that is; they
// do at least `half` of it in each half. Compares the greatest resident size in the first half, without the start, with
// that in the second. A leak grows with the work and not with the time, so the second half lasts until as much is done
// as in the first. Then in shorter parts, if need be.
UNUSED static void expect_flat(const char *with, long length, size_t (*done)(void), size_t half, size_t slack) {
	greatest_resident(length / 10, done, half / 10);
	size_t begun = done();
	size_t early = greatest_resident(length / 2 - length / 10, done, half);
	size_t late = greatest_resident(length / 2, done, done() - begun), allowed = early / 2 + slack;
	if (getenv("ALLOGRAFT_FIGURES")) NOTE("%zu %s\n", done(), with);
	for (; grows(with, early, late, allowed); allowed = slack) {
		early = late;
		late = greatest_resident(length / 8, done, half);
	}
}

#endif

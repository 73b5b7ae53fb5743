// Habits of programs that an allocator may get in the way of. Takes the name of one, and prints what came of it: the same
// with any allocator that asks no more of the system than stock malloc does.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef DYNAMIC
#include <dlfcn.h>
#endif

#ifndef MCL_ONFAULT
#define MCL_ONFAULT 4
#endif
#ifndef PR_SET_MDWE
#define PR_SET_MDWE 65
#endif

enum { MIB = 1 << 20 };

extern char **environ;

static void say(const char *what, int succeeded) { printf("%s: %s\n", what, succeeded ? "yes" : "no"); }

// Allocates blocks of all kinds, fills, resizes and frees them. Returns whether all of it worked.
static int work(void) {
	char *blocks[200] = {0};
	int works = 1;
	for (size_t i = 0; i < 1200; i++) {
		char **block = &blocks[i % 200];
		size_t size = 1 + i * i % 5000 + (i % 97 == 0 ? 300000 : 0);
		if (i % 3 == 0) {
			free(*block);
			*block = malloc(size);
		} else if (i % 3 == 1) {
			free(*block);
			*block = calloc(1, size);
		} else {
			*block = realloc(*block, size);
		}
		if (!*block) return 0;
		memset(*block, 1, size);
	}
	for (size_t i = 0; i < 200; i++) free(blocks[i]);
	void *aligned = aligned_alloc(4096, 8192);
	works = aligned && (uintptr_t)aligned % 4096 == 0;
	free(aligned);
	return works;
}

static void *work_in_thread(void *result) {
	*(int *)result = work();
	return 0;
}

// Returns whether a thread with a stack of that size starts and does its work; a size of 0 is the default one.
static int works_in_thread(size_t stack) {
	pthread_attr_t attributes;
	pthread_t thread;
	int result = 0;
	if (pthread_attr_init(&attributes)) return 0;
	if (stack && pthread_attr_setstacksize(&attributes, stack)) return 0;
	if (pthread_create(&thread, &attributes, work_in_thread, &result)) return 0;
	pthread_join(thread, 0);
	return result;
}

static int works_with_large_blocks(size_t size) {
	char *volatile block = malloc(size);
	if (!block) return 0;
	block[0] = block[size - 1] = 1;
	free(block);
	return 1;
}

static int has_own_memory(size_t size) {
	void *own = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return own != MAP_FAILED && munmap(own, size) == 0;
}

static void go_on(size_t large) {
	say("memory of its own", has_own_memory(MIB));
	say("a thread", works_in_thread(256 << 10));
	say("a large block", works_with_large_blocks(large));
	say("work", work());
}

static void plain(void) { go_on(50 * MIB); }

// Whether less than `most` bytes are mapped, so that locking them does not fill the machine's memory.
static int is_small(size_t most) {
	char text[200] = {0};
	int file = open("/proc/self/statm", O_RDONLY);
	ssize_t length = file < 0 ? -1 : read(file, text, sizeof text - 1);
	close(file);
	return length > 0 && strtoul(text, 0, 10) * (size_t)sysconf(_SC_PAGESIZE) < most;
}

static void lock(int flags) {
	free(malloc(100));
	if (!is_small((size_t)2048 * MIB)) {
		say("little is mapped", 0);
		return;
	}
	say("locked", mlockall(flags) == 0);
	go_on(20 * MIB);
}

static void lock_current(void) { lock(MCL_CURRENT); }
static void lock_future(void) { lock(MCL_CURRENT | MCL_FUTURE); }
static void lock_on_fault(void) { lock(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT); }

// An ordinary user's limit of 8 MiB.
static void lock_limited(void) {
	struct rlimit limit = {8 * MIB, 8 * MIB};
	free(malloc(100));
	say("limited", setrlimit(RLIMIT_MEMLOCK, &limit) == 0 && (getuid() != 0 || setuid(65534) == 0));
	say("locked", mlockall(MCL_CURRENT | MCL_FUTURE) == 0);
	say("a block of 2 MiB", works_with_large_blocks(2 * MIB));
	say("work", work());
}

static void limit(int resource, size_t most) {
	struct rlimit limit = {most, most};
	free(malloc(100));
	say("limited", setrlimit(resource, &limit) == 0);
	go_on(50 * MIB);
}

static void limit_address_space(void) { limit(RLIMIT_AS, 300 * MIB); }
static void limit_data(void) { limit(RLIMIT_DATA, 300 * MIB); }

static void *allocate_little(void *result) {
	int works = 1;
	for (size_t size = 1; size < 200000; size *= 3) {
		void *volatile block = malloc(size);
		block = realloc(block, size * 2);
		works &= block != 0;
		free(block);
	}
	*(int *)result = works;
	return 0;
}

static void smallest_stacks(void) {
	pthread_attr_t attributes;
	pthread_t threads[8];
	int results[8] = {0}, works = 0;
	size_t size = sysconf(_SC_THREAD_STACK_MIN) > 0 ? (size_t)sysconf(_SC_THREAD_STACK_MIN) : 2048;
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, size);
	for (int i = 0; i < 8; i++)
		if (pthread_create(&threads[i], &attributes, allocate_little, &results[i]) == 0) pthread_join(threads[i], 0);
	for (int i = 0; i < 8; i++) works += results[i];
	printf("%d of 8 threads\n", works);
}

static void own_stacks(void) {
	pthread_attr_t attributes;
	pthread_t thread;
	int result = 0;
	void *stack = mmap(0, 64 << 10, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pthread_attr_init(&attributes);
	say("set", pthread_attr_setstack(&attributes, stack, 64 << 10) == 0);
	say("started", pthread_create(&thread, &attributes, work_in_thread, &result) == 0 && pthread_join(thread, 0) == 0);
	say("work", result);
}

static int in_coroutine;
static void coroutine_body(void) {
	void *volatile blocks[50];
	in_coroutine = 1;
	for (int i = 0; i < 50; i++) {
		blocks[i] = malloc((size_t)i * 200 + 1);
		in_coroutine &= blocks[i] != 0;
	}
	for (int i = 0; i < 50; i++) free(blocks[i]);
}

// Calls a function on a stack of 4 KiB, as libraries of coroutines do.
static void coroutines(void) {
#ifdef __x86_64__
	char *stack = mmap(0, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	mprotect(stack + 4096, 4096, PROT_READ | PROT_WRITE);
	char *top = stack + 8192;
	__asm__ volatile("movq %%rsp, %%rbx\n\tmovq %0, %%rsp\n\tcall *%1\n\tmovq %%rbx, %%rsp"
	                 : : "r"(top), "r"(coroutine_body)
	                 : "rbx", "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "memory", "cc", "xmm0", "xmm1",
	                   "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13",
	                   "xmm14", "xmm15");
#else
	coroutine_body();
#endif
	say("blocks", in_coroutine);
}

static volatile int handled;
static void handle(int number) {
	(void)number;
	handled = work() ? 1 : 2;
}

static void alternate_stack(void) {
	stack_t stack = {.ss_sp = malloc(16 << 10), .ss_size = 16 << 10};
	struct sigaction action = {.sa_handler = handle, .sa_flags = SA_ONSTACK};
	say("set", sigaltstack(&stack, 0) == 0 && sigaction(SIGUSR1, &action, 0) == 0);
	raise(SIGUSR1);
	say("work", handled == 1);
}

static void signal_handler(void) {
	signal(SIGUSR1, handle);
	raise(SIGUSR1);
	say("work", handled == 1);
	say("afterwards", work());
}

// Kills at every system call that stock malloc and the program's own work do not make.
static int filter(void) {
	static const int allowed[] = {
		SYS_brk, SYS_mmap, SYS_munmap, SYS_mremap, SYS_madvise, SYS_futex, SYS_write, SYS_writev, SYS_exit, SYS_exit_group,
		SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_clone, SYS_mprotect, SYS_ioctl, SYS_fstat,
#ifdef SYS_clone3
		SYS_clone3,
#endif
#ifdef SYS_rseq
		SYS_rseq,
#endif
		SYS_set_robust_list, SYS_gettid, SYS_newfstatat, SYS_sched_yield, SYS_rt_sigaction, SYS_membarrier,
	};
	enum { COUNT = sizeof allowed / sizeof *allowed };
	struct sock_filter code[COUNT + 3];
	int at = 0;
	code[at++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
	for (int i = 0; i < COUNT; i++)
		code[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)allowed[i], COUNT - i, 0);
	code[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
	code[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	struct sock_fprog program = {.len = (unsigned short)at, .filter = code};
	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static void filtered(void) {
	free(malloc(100));
	say("filtered", filter());
	say("work", work());
	say("a large block", works_with_large_blocks(5 * MIB));
}

static void filtered_threads(void) {
	free(malloc(100));
	say("filtered", filter());
	for (int i = 0; i < 4; i++) say("a thread", works_in_thread(256 << 10));
}

static int status_of(pid_t child) {
	int status = -1;
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static void fork_server(void) {
	int worked = 0;
	void *kept = malloc(1000);
	for (int i = 0; i < 50; i++) {
		pid_t child = fork();
		if (child == 0) {
			free(kept);
			_exit(work() ? 7 : 1);
		}
		worked += status_of(child) == 7;
	}
	printf("%d of 50 children\n", worked);
}

static volatile int stop;
static void *keep_allocating(void *unused) {
	while (!stop) {
		void *volatile block = malloc(3000);
		free(block);
	}
	return unused;
}

static void fork_with_threads(void) {
	pthread_t thread;
	int worked = 0;
	pthread_create(&thread, 0, keep_allocating, 0);
	for (int i = 0; i < 20; i++) {
		pid_t child = fork();
		if (child == 0) _exit(work() ? 7 : 1);
		worked += status_of(child) == 7;
	}
	stop = 1;
	pthread_join(thread, 0);
	printf("%d of 20 children\n", worked);
}

static void raw_clone(void) {
	free(malloc(100));
	pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
	if (child == 0) _exit(work() ? 7 : 1);
	printf("%d\n", status_of(child));
}

static void vfork_and_exec(void) {
	pid_t child = vfork();
	if (child == 0) {
		execl("/bin/true", "true", (char *)0);
		_exit(9);
	}
	printf("%d\n", status_of(child));
	say("work", work());
}

static void spawn(void) {
	pid_t child;
	char *line[] = {"true", 0};
	say("started", posix_spawn(&child, "/bin/true", 0, 0, line, environ) == 0);
	printf("%d\n", status_of(child));
}

static void *allocate_for_good(void *unused) {
	for (;;) {
		void *volatile block = malloc(500);
		free(block);
		pthread_testcancel();
	}
	return unused;
}

static void cancelled(void) {
	pthread_t thread;
	void *result = 0;
	pthread_create(&thread, 0, allocate_for_good, 0);
	say("cancelled", pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
	say("work", work());
}

static void *exit_here(void *unused) {
	say("work", work());
	exit(5);
	return unused;
}

static void exit_from_thread(void) {
	pthread_t thread;
	pthread_create(&thread, 0, exit_here, 0);
	for (;;) {
		void *volatile block = malloc(500);
		free(block);
	}
}

static void *outlive_main(void *unused) {
	for (int i = 0; i < 100; i++) work();
	puts("the thread is done");
	return unused;
}

static void main_ends_first(void) {
	pthread_t thread;
	pthread_create(&thread, 0, outlive_main, 0);
	pthread_exit(0);
}

static pthread_key_t key;
static void end_key(void *block) {
	free(block);
	printf("destructor: %s\n", work() ? "yes" : "no");
}

static void *set_key(void *unused) {
	pthread_setspecific(key, malloc(200));
	return unused;
}

static void thread_destructors(void) {
	pthread_t thread;
	pthread_key_create(&key, end_key);
	pthread_create(&thread, 0, set_key, 0);
	pthread_join(thread, 0);
}

static void at_end(void) { say("at the end", work()); }
static void exit_handlers(void) { say("registered", atexit(at_end) == 0 && at_quick_exit(at_end) == 0); }

static int before_main;
__attribute__((constructor(101))) static void early(void) { before_main = work(); }
static void constructors(void) { say("before main", before_main); }

static int with_destructor;
__attribute__((destructor)) static void late(void) {
	if (with_destructor) say("after main", work());
}
static void destructors(void) { with_destructor = 1; }

static int in_preinit;
static void preinit(void) {
	void *volatile block = malloc(3000);
	in_preinit = block != 0;
	free(block);
}
__attribute__((used, section(".preinit_array"))) static void (*const preinit_entry)(void) = preinit;
static void before_constructors(void) { say("before constructors", in_preinit); }

static void no_memory(void) {
	errno = 0;
	void *volatile block = malloc(PTRDIFF_MAX);
	printf("%d %d\n", block == 0, errno == ENOMEM);
	errno = 0;
	block = calloc(SIZE_MAX / 2, 3);
	printf("%d %d\n", block == 0, errno == ENOMEM);
}

static void empty_blocks(void) {
	void *volatile none = malloc(0);
	say("malloc(0)", none != 0);
	void *volatile moved = realloc(malloc(100), 0);
	say("realloc(block, 0)", moved != 0);
	free(none), free(moved);
}

static void odd_alignments(void) {
	errno = 0;
	void *volatile block = memalign(24, 100);
	printf("memalign(24): %d %d\n", block != 0, errno == EINVAL);
	errno = 0;
	void *volatile other = aligned_alloc(48, 100);
	printf("aligned_alloc(48): %d %d\n", other != 0, errno == EINVAL);
	void *third = 0;
	printf("posix_memalign(24): %d\n", posix_memalign(&third, 24, 100));
}

static void errors_stay(void) {
	errno = 4242;
	free(malloc(100)), free(malloc(3 * MIB));
	printf("%d\n", errno);
}

// The memory of a block that a program resizes to nothing, and forgets.
static void resized_to_nothing(void) {
	struct rusage usage;
	for (int i = 0; i < 300000; i++) {
		void *volatile block = malloc(100);
		block = realloc(block, 0);
#ifndef __GLIBC__
		free(block);
#endif
	}
	getrusage(RUSAGE_SELF, &usage);
	say("below 16 MB", usage.ru_maxrss < 16000);
}

static void few_descriptors(void) {
	struct rlimit limit = {16, 16};
	say("limited", setrlimit(RLIMIT_NOFILE, &limit) == 0);
	while (open("/dev/null", O_RDONLY) >= 0)
		;
	go_on(20 * MIB);
}

static void many_threads(void) {
	pthread_t threads[64];
	int results[64] = {0}, worked = 0;
	for (int round = 0; round < 4; round++) {
		int count = 0;
		while (count < 64 && pthread_create(&threads[count], 0, work_in_thread, &results[count]) == 0) count++;
		for (int i = 0; i < count; i++) {
			pthread_join(threads[i], 0);
			worked += results[i];
		}
	}
	printf("%d of 256 threads\n", worked);
}

// What a kernel with vm.overcommit_memory 2 counts against its limit: all that is private and writable, whether it was
// touched or not, also what was mapped with MAP_NORESERVE (mm/mmap.c; proc(5), /proc/PID/smaps, VmFlags).
static void accounted(void) {
	free(malloc(100));
	say("a thread", works_in_thread(256 << 10));
	FILE *areas = fopen("/proc/self/smaps", "r");
	char line[512], *flags;
	size_t size = 0, all = 0;
	while (areas && fgets(line, sizeof line, areas)) {
		sscanf(line, "Size: %zu kB", &size);
		flags = strstr(line, "VmFlags:");
		if (flags && strstr(flags, " wr ") && !strstr(flags, " sh ")) all += size;
	}
	say("accounts were read", areas && fclose(areas) == 0 && all > 0);
	// A thread's stack of glibc is 8 MiB.
	say("less than 64 MiB count", all < 64 << 10);
}

// The size of the core file's contents: what is mapped and writable, of which the kernel writes what was touched.
static void dumped(void) {
	free(malloc(100));
	say("little is mapped", is_small((size_t)128 * MIB));
}

#ifdef DYNAMIC
#include "loading.h"
#endif

#include "protection.h"

static const struct habit {
	const char *name;
	void (*run)(void);
} habits[] = {
	{"plain", plain},
	{"lock-current", lock_current},
	{"lock-future", lock_future},
	{"lock-on-fault", lock_on_fault},
	{"lock-limited", lock_limited},
	{"limit-address-space", limit_address_space},
	{"limit-data", limit_data},
	{"smallest-stacks", smallest_stacks},
	{"own-stacks", own_stacks},
	{"coroutines", coroutines},
	{"alternate-stack", alternate_stack},
	{"signal-handler", signal_handler},
	{"filtered", filtered},
	{"filtered-threads", filtered_threads},
	{"write-or-execute", write_or_execute},
	{"no-new-privileges", no_new_privileges},
	{"rights", rights},
	{"places", places},
	{"random-places", random_places},
	{"raised", raised},
	{"fork-server", fork_server},
	{"fork-with-threads", fork_with_threads},
	{"raw-clone", raw_clone},
	{"vfork", vfork_and_exec},
	{"spawn", spawn},
	{"cancelled", cancelled},
	{"exit-from-thread", exit_from_thread},
	{"main-ends-first", main_ends_first},
	{"thread-destructors", thread_destructors},
	{"exit-handlers", exit_handlers},
	{"constructors", constructors},
	{"destructors", destructors},
	{"preinit", before_constructors},
	{"no-memory", no_memory},
	{"empty-blocks", empty_blocks},
	{"odd-alignments", odd_alignments},
	{"errors-stay", errors_stay},
	{"resized-to-nothing", resized_to_nothing},
	{"few-descriptors", few_descriptors},
	{"many-threads", many_threads},
	{"changed-user", changed_user},
	{"dumped", dumped},
	{"accounted", accounted},
#ifdef DYNAMIC
	{"dlopen-lazy", load_lazily},
	{"dlopen-now", load_now},
	{"dlopen-global", load_globally},
	{"dlopen-nodelete", load_for_good},
	{"dlopen-thread", load_in_thread},
	{"thread-storage", thread_storage},
#ifdef RTLD_DEEPBIND
	{"dlopen-deep", load_deeply},
#endif
#ifdef LM_ID_NEWLM
	{"dlmopen", load_apart},
#endif
#endif
};

int main(int count, char **words, char **variables) {
	environment = variables;
	alarm(120);
	setvbuf(stdout, 0, _IOLBF, 0);
	for (size_t i = 0; count > 1 && i < sizeof habits / sizeof *habits; i++) {
		if (strcmp(words[1], habits[i].name)) continue;
		habits[i].run();
		return 0;
	}
	return 99;
}

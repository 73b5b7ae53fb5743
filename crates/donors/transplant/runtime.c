/* The parts of a libc that a donor needs in a program that has been linked already.
 *
 * The donor's object is the same as in a libc.a. Here it is linked with its own system calls and its own start routine,
 * to a blob that refers to nothing outside itself. The program's entry points jump to the functions at the end of this
 * file. docs/executables.md explains how these parts fit together. */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <time.h>
#include <unistd.h>

/* With string functions in the blob, all of that comes from them. */
#ifndef TRANSPLANT_STRINGS
#include "memory.h"
#endif
#include "parameters.h"
#include "system.h"
#include "vdso.h"

/* Found by its symbol. Hidden, so that no access goes through a table that is not relocated yet. */
#define ENTRY __attribute__((used, visibility("hidden")))

extern HIDDEN char transplant_base[], transplant_sealed_end[];
extern HIDDEN void (*transplant_init_start[])(void), (*transplant_init_end[])(void);
extern HIDDEN void (*transplant_reports_start[])(void), (*transplant_reports_end[])(void);

/* Only the graft and the kernel's loader write this. It is volatile, or the compiler would build the zeros in. */
ENTRY volatile struct transplant_parameters transplant_parameters
	__attribute__((section(".data.transplant"), aligned(16))) = {
	.magic = TRANSPLANT_MAGIC, .format = TRANSPLANT_FORMAT,
};

/* The redirected entry points of the program: the distance of each from its own place, and its kind; docs/note.md has the
 * numbers. 0 if unused. */
ENTRY const volatile struct transplant_entries transplant_entries __attribute__((section(".note.allograft.entries"), aligned(4))) = {
	sizeof "allograft", sizeof(struct transplant_entry[TRANSPLANT_ENTRIES]), 4, "allograft", {{0, 0}},
};

static Elf64_auxv_t *vector;
HIDDEN char **environ;

HIDDEN int *__errno_location(void)
{
	return (int *)((char *)__builtin_thread_pointer() + transplant_parameters.errno_offset);
}

/* mimalloc reads its variables with this: a decimal number, or the part of the text that is one. */
HIDDEN long strtol(const char *text, char **end, int base)
{
	const char *at = text;
	unsigned long value = 0;
	bool negative = false, any = false, over = false;
	while (*at == ' ' || (*at >= '\t' && *at <= '\r'))
		at++;
	if (*at == '-' || *at == '+')
		negative = *at++ == '-';
	for (; *at >= '0' && *at <= '9'; at++) {
		any = true;
		over |= __builtin_mul_overflow(value, 10ul, &value) || __builtin_add_overflow(value, (unsigned long)(*at - '0'), &value);
	}
	(void)base;
	if (end)
		*end = (char *)(any ? at : text);
	if (over || value > (unsigned long)LONG_MAX)
		return negative ? LONG_MIN : LONG_MAX;
	return negative ? -(long)value : (long)value;
}

/* System calls. */

HIDDEN long syscall(long number, ...)
{
	va_list list;
	va_start(list, number);
	long a = va_arg(list, long), b = va_arg(list, long), c = va_arg(list, long);
	long d = va_arg(list, long), e = va_arg(list, long), f = va_arg(list, long);
	va_end(list);
	return answered(kernel(number, a, b, c, d, e, f));
}

HIDDEN void *mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
	if (length >= PTRDIFF_MAX) {
		*__errno_location() = ENOMEM;
		return MAP_FAILED;
	}
	long mapping = kernel(SYS_mmap, (long)address, (long)length, protection, flags, fd, offset);
	/* As in musl: the kernel returns EPERM if it has no address left (src/mman/mmap.c). */
	if (mapping == -EPERM && !address && (flags & MAP_ANONYMOUS) && !(flags & MAP_FIXED))
		mapping = -ENOMEM;
	return (void *)answered(mapping);
}

HIDDEN int munmap(void *address, size_t length)
{
	return (int)answered(kernel(SYS_munmap, (long)address, (long)length, 0, 0, 0, 0));
}

HIDDEN void *mremap(void *address, size_t length, size_t wanted, int flags, ...)
{
	va_list list;
	va_start(list, flags);
	long target = flags & MREMAP_FIXED ? va_arg(list, long) : 0;
	va_end(list);
	return (void *)answered(kernel(SYS_mremap, (long)address, (long)length, (long)wanted, flags, target, 0));
}

HIDDEN int mprotect(void *address, size_t length, int protection)
{
	return (int)answered(kernel(SYS_mprotect, (long)address, (long)length, protection, 0, 0, 0));
}

HIDDEN int madvise(void *address, size_t length, int advice)
{
	return (int)answered(kernel(SYS_madvise, (long)address, (long)length, advice, 0, 0, 0));
}

#if !defined(SYS_open)
/* mimalloc calls libc for these on architectures whose kernels have only newer forms. */

HIDDEN int open(const char *path, int flags, ...)
{
	return (int)answered(kernel(SYS_openat, AT_FDCWD, (long)path, flags, 0, 0, 0));
}

HIDDEN ssize_t read(int fd, void *buffer, size_t n)
{
	return answered(kernel(SYS_read, fd, (long)buffer, (long)n, 0, 0, 0));
}

HIDDEN int close(int fd)
{
	return (int)answered(kernel(SYS_close, fd, 0, 0, 0, 0, 0));
}

HIDDEN int access(const char *path, int mode)
{
	return (int)answered(kernel(SYS_faccessat, AT_FDCWD, (long)path, mode, 0, 0, 0));
}
#endif

/* mimalloc only compares with these, so they must be two different addresses. */
#undef stdout
#undef stderr
static char streams[2];
HIDDEN FILE *const stdout = (FILE *)&streams[0];
HIDDEN FILE *const stderr = (FILE *)&streams[1];

/* The kernel's function, once it was looked for; NULL: it has none. */
static _Atomic(vdso_clock_function *) vdso_clock;
static atomic_bool vdso_known;

HIDDEN int clock_gettime(clockid_t clock, struct timespec *time)
{
	/* Before the stack was read there is no vector, and nothing is known. */
	if (!atomic_load_explicit(&vdso_known, memory_order_acquire) && vector) {
		atomic_store_explicit(&vdso_clock, vdso_find(getauxval(AT_SYSINFO_EHDR)), memory_order_relaxed);
		atomic_store_explicit(&vdso_known, true, memory_order_release);
	}
	vdso_clock_function *function = atomic_load_explicit(&vdso_clock, memory_order_relaxed);
	if (function && !function(clock, time))
		return 0;
	return (int)answered(kernel(SYS_clock_gettime, clock, (long)time, 0, 0, 0, 0));
}

HIDDEN clock_t clock(void)
{
	struct timespec time;
	if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time))
		return -1;
	return time.tv_sec * 1000000 + time.tv_nsec / 1000;
}

HIDDEN pid_t getpid(void)
{
	return (pid_t)kernel(SYS_getpid, 0, 0, 0, 0, 0, 0);
}

HIDDEN int sched_yield(void)
{
	return (int)answered(kernel(SYS_sched_yield, 0, 0, 0, 0, 0, 0));
}

HIDDEN int sysinfo(struct sysinfo *info)
{
	return (int)answered(kernel(SYS_sysinfo, (long)info, 0, 0, 0, 0, 0));
}

/* A bare call, so that the program's errno is unchanged if a key is not in the vector. */
HIDDEN unsigned long getauxval(unsigned long key)
{
	for (const Elf64_auxv_t *entry = vector; entry && entry->a_type; entry++) {
		if (entry->a_type == key)
			return entry->a_un.a_val;
	}
	return 0;
}

HIDDEN long sysconf(int name)
{
	return name == _SC_PAGESIZE ? (long)getauxval(AT_PAGESZ) : -1;
}

HIDDEN _Noreturn void abort(void)
{
	/* The kernel's own numbers and layouts (asm-generic/signal.h): handler, flags, restorer, mask. */
	unsigned long standard[4] = {0}, mask = 1ul << (SIGABRT - 1);
	long process = kernel(SYS_getpid, 0, 0, 0, 0, 0, 0), thread = kernel(SYS_gettid, 0, 0, 0, 0, 0, 0);
	kernel(SYS_tgkill, process, thread, SIGABRT, 0, 0, 0);
	kernel(SYS_rt_sigaction, SIGABRT, (long)standard, 0, 8, 0, 0);
	kernel(SYS_tgkill, process, thread, SIGABRT, 0, 0, 0);
	kernel(SYS_rt_sigprocmask, SIG_UNBLOCK, (long)&mask, 0, 8, 0, 0);
	for (;;)
		__builtin_trap();
}

/* Mutexes: the first word is 0 free, 1 held, 2 held and waited for. No other code uses the donor's mutexes. */

static _Atomic int *word_of(pthread_mutex_t *mutex)
{
	return (_Atomic int *)mutex;
}

HIDDEN int pthread_mutex_trylock(pthread_mutex_t *mutex)
{
	int free = 0;
	return atomic_compare_exchange_strong(word_of(mutex), &free, 1) ? 0 : EBUSY;
}

HIDDEN int pthread_mutex_lock(pthread_mutex_t *mutex)
{
	if (!pthread_mutex_trylock(mutex))
		return 0;
	while (atomic_exchange(word_of(mutex), 2))
		kernel(SYS_futex, (long)mutex, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, 2, 0, 0, 0);
	return 0;
}

HIDDEN int pthread_mutex_unlock(pthread_mutex_t *mutex)
{
	if (atomic_exchange(word_of(mutex), 0) == 2)
		kernel(SYS_futex, (long)mutex, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1, 0, 0, 0);
	return 0;
}

HIDDEN int pthread_mutex_init(pthread_mutex_t *restrict mutex, const pthread_mutexattr_t *restrict attributes)
{
	(void)attributes;
	memset(mutex, 0, sizeof *mutex);
	return 0;
}

HIDDEN int pthread_mutex_destroy(pthread_mutex_t *mutex)
{
	(void)mutex;
	return 0;
}

/* The end of threads. A donor takes one key only; its destructor runs after all the program's own destructors. */

static void (*destructor)(void *);
static __thread void *value;

HIDDEN int pthread_key_create(pthread_key_t *key, void (*wanted)(void *))
{
	if (destructor)
		return EAGAIN;
	destructor = wanted;
	*key = 0;
	return 0;
}

HIDDEN int pthread_key_delete(pthread_key_t key)
{
	(void)key;
	return 0;
}

HIDDEN int pthread_setspecific(pthread_key_t key, const void *wanted)
{
	(void)key;
	value = (void *)wanted;
	return 0;
}

/* The donor asks only whether such a function exists. */
HIDDEN int pthread_create(pthread_t *restrict thread, const pthread_attr_t *restrict attributes, void *(*run)(void *),
                          void *restrict argument)
{
	(void)thread, (void)attributes, (void)run, (void)argument;
	return EAGAIN;
}

#if defined(__x86_64__)
/* A thread that is cancelled asynchronously may reach its end on a stack that is aligned to 8 bytes only. */
#define REALIGN __attribute__((force_align_arg_pointer))
#else
#define REALIGN
#endif

/* Replaces musl's call of __pthread_tsd_run_dtors in pthread_exit. */
ENTRY REALIGN void transplant_thread_exit(void)
{
	((void (*)(void))(transplant_base + transplant_parameters.key_destructors))();
	/* The destructor runs once, even if the donor sets the value again: mimalloc gives the main thread its heap again. */
	void *last = value;
	value = 0;
	if (last)
		destructor(last);
}

/* The glue's destructor writes the statistics. */
static void report(void)
{
	for (void (**one)(void) = transplant_reports_start; one < transplant_reports_end; one++)
		(*one)();
}

/* Replaces the call of __stdio_exit in exit: the functions of atexit and the destructors have run, in all libraries. */
ENTRY REALIGN void transplant_process_exit(void)
{
	((void (*)(void))(transplant_base + transplant_parameters.streams))();
	report();
}

/* Relocates the donor: first of all that runs. Returns where the donor lies. */
static inline uintptr_t relocate(void)
{
	volatile struct transplant_parameters *given = &transplant_parameters;
	/* Written before it is read: one page fault in place of two. */
	given->magic = TRANSPLANT_MAGIC;
	uintptr_t base = (uintptr_t)transplant_base;
	struct transplant_relocation *relocations = (void *)(base + given->relocations);
	for (uint64_t i = 0; i < given->relocation_count; i++)
		*(uintptr_t *)(base + relocations[i].place) = base + relocations[i].value;
	return base;
}

/* Finds the environment and the auxiliary vector on the stack that the kernel made. */
static inline void read_stack(long *stack)
{
	environ = (char **)(stack + 1 + stack[0] + 1);
	char **end = environ;
	while (*end)
		end++;
	vector = (Elf64_auxv_t *)(end + 1);
}

#ifndef TRANSPLANT_LOADER
/* The start of the process, before the program's own: single-threaded, without a thread pointer. */

HIDDEN void transplant_self_test(void);

/* Returns the program's own entry point. */
HIDDEN __attribute__((used)) uintptr_t transplant_begin(long *stack)
{
	volatile struct transplant_parameters *given = &transplant_parameters;
	uintptr_t base = relocate();
	read_stack(stack);
	/* Kernels from 5.18 on find the program headers in memory. Earlier ones assume that all segments have the first one's
	 * distance between file and memory. */
	for (Elf64_auxv_t *entry = vector; entry->a_type; entry++) {
		if (entry->a_type == AT_PHDR)
			entry->a_un.a_val = base + given->headers;
	}
	uintptr_t entry = base + given->entry;
	for (int i = 0; i < 2; i++) {
		if (given->sealed_size[i])
			kernel(SYS_mprotect, (long)(base + given->sealed[i]), (long)given->sealed_size[i], PROT_READ, 0, 0, 0);
	}
	if (given->self_test)
		transplant_self_test();
	return entry;
}
#endif

HIDDEN uintptr_t transplant_begin(long *stack);

/* The program's own start, or the loader's, gets the stack and the registers unchanged from the kernel. */
#if defined(__x86_64__)
__asm__(".pushsection .text.transplant,\"ax\",@progbits\n"
	".globl transplant_start\n"
	".type transplant_start,@function\n"
	"transplant_start:\n"
	"\tendbr64\n"
	"\tmov %rsp, %rdi\n"
	"\tpush %rdx\n"
	"\tpush %rbp\n"
	"\tcall transplant_begin\n"
	"\tpop %rbp\n"
	"\tpop %rdx\n"
	"\tjmp *%rax\n"
	".size transplant_start, . - transplant_start\n"
	".popsection\n");
#elif defined(__aarch64__)
__asm__(".pushsection .text.transplant,\"ax\",@progbits\n"
	".globl transplant_start\n"
	".type transplant_start,@function\n"
	"transplant_start:\n"
	"\tmov x19, x0\n"
	"\tmov x0, sp\n"
	"\tbl transplant_begin\n"
	"\tmov x16, x0\n"
	"\tmov x0, x19\n"
	"\tmov x29, xzr\n"
	"\tmov x30, xzr\n"
	"\tbr x16\n"
	".size transplant_start, . - transplant_start\n"
	".popsection\n");
#endif

/* Runs the donor's constructors before main, since a program may forbid itself to open files after that; or at the first
 * call, which may come from a constructor of the program. By then there is a thread pointer. */

enum { not_started, starting, started };
static _Atomic int state;
static _Atomic long starter;

static __attribute__((noinline, cold)) void start(void)
{
	int before = not_started;
	if (atomic_compare_exchange_strong(&state, &before, starting)) {
		atomic_store(&starter, kernel(SYS_gettid, 0, 0, 0, 0, 0, 0));
		for (void (**constructor)(void) = transplant_init_start; constructor < transplant_init_end; constructor++)
			(*constructor)();
		atomic_store(&state, started);
		return;
	}
	if (before == starting && atomic_load(&starter) == kernel(SYS_gettid, 0, 0, 0, 0, 0, 0))
		return;
	while (atomic_load(&state) != started)
		kernel(SYS_sched_yield, 0, 0, 0, 0, 0, 0);
}

#define STARTED()                                                                                                         \
	do {                                                                                                               \
		if (__builtin_expect(atomic_load_explicit(&state, memory_order_acquire) != started, 0))                          \
			start();                                                                                                        \
	} while (0)

/* The donor's functions, under their names in a libc.a. */
HIDDEN void *__libc_malloc(size_t);
HIDDEN void *__libc_calloc(size_t, size_t);
HIDDEN void *__libc_realloc(void *, size_t);
HIDDEN void __libc_free(void *);
HIDDEN void __malloc_atfork(int);
size_t malloc_usable_size(void *);
void *memalign(size_t, size_t);
void *valloc(size_t);

#ifndef TRANSPLANT_LOADER
/* Replaces main for __libc_start_main. The statistics are written when it returns, unless exit does that. */
ENTRY int transplant_main(int count, char **arguments, char **variables)
{
	STARTED();
	int (*next)(int, char **, char **) = (int (*)(int, char **, char **))(transplant_base + transplant_parameters.main);
	int status = next(count, arguments, variables);
	if (!transplant_parameters.streams)
		report();
	return status;
}

/* Replaces musl's __libc_start_main, on architectures where the branch to it is redirected. There is no thread pointer
 * yet. */
ENTRY int transplant_libc_start_main(int (*main)(int, char **, char **), int count, char **arguments, void (*init)(void),
                                     void (*fini)(void), void (*loader)(void))
{
	typedef int start_main(int (*)(int, char **, char **), int, char **, void (*)(void), void (*)(void), void (*)(void));
	(void)main;
	start_main *next = (start_main *)(transplant_base + transplant_parameters.start_main);
	return next(transplant_main, count, arguments, init, fini, loader);
}

/* For programs whose start code reads the address of main from a table. */
ENTRY int (*volatile transplant_main_slot)(int, char **, char **)
	__attribute__((section(".data.transplant"))) = transplant_main;
#endif

/* The targets of the jumps at the program's entry points. */

ENTRY void *transplant_malloc(size_t n)
{
	STARTED();
	return __libc_malloc(n);
}

ENTRY void transplant_free(void *block)
{
	STARTED();
	__libc_free(block);
}

#ifndef TRANSPLANT_LOADER
ENTRY void *transplant_calloc(size_t count, size_t size)
{
	STARTED();
	return __libc_calloc(count, size);
}

ENTRY void *transplant_aligned_alloc(size_t alignment, size_t n)
{
	STARTED();
	return aligned_alloc(alignment, n);
}
#endif

ENTRY void *transplant_realloc(void *block, size_t n)
{
	STARTED();
	return __libc_realloc(block, n);
}

ENTRY void *transplant_reallocarray(void *block, size_t count, size_t size)
{
	STARTED();
	return reallocarray(block, count, size);
}

ENTRY void *transplant_memalign(size_t alignment, size_t n)
{
	STARTED();
	return memalign(alignment, n);
}

ENTRY int transplant_posix_memalign(void **result, size_t alignment, size_t n)
{
	STARTED();
	return posix_memalign(result, alignment, n);
}

ENTRY size_t transplant_usable_size(void *block)
{
	STARTED();
	return malloc_usable_size(block);
}

/* Replaces mallocng's __malloc_allzerop, which says whether a block is all zeros. The donor's blocks may not be, so
 * calloc clears them. */
ENTRY int transplant_is_zero(void *block)
{
	(void)block;
	return 0;
}

ENTRY void transplant_fork_hook(int who)
{
	STARTED();
	__malloc_atfork(who);
}

#ifdef TRANSPLANT_LOADER
#include "loader.h"
#endif

/* The self-test of a grafted program. It runs before the graft replaces the stock file, in a process of its own. Of the
 * program itself, only the entry points of the malloc family are executed, and they jump here.
 *
 * There is no libc yet, so this makes a thread pointer as musl would (src/env/__init_tls.c) and calls the family at the
 * program's own addresses. It ends the process: with 0 and one line, or with 1 and a line that says what failed. */
#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#if defined(__x86_64__)
#include <asm/prctl.h>
#endif

#include "parameters.h"
#include "selftest.h"
#include "system.h"

extern HIDDEN char transplant_base[];
extern HIDDEN volatile struct transplant_parameters transplant_parameters;

/* More than the size of struct pthread in any musl. */
#define THREAD_SIZE 4096

static void make_thread_pointer(void)
{
	volatile struct transplant_parameters *given = &transplant_parameters;
	uintptr_t image = (uintptr_t)transplant_base + given->tls_image;
	/* A multiple of every alignment that matters here. */
	size_t alignment = given->tls_alignment < 4096 ? 4096 : given->tls_alignment;
#if defined(__x86_64__)
	size_t before = given->tls_size + ((-given->tls_size - image) & (given->tls_alignment - 1)), after = 0;
#else
	/* Variant I: TLS is behind the thread pointer, at a distance of at least 16; musl's struct pthread is before it. */
	size_t before = THREAD_SIZE, after = 16 + ((image - 16) & (given->tls_alignment - 1));
#endif
	size_t whole = (before + after + given->tls_size + 2 * alignment + THREAD_SIZE + 4095) & -4096ul;
	long memory = kernel(SYS_mmap, 0, (long)whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if ((unsigned long)memory >= -4095UL)
		finish(1, "allograft self-test: no memory\n");
	uintptr_t pointer = ((uintptr_t)memory + before + alignment - 1) & -(uintptr_t)alignment;
#if defined(__x86_64__)
	*(uintptr_t *)pointer = pointer;
	memcpy((char *)pointer - before, (char *)image, given->tls_file_size);
	if (kernel(SYS_arch_prctl, ARCH_SET_FS, (long)pointer, 0, 0, 0, 0))
		finish(1, "allograft self-test: no thread pointer\n");
#else
	memcpy((char *)pointer + after, (char *)image, given->tls_file_size);
	__asm__ volatile("msr tpidr_el0, %0" : : "r"(pointer) : "memory");
#endif
}

static void *address(int call)
{
	uint64_t at = transplant_parameters.calls[call];
	return at ? transplant_base + at : 0;
}

static unsigned char mark(size_t index, size_t n)
{
	return (unsigned char)(index * 31 + n * 7 + 1);
}

static int holds(const unsigned char *block, size_t from, size_t to, unsigned char byte)
{
	for (size_t at = from; at < to; at++) {
		if (block[at] != byte)
			return 0;
	}
	return 1;
}

#define BLOCKS 512
static unsigned char *blocks[BLOCKS];
static size_t sizes[BLOCKS];

static void exercise(void)
{
	void *(*allocate)(size_t) = address(call_malloc);
	void (*release)(void *) = address(call_free);
	void *(*clear)(size_t, size_t) = address(call_calloc);
	void *(*resize)(void *, size_t) = address(call_realloc);
	void *(*align)(size_t, size_t) = address(call_aligned_alloc);
	int (*place)(void **, size_t, size_t) = address(call_posix_memalign);
	size_t (*usable)(void *) = address(call_usable_size);
	void (*hook)(int) = address(call_fork_hook);
	int *(*location)(void) = address(call_errno_location);
	EXPECT(allocate && release);
	if (location)
		EXPECT(location() == __errno_location());

	release(0);
	for (size_t i = 0; i < BLOCKS; i++) {
		size_t n = i < 300 ? i : i < 500 ? i * 37 : i * 5000;
		*__errno_location() = 77;
		blocks[i] = allocate(n);
		sizes[i] = n;
		EXPECT(blocks[i]);
		EXPECT(((uintptr_t)blocks[i] & 15) == 0);
		EXPECT(*__errno_location() == 77);
		if (usable)
			EXPECT(usable(blocks[i]) >= n);
		memset(blocks[i], mark(i, n), n);
	}
	if (hook) {
		hook(-1);
		hook(0);
	}
	for (size_t i = 0; i < BLOCKS; i++)
		EXPECT(holds(blocks[i], 0, sizes[i], mark(i, sizes[i])));
	for (size_t i = 1; i < BLOCKS; i += 2) {
		release(blocks[i]);
		blocks[i] = 0;
	}
	for (size_t i = 0; resize && i < BLOCKS; i += 2) {
		size_t before = sizes[i], after = i % 4 ? before / 2 + 1 : before * 2 + 3;
		unsigned char byte = mark(i, before);
		blocks[i] = resize(blocks[i], after);
		EXPECT(blocks[i]);
		EXPECT(holds(blocks[i], 0, before < after ? before : after, byte));
	}
	for (size_t i = 0; clear && i < 200; i++) {
		unsigned char *block = clear(i + 1, 3 * i + 1);
		EXPECT(block && holds(block, 0, (i + 1) * (3 * i + 1), 0));
		memset(block, 255, (i + 1) * (3 * i + 1));
		release(block);
	}
	for (size_t power = 16; power <= 65536; power *= 2) {
		void *block = align ? align(power, 100) : 0, *other = 0;
		EXPECT(!align || (block && !((uintptr_t)block & (power - 1))));
		EXPECT(!place || (!place(&other, power, 1000) && !((uintptr_t)other & (power - 1))));
		release(block);
		release(other);
	}
	*__errno_location() = 0;
	EXPECT(!allocate((size_t)PTRDIFF_MAX) && *__errno_location() == ENOMEM);
	if (clear) {
		*__errno_location() = 0;
		EXPECT(!clear(SIZE_MAX / 2, 3) && *__errno_location() == ENOMEM);
	}
	for (size_t i = 0; i < BLOCKS; i++)
		release(blocks[i]);
}

#ifdef TRANSPLANT_STRINGS
HIDDEN void transplant_exercise_strings(void);
#endif

HIDDEN void transplant_self_test(void)
{
	make_thread_pointer();
	exercise();
#ifdef TRANSPLANT_STRINGS
	transplant_exercise_strings();
#endif
	finish(0, "allograft self-test: ok\n");
}

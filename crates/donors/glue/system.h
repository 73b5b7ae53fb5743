/* The allocator's system calls, which are counted and have an errno of their own.
 *
 * free() must leave the program's errno alone (POSIX.1-2024; musl does), and a successful malloc() should: madvise and
 * mmap fail in normal operation. So `errno` is private inside the donor, and these wrappers preserve the program's. */
#ifndef GRAFT_SYSTEM_H
#define GRAFT_SYSTEM_H

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "early.h"
#include "ranges.h"

static __thread int graft_private_errno;

static __attribute__((noinline, cold)) void *graft_no_memory(void)
{
	errno = ENOMEM;
	return 0;
}

GRAFT_EARLY static _Atomic int64_t graft_reserved_bytes; /* address space currently mapped */
GRAFT_EARLY static _Atomic int64_t graft_reserved_peak;
GRAFT_EARLY static _Atomic int64_t graft_returned; /* bytes returned to the kernel so far, by munmap and madvise */

/* Raises the peak to `now` if that is greater. */
static void graft_raise(_Atomic int64_t *greatest, int64_t now)
{
	int64_t before = atomic_load_explicit(greatest, memory_order_relaxed);
	while (now > before && !atomic_compare_exchange_weak_explicit(greatest, &before, now, memory_order_relaxed,
	                                                              memory_order_relaxed))
		;
}

static void graft_account_reserved(int64_t bytes)
{
	graft_raise(&graft_reserved_peak,
	            atomic_fetch_add_explicit(&graft_reserved_bytes, bytes, memory_order_relaxed) + bytes);
}

static void graft_account_returned(int64_t bytes)
{
	atomic_fetch_add_explicit(&graft_returned, bytes, memory_order_relaxed);
}

static void *graft_mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
	int saved = errno;
	void *mapping = mmap(address, length, protection, flags, fd, offset);
	if (mapping == MAP_FAILED) {
		graft_private_errno = errno;
		errno = saved;
	} else {
		if (!(flags & MAP_FIXED))
			graft_account_reserved((int64_t)length);
		graft_note_range(mapping, length, graft_range_added | (protection == PROT_NONE ? 0 : graft_range_opened));
	}
	return mapping;
}

/* The range leaves the table first. Afterwards another thread may be given the same addresses, and have noted them. */
static int graft_munmap(void *address, size_t length)
{
	int saved = errno;
	graft_note_range(address, length, graft_range_removed);
	int result = munmap(address, length);
	if (result) {
		graft_private_errno = errno;
		errno = saved;
		graft_note_range(address, length, graft_range_added);
	} else {
		graft_account_reserved(-(int64_t)length);
		graft_account_returned((int64_t)length);
	}
	return result;
}

static int graft_madvise(void *address, size_t length, int advice)
{
	int saved = errno;
	int result = madvise(address, length, advice);
	if (result) {
		graft_private_errno = errno;
		errno = saved;
	} else if (advice == MADV_DONTNEED || advice == MADV_FREE) {
		graft_account_returned((int64_t)length);
	}
	return result;
}

static int graft_mprotect(void *address, size_t length, int protection)
{
	int saved = errno;
	int result = mprotect(address, length, protection);
	if (result) {
		graft_private_errno = errno;
		errno = saved;
	} else if (protection != PROT_NONE) {
		graft_note_range(address, length, graft_range_opened);
	}
	return result;
}

/* With MREMAP_FIXED, the target is one of the donor's mappings, of which `wanted` bytes are replaced. Only used by
 * donors that move pages. */
static __attribute__((unused)) void *graft_mremap(void *address, size_t length, size_t wanted, int flags, void *target)
{
	int saved = errno;
	bool fixed = flags & MREMAP_FIXED;
	graft_note_range(address, length, graft_range_removed);
	void *moved = mremap(address, length, wanted, flags, target);
	if (moved == MAP_FAILED) {
		graft_private_errno = errno;
		errno = saved;
		graft_note_range(address, length, graft_range_added);
		/* The kernel may have unmapped the target before it failed. */
		if (fixed)
			graft_note_range(target, wanted, graft_range_removed);
	} else {
		graft_account_reserved(fixed ? -(int64_t)length : (int64_t)wanted - (int64_t)length);
		graft_note_range(moved, wanted, graft_range_added | graft_range_opened);
	}
	return moved;
}

/* A clock in nanoseconds. On 32-bit architectures, musl has another name for the call with 32-bit words, which every kernel
 * has. */
static uint64_t graft_nanoseconds(int clock)
{
	long now[2] = {0};
	int saved = errno;
#ifdef SYS_clock_gettime32
	syscall(SYS_clock_gettime32, clock, now);
#else
	syscall(SYS_clock_gettime, clock, now);
#endif
	errno = saved;
	return (uint64_t)now[0] * 1000000000u + (uint64_t)now[1];
}

/* Attempts something until it is done, but for no more than a second. */
static void graft_try_for_a_second(bool (*attempt)(void))
{
	for (int i = 0; i < 1000 && !attempt(); i++) {
		long millisecond[2] = {0, 1000000};
		int saved = errno;
		syscall(SYS_nanosleep, millisecond, (void *)0);
		errno = saved;
	}
}

/* Writes a message with a plain system call: stdio would become a part of every program and has locks to wait for, and
 * write() is a cancellation point, which malloc must not be. Returns whether all of it could be written. */
static bool graft_write_to(int fd, const char *text, size_t length)
{
	int saved = errno;
	while (length) {
		long wrote = syscall(SYS_write, fd, text, length);
		if (wrote <= 0)
			break;
		text += wrote;
		length -= (size_t)wrote;
	}
	errno = saved;
	return length == 0;
}

static void graft_write(const char *text, size_t length)
{
	graft_write_to(STDERR_FILENO, text, length);
}

static int graft_fputs(const char *text)
{
	size_t length = 0;
	while (text[length])
		length++;
	graft_write(text, length);
	return 0;
}

#endif

/* GrapheneOS's hardened_malloc as a donor, in the default and the light configuration, with upstream's files unchanged.
 * Every call of malloc and free takes one of upstream's locks and never two, so a fork takes them all. The gate is not
 * used: it would add two atomic operations to every call. */
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <unistd.h>

/* The number of arenas used, out of those that upstream compiles in. Each arena has its own quarantine for every size
 * class, which fills only after thousands of frees: with four arenas, memory of the default configuration grows for a
 * long time. */
#define GRAFT_OPTIONS(X) X(arenas, DONOR_ARENAS, 1, N_ARENA, 0)

#include "gate.h"
#include "settings.h"
#include "system.h"

/* The lock that this thread holds, in case a signal handler interrupts it and forks. */
static __thread pthread_mutex_t *donor_held;

static int donor_mutex_lock(pthread_mutex_t *mutex)
{
	int error = pthread_mutex_lock(mutex);
	donor_held = mutex;
	return error;
}

static int donor_mutex_unlock(pthread_mutex_t *mutex)
{
	donor_held = 0;
	return pthread_mutex_unlock(mutex);
}

/* Upstream aborts if the kernel refuses for any other reason than a lack of memory. One such reason is that memory is
 * locked and the limit for that is reached (EAGAIN). For a program this is a lack of memory, too. */
static void *donor_mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
	void *mapping = graft_mmap(address, length, protection, flags, fd, offset);
	if (mapping == MAP_FAILED)
		graft_private_errno = ENOMEM;
	return mapping;
}

static int donor_munmap(void *address, size_t length)
{
	int result = graft_munmap(address, length);
	if (result)
		graft_private_errno = ENOMEM;
	return result;
}

static int donor_mprotect(void *address, size_t length, int protection)
{
	int result = graft_mprotect(address, length, protection);
	if (result)
		graft_private_errno = ENOMEM;
	return result;
}

static int donor_madvise(void *address, size_t length, int advice)
{
	int result = graft_madvise(address, length, advice);
	if (result)
		graft_private_errno = ENOMEM;
	return result;
}

/* Upstream moves pages onto others that it has mapped for them, so two mappings become one. */
static void *donor_mremap(void *old, size_t old_length, size_t length, int flags, ...)
{
	va_list more;
	va_start(more, flags);
	void *address = flags & MREMAP_FIXED ? va_arg(more, void *) : 0;
	va_end(more);
	void *moved = graft_mremap(old, old_length, length, flags, address);
	if (moved == MAP_FAILED)
		graft_private_errno = ENOMEM;
	return moved;
}

/* libc's getrandom is a cancellation point, and so is its write. */
static ssize_t donor_getrandom(void *bytes, size_t length, unsigned flags)
{
	int saved = errno;
	long result = syscall(SYS_getrandom, bytes, length, flags);
	if (result < 0)
		graft_private_errno = errno;
	errno = saved;
	return result;
}

static ssize_t donor_write(int fd, const void *text, size_t length)
{
	int saved = errno;
	long result = syscall(SYS_write, fd, text, length);
	if (result < 0)
		graft_private_errno = errno;
	errno = saved;
	return result;
}

#undef errno
#define errno graft_private_errno
#define mmap donor_mmap
#define munmap donor_munmap
#define mprotect donor_mprotect
#define madvise donor_madvise
#define mremap donor_mremap
#define getrandom donor_getrandom
#define write donor_write
#define pthread_mutex_lock donor_mutex_lock
#define pthread_mutex_unlock donor_mutex_unlock
/* The fork hook does this; pthread_atfork allocates in musl 1.2.4 and later, with a lock held. */
#define pthread_atfork(before, in_parent, in_child) 0
#define sysconf(name) ((long)getauxval(AT_PAGESZ))
#define fputs(text, file) graft_fputs(text)
/* libdivide calls this on a division by zero. */
#define fprintf(file, ...) 0
#define tls_model(model) tls_model("local-exec")

#include "chacha.c"
#include "memory.c"
#include "pages.c"
#include "random.c"
#include "util.c"
#include "h_malloc.c"

#undef tls_model
#undef fprintf
#undef fputs
#undef sysconf
#undef pthread_atfork
#undef pthread_mutex_unlock
#undef pthread_mutex_lock
#undef write
#undef getrandom
#undef mremap
#undef madvise
#undef mprotect
#undef munmap
#undef mmap
#undef errno
#define errno (*__errno_location())

/* Upstream aborts if it cannot make its initial reservation, which takes terabytes of address space. So this tries the
 * same reservation first, with as much of it writable as upstream will need. */
static bool donor_has_room(void)
{
	size_t state = sizeof(struct allocator_state), writable = offsetof(struct allocator_state, regions_a) + (1 << 20);
	size_t length = slab_region_size + state + 2 * (REAL_CLASS_REGION_SIZE + PAGE_SIZE) + (1 << 20);
	void *room = graft_mmap(0, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (room == MAP_FAILED)
		return false;
	bool fits = !graft_mprotect(room, writable, PROT_READ | PROT_WRITE);
	graft_munmap(room, length);
	return fits;
}

/* Runs at a thread's first call, and at the program's. */
static __attribute__((noinline, cold)) bool donor_begin(void)
{
	if (!is_init()) {
		if (!donor_has_room())
			return false;
		init_slow_path();
	}
#if N_ARENA > 1
	thread_arena = thread_arena_counter++ % (unsigned)graft_options.entries[graft_option_arenas].value;
#endif
	return true;
}

static inline bool donor_is_ready(void)
{
#if N_ARENA > 1
	return likely(thread_arena < N_ARENA) || donor_begin();
#else
	return likely(is_init()) || donor_begin();
#endif
}

/* Returns freed blocks in quarantine to the kernel, if there are enough of them to matter for a request of `n` bytes that
 * has failed. */
static __attribute__((noinline, cold)) bool donor_empty_quarantine(size_t n)
{
	struct region_allocator *ra = ro.region_allocator;
	size_t held = 0;
	mutex_lock(&ra->lock);
	for (size_t i = 0; i < REGION_QUARANTINE_RANDOM_LENGTH; i++)
		held += ra->quarantine_random[i].size;
	for (size_t i = 0; i < REGION_QUARANTINE_QUEUE_LENGTH; i++)
		held += ra->quarantine_queue[i].size;
	bool matters = held && held >= n;
	for (size_t i = 0; matters && i < REGION_QUARANTINE_RANDOM_LENGTH + REGION_QUARANTINE_QUEUE_LENGTH; i++) {
		struct quarantine_info *at = i < REGION_QUARANTINE_RANDOM_LENGTH
		                                 ? &ra->quarantine_random[i]
		                                 : &ra->quarantine_queue[i - REGION_QUARANTINE_RANDOM_LENGTH];
		if (at->p && !graft_munmap(at->p, at->size))
			*at = (struct quarantine_info){0};
	}
	mutex_unlock(&ra->lock);
	return matters;
}

static inline void *donor_malloc(size_t n)
{
	if (unlikely(!donor_is_ready()))
		return graft_no_memory();
	void *block = h_malloc(n);
	if (unlikely(!block) && donor_empty_quarantine(n))
		block = h_malloc(n);
	return likely(block != 0) ? block : graft_no_memory();
}

/* Memory is cleared when it is freed. */
static inline void *donor_zalloc(size_t n)
{
	static_assert(ZERO_ON_FREE, "malloc gives zeros");
	return donor_malloc(n);
}

/* If a block cannot be made smaller, it stays unchanged. */
static inline void *donor_realloc(void *block, size_t n)
{
	if (!block)
		return donor_malloc(n);
	void *moved = h_realloc(block, n);
	if (likely(moved != 0))
		return moved;
	if (h_malloc_usable_size(block) >= n)
		return block;
	if (donor_empty_quarantine(n) && (moved = h_realloc(block, n)))
		return moved;
	return graft_no_memory();
}

static inline void *donor_aligned(size_t alignment, size_t n)
{
	if (unlikely(!donor_is_ready()))
		return graft_no_memory();
	void *block = h_aligned_alloc(alignment, n);
	if (unlikely(!block) && donor_empty_quarantine(n))
		block = h_aligned_alloc(alignment, n);
	return likely(block != 0) ? block : graft_no_memory();
}

static inline void donor_free(void *block)
{
	h_free(block);
}

static inline size_t donor_usable(const void *block)
{
	return h_malloc_usable_size((void *)block);
}

static void donor_start(void)
{
	if (!is_init() && donor_has_room())
		init_slow_path();
}

/* Applies the operation to every lock in a fixed order, except the one that the interrupted thread itself holds. */
static void donor_each_lock(int (*operation)(pthread_mutex_t *))
{
	pthread_mutex_t *held = donor_held;
	if (held != &init_lock.lock)
		operation(&init_lock.lock);
	if (is_init() && held != &ro.region_allocator->lock.lock)
		operation(&ro.region_allocator->lock.lock);
	for (unsigned i = 0; is_init() && i < N_ARENA * N_SIZE_CLASSES; i++) {
		pthread_mutex_t *lock = &ro.size_class_metadata[i / N_SIZE_CLASSES][i % N_SIZE_CLASSES].lock.lock;
		if (lock != held)
			operation(lock);
	}
}

static int donor_renew(pthread_mutex_t *mutex)
{
	return pthread_mutex_init(mutex, 0);
}

static void donor_before_fork(void)
{
	donor_each_lock(pthread_mutex_lock);
}

static void donor_after_fork(void)
{
	donor_each_lock(pthread_mutex_unlock);
}

static void donor_after_fork_in_child(void)
{
	donor_each_lock(donor_renew);
}

/* Gives the child new random state: once from the kernel, and from that for the others, as at the start. */
static void donor_fork_child(void)
{
	if (!is_init())
		return;
	struct random_state *source = &ro.region_allocator->rng;
	random_state_init(source);
	for (unsigned i = 0; i < N_ARENA * N_SIZE_CLASSES; i++)
		random_state_init_from_random_state(&ro.size_class_metadata[i / N_SIZE_CLASSES][i % N_SIZE_CLASSES].rng, source);
}

/* The hook in family.h shuts the gate; here, these functions take the locks instead. */
#define graft_gate_shut_for_fork donor_before_fork
#define graft_gate_open_in_parent donor_after_fork
#define graft_gate_open_in_child donor_after_fork_in_child
#include "family.h"

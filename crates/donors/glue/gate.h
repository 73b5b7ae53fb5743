/* The fork gate: a fork happens only while no thread is inside the allocator's shared state.
 *
 * An allocator made for dynamic programs takes its locks in many places and in no single order, so it has no way to
 * take all locks before a fork. The gate does the reverse. A thread that enters a slow path (it fetches, frees or
 * abandons a page, takes a lock, or ends) counts itself into a lane. The fork hook shuts the gate and waits until every
 * lane is empty. At the moment of the fork, no lock is held and no list is half changed. Only lock-free fast paths may
 * be running, and they touch nothing that the child shares with a thread that it does not have.
 *
 * musl calls the hook with its own locks held (src/process/fork.c), so code behind the gate must not take any of libc's
 * locks. */
#ifndef GRAFT_GATE_H
#define GRAFT_GATE_H

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Each lane serves a few threads and has its own cache line, so that threads do not contend when they count themselves
 * in. */
#define GRAFT_LANES 64
struct graft_lane {
	_Alignas(64) _Atomic uint32_t inside;
};
static struct graft_lane graft_lanes[GRAFT_LANES];
static _Atomic uint32_t graft_gate_shut;
static __thread uint32_t graft_gate_depth;

static struct graft_lane *graft_lane_of_this_thread(void)
{
	/* Each thread's static TLS block is in a mapping of its own, so their page numbers differ. */
	uint64_t page = (uintptr_t)&graft_gate_depth >> 12;
	return &graft_lanes[(page * 0x9e3779b97f4a7c15u) >> 58];
}

static void graft_futex(_Atomic uint32_t *word, int operation, uint32_t value)
{
	int saved = errno;
	syscall(SYS_futex, word, operation | FUTEX_PRIVATE_FLAG, value, (void *)0);
	errno = saved;
}

static __attribute__((noinline, cold)) void graft_gate_wait(struct graft_lane *lane)
{
	do {
		atomic_fetch_sub(&lane->inside, 1);
		while (atomic_load(&graft_gate_shut))
			graft_futex(&graft_gate_shut, FUTEX_WAIT, 1);
		atomic_fetch_add(&lane->inside, 1);
	} while (atomic_load(&graft_gate_shut));
}

/* Enters the gate; calls nest. Both operations are sequentially consistent, so either this thread sees the gate shut, or
 * the forking thread sees this thread inside. */
static inline void graft_gate_enter(void)
{
	if (graft_gate_depth++ != 0)
		return;
	struct graft_lane *lane = graft_lane_of_this_thread();
	atomic_fetch_add(&lane->inside, 1);
	if (__builtin_expect(atomic_load(&graft_gate_shut), 0))
		graft_gate_wait(lane);
}

static inline void graft_gate_leave(void)
{
	if (--graft_gate_depth != 0)
		return;
	atomic_fetch_sub_explicit(&graft_lane_of_this_thread()->inside, 1, memory_order_release);
}

/* Runs before the fork. If a signal handler that interrupted the allocator forks, its own thread is inside; the wait does
 * not include that count. */
static void graft_gate_shut_for_fork(void)
{
	uint32_t open = 0;
	while (!atomic_compare_exchange_strong(&graft_gate_shut, &open, 1)) {
		graft_futex(&graft_gate_shut, FUTEX_WAIT, 1);
		open = 0;
	}
	struct graft_lane *own = graft_lane_of_this_thread();
	for (int i = 0; i < GRAFT_LANES; i++) {
		uint32_t expected = &graft_lanes[i] == own && graft_gate_depth ? 1 : 0;
		while (atomic_load(&graft_lanes[i].inside) > expected)
			sched_yield();
	}
}

static void graft_gate_open_in_parent(void)
{
	atomic_store(&graft_gate_shut, 0);
	graft_futex(&graft_gate_shut, FUTEX_WAKE, INT32_MAX);
}

/* The child has one thread. The counts of the others, which were waiting at the gate, are cleared. */
static void graft_gate_open_in_child(void)
{
	for (int i = 0; i < GRAFT_LANES; i++)
		atomic_store(&graft_lanes[i].inside, 0);
	if (graft_gate_depth)
		atomic_store(&graft_lane_of_this_thread()->inside, 1);
	atomic_store(&graft_gate_shut, 0);
}

#ifdef GRAFT_SHARED
#include "shared_mutex.h"
#endif

/* Mutexes of the allocator are taken behind the gate, so none is held while a fork happens. */
static inline int graft_mutex_lock(pthread_mutex_t *mutex)
{
	graft_gate_enter();
	int error = pthread_mutex_lock(mutex);
	if (error)
		graft_gate_leave();
	return error;
}

static inline int graft_mutex_trylock(pthread_mutex_t *mutex)
{
	graft_gate_enter();
	int error = pthread_mutex_trylock(mutex);
	if (error)
		graft_gate_leave();
	return error;
}

static inline int graft_mutex_unlock(pthread_mutex_t *mutex)
{
	int error = pthread_mutex_unlock(mutex);
	graft_gate_leave();
	return error;
}

#ifdef GRAFT_SHARED
/* The allocator's calls by these names are redirected to the functions above. */
#undef pthread_mutex_lock
#undef pthread_mutex_trylock
#undef pthread_mutex_unlock
#endif

#endif

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

#include "early.h"

/* Each thread has a lane of its own, and each lane its own cache line, so that threads do not contend when they count
 * themselves in; only among more than GRAFT_LANES threads some share one. The first lane, of the first thread that comes,
 * is apart: a program without threads leaves the table alone. */
#define GRAFT_LANES 256
struct graft_lane {
	_Alignas(64) _Atomic uint32_t inside;
};
GRAFT_EARLY static struct graft_lane graft_first_lane;
static struct graft_lane graft_other_lanes[GRAFT_LANES - 1];
GRAFT_EARLY static _Atomic uint32_t graft_gate_shut;
/* How many threads have taken a lane so far. */
GRAFT_EARLY static _Atomic uint32_t graft_lanes_taken;
static __thread uint32_t graft_gate_depth;
static __thread uint32_t graft_lane_number; /* from 1; 0: none yet */

static struct graft_lane *graft_lane_at(uint32_t index)
{
	return index ? &graft_other_lanes[index - 1] : &graft_first_lane;
}

static struct graft_lane *graft_lane_of_this_thread(void)
{
	if (__builtin_expect(!graft_lane_number, 0))
		graft_lane_number = 1 + atomic_fetch_add(&graft_lanes_taken, 1) % GRAFT_LANES;
	return graft_lane_at(graft_lane_number - 1);
}

/* A thread that takes a lane after this finds the gate shut, if it was shut before. */
static uint32_t graft_lanes_in_use(void)
{
	uint32_t taken = atomic_load(&graft_lanes_taken);
	return taken < GRAFT_LANES ? taken : GRAFT_LANES;
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
	struct graft_lane *own = graft_gate_depth ? graft_lane_of_this_thread() : 0;
	for (uint32_t i = 0, count = graft_lanes_in_use(); i < count; i++) {
		struct graft_lane *lane = graft_lane_at(i);
		while (atomic_load(&lane->inside) > (lane == own ? 1 : 0))
			sched_yield();
	}
}

static void graft_gate_open_in_parent(void)
{
	atomic_store(&graft_gate_shut, 0);
	graft_futex(&graft_gate_shut, FUTEX_WAKE, INT32_MAX);
}

/* The child has one thread. The counts of the others, which were waiting at the gate, are cleared. Its own stays: a signal
 * handler that forks may have come before or after its thread was counted. */
static void graft_gate_open_in_child(void)
{
	struct graft_lane *own = graft_gate_depth ? graft_lane_of_this_thread() : 0;
	for (uint32_t i = 0, count = graft_lanes_in_use(); i < count; i++) {
		struct graft_lane *lane = graft_lane_at(i);
		uint32_t most = lane == own ? 1 : 0;
		if (atomic_load(&lane->inside) > most)
			atomic_store(&lane->inside, most);
	}
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

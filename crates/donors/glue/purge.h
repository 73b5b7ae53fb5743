/* A thread that gives free memory back while nobody calls the allocator: the option purge_period. Off by default, since a
 * program may notice that it has a thread more: docs/donors.md tells where.
 *
 * A donor defines GRAFT_HAS_PURGE and donor_purge(), which gives back what is due, from any thread. The thread is libc's
 * own, by pthread_create. So setuid and its like reach it, and every fork calls the allocator's hook. */
#ifndef GRAFT_PURGE_H
#define GRAFT_PURGE_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "count.h"
#include "settings.h"
#include "thread.h"

static _Atomic bool graft_purger_is_due;

static int64_t graft_purge_period(void)
{
	return graft_options.entries[graft_option_purge_period].value;
}

static void *graft_purge_by_period(void *argument)
{
	int64_t period = graft_purge_period();
	for (;;) {
		long time[2] = {(long)(period / 1000), (long)(period % 1000 * 1000000)};
		syscall(SYS_nanosleep, time, (void *)0);
		donor_purge();
	}
	return argument;
}

/* The thread takes none of the program's signals. Those that libc itself sends to its threads stay: 32 to 34, of which
 * setuid needs one (musl src/thread/synccall.c, glibc sysdeps/unix/sysv/linux/setxid). If no thread can be started,
 * memory is returned like without one. */
static void graft_start_purger(void)
{
	uint64_t blocked = ~((uint64_t)7 << 31), before;
	pthread_t thread;
	int saved = errno;
	if (graft_purge_period() <= 0 || !pthread_create)
		return;
	if (!syscall(SYS_rt_sigprocmask, SIG_SETMASK, &blocked, &before, sizeof before)) {
		pthread_create(&thread, 0, graft_purge_by_period, 0);
		syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, (void *)0, sizeof before);
	}
	errno = saved;
}

/* The child of a fork has no such thread. libc's locks may be held in the hook, so the thread starts at the child's next
 * call of malloc or free; a child that only calls exec needs none. */
static void graft_purge_in_child(void)
{
	if (graft_purge_period() <= 0)
		return;
	atomic_store(&graft_purger_is_due, true);
	graft_take_detour(graft_detour_purger);
}

static void graft_start_due_purger(void)
{
	if (!atomic_exchange(&graft_purger_is_due, false))
		return;
	__atomic_fetch_and(&graft_detour, (uint16_t)~graft_detour_purger, __ATOMIC_RELAXED);
	graft_start_purger();
}

#endif

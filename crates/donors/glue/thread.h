/* The end of threads: a pthread key whose destructor runs after all others.
 *
 * musl calls no allocator hook at a thread's end, so the destructor of a key does the work. musl runs destructors in the
 * order of their keys' numbers, in at most four rounds (src/thread/pthread_key_create.c). If another destructor allocates
 * after this one, the thread gets a new heap, which the next round gives up. But nothing gives up a heap after the last
 * round, and it would be lost. So this key is the last one there is: its destructor runs last in each round. */
#ifndef GRAFT_THREAD_H
#define GRAFT_THREAD_H

#include <errno.h>
#include <limits.h>
#include <pthread.h>

#include "early.h"
#include "host.h"

/* Null in a program that cannot start threads, since it is linked without libc.a's member with pthread_create. */
extern __typeof(pthread_create) pthread_create __attribute__((weak));

/* A thread that is cancelled asynchronously jumps to its end from any place. In musl 1.2.3, its stack is then aligned to
 * 8 bytes only (src/thread/pthread_cancel.c; 1.2.5 continues in the signal's frame, which is aligned), but compilers
 * assume 16. */
#if defined(__x86_64__) || defined(__i386__)
#define GRAFT_REALIGNS __attribute__((force_align_arg_pointer))
#else
#define GRAFT_REALIGNS
#endif

GRAFT_EARLY static void (*graft_thread_destructor)(void *);

GRAFT_REALIGNS static void graft_end_thread(void *argument)
{
	graft_thread_destructor(argument);
}

/* Makes the one destructor of the process. A key's number cannot be chosen, so this takes every key, keeps the last, and
 * releases the others. Called before there are threads, and never in programs without threads.
 *
 * glibc keeps the values of the first 32 keys in the thread itself and allocates for others (nptl/descr.h,
 * PTHREAD_KEY_2NDLEVEL_SIZE), which must not happen for an allocator's own key. It gives out the lowest free key, so a
 * program's first 31 keys precede this one. musl continues behind the key that it gave out last, so nothing less than all
 * of its keys will do. */
static int graft_key_create(pthread_key_t *key, void (*destructor)(void *))
{
	enum { GLIBC_KEYS = 32 };
	pthread_key_t taken[PTHREAD_KEYS_MAX];
	int count = 0, last = 0, most = graft_host_is_glibc() ? GLIBC_KEYS : PTHREAD_KEYS_MAX;
	if (!pthread_create || (graft_thread_destructor && graft_thread_destructor != destructor))
		return EAGAIN;
	graft_thread_destructor = destructor;
	while (count < most && !pthread_key_create(&taken[count], graft_end_thread)) {
		if (taken[count] > taken[last])
			last = count;
		count++;
	}
	if (!count)
		return EAGAIN;
	*key = taken[last];
	for (int i = 0; i < count; i++) {
		if (i != last)
			pthread_key_delete(taken[i]);
	}
	return 0;
}

#endif

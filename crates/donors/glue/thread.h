/* The end of threads: a pthread key whose destructor runs after all others.
 *
 * musl has no hook for an allocator at a thread's end, so it takes a key's destructor. musl runs destructors in the order of
 * their keys' numbers, in at most four rounds (src/thread/pthread_key_create.c). What other destructors allocate after ours
 * gives the thread a heap again, and the next round ends that one too; but after the last round there is none, and the heap
 * of every thread that got so far would be lost. So ours is the last key there is: last in each round, hence last of all. */
#ifndef GRAFT_THREAD_H
#define GRAFT_THREAD_H

#include <errno.h>
#include <limits.h>
#include <pthread.h>

/* Null in a program that cannot start threads: its libc.a's member with pthread_create is not linked in. */
extern __typeof(pthread_create) pthread_create __attribute__((weak));

/* A thread that was cancelled asynchronously goes from wherever it was straight into its end, and musl 1.2.3 has it do so on a
 * stack that is aligned to 8 bytes only (src/thread/pthread_cancel.c; 1.2.5 goes on in the signal's frame, which is aligned).
 * Compilers take 16 for granted. */
#if defined(__x86_64__) || defined(__i386__)
#define GRAFT_REALIGNS __attribute__((force_align_arg_pointer))
#else
#define GRAFT_REALIGNS
#endif

static void (*graft_thread_destructor)(void *);

GRAFT_REALIGNS static void graft_end_thread(void *argument)
{
	graft_thread_destructor(argument);
}

/* One destructor for the process. There is no asking for a number: take every key, keep the last, give back the others. Called before there are threads;
 * programs without threads do not get here. */
#ifdef GRAFT_SHARED
/* glibc keeps the values of the first 32 keys in the thread itself, and allocates for those beyond (nptl/descr.h,
 * PTHREAD_KEY_2NDLEVEL_SIZE), which an allocator's own key must not have it do. musl has 128 (include/limits.h). */
#undef PTHREAD_KEYS_MAX
#define PTHREAD_KEYS_MAX 32
#endif

static int graft_key_create(pthread_key_t *key, void (*destructor)(void *))
{
	pthread_key_t taken[PTHREAD_KEYS_MAX];
	int count = 0, last = 0;
	if (!pthread_create || (graft_thread_destructor && graft_thread_destructor != destructor))
		return EAGAIN;
	graft_thread_destructor = destructor;
	while (count < PTHREAD_KEYS_MAX && !pthread_key_create(&taken[count], graft_end_thread)) {
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

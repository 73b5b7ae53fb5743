/* Mutexes for a donor that is a shared object. It is compiled with musl's headers, but also serves programs of glibc,
 * whose pthread_mutex_t has a different layout, and on aarch64 a different size. So has its pthread_mutexattr_t: 8
 * bytes, where musl's has 4. So neither is passed to any function of libc. These mutexes use the first word of musl's:
 * 0 free, 1 held, 2 held and waited for (U. Drepper, Futexes Are Tricky, mutex 2). A zeroed mutex is free, like
 * PTHREAD_MUTEX_INITIALIZER. */
#ifndef GRAFT_SHARED_MUTEX_H
#define GRAFT_SHARED_MUTEX_H

static inline _Atomic uint32_t *graft_mutex_word(pthread_mutex_t *mutex)
{
	return (_Atomic uint32_t *)(void *)mutex;
}

static inline int graft_shared_trylock(pthread_mutex_t *mutex)
{
	uint32_t free = 0;
	return atomic_compare_exchange_strong(graft_mutex_word(mutex), &free, 1) ? 0 : EBUSY;
}

static inline int graft_shared_lock(pthread_mutex_t *mutex)
{
	_Atomic uint32_t *word = graft_mutex_word(mutex);
	if (!graft_shared_trylock(mutex))
		return 0;
	while (atomic_exchange(word, 2))
		graft_futex(word, FUTEX_WAIT, 2);
	return 0;
}

static inline int graft_shared_unlock(pthread_mutex_t *mutex)
{
	_Atomic uint32_t *word = graft_mutex_word(mutex);
	if (atomic_exchange(word, 0) == 2)
		graft_futex(word, FUTEX_WAKE, 1);
	return 0;
}

static inline int graft_shared_destroy(pthread_mutex_t *mutex)
{
	(void)mutex;
	return 0;
}

static inline int graft_shared_init(pthread_mutex_t *mutex, const pthread_mutexattr_t *attributes)
{
	(void)attributes;
	atomic_store(graft_mutex_word(mutex), 0);
	return 0;
}

/* Donors ask for the plain kind only. */
static inline int graft_shared_attributes(pthread_mutexattr_t *attributes)
{
	(void)attributes;
	return 0;
}

#define pthread_mutex_init graft_shared_init
#define pthread_mutexattr_init graft_shared_attributes
#define pthread_mutexattr_destroy graft_shared_attributes
#define pthread_mutexattr_settype(attributes, type) ((void)(type), graft_shared_attributes(attributes))
#define pthread_mutex_lock graft_shared_lock
#define pthread_mutex_trylock graft_shared_trylock
#define pthread_mutex_unlock graft_shared_unlock
#define pthread_mutex_destroy graft_shared_destroy

#endif

/* Shared by the glue and the units compiled apart from it (upstream's own files, C++): the gate, the system calls, the
 * private errno. Only the glue's unit has GRAFT_DONOR; there this file defines the functions, elsewhere it declares them.
 * All of it stays inside the donor's object. */
#ifndef GRAFT_APART_H
#define GRAFT_APART_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
#define GRAFT_APART extern "C" __attribute__((visibility("hidden")))
#else
#define GRAFT_APART __attribute__((visibility("hidden")))
#endif

GRAFT_APART void graft_apart_enter(void);
GRAFT_APART void graft_apart_leave(void);
GRAFT_APART int graft_apart_mutex_lock(pthread_mutex_t *mutex);
GRAFT_APART int graft_apart_mutex_trylock(pthread_mutex_t *mutex);
GRAFT_APART int graft_apart_mutex_unlock(pthread_mutex_t *mutex);
GRAFT_APART int graft_apart_key_create(pthread_key_t *key, void (*destructor)(void *));
GRAFT_APART void *graft_apart_mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset);
GRAFT_APART int graft_apart_munmap(void *address, size_t length);
GRAFT_APART int graft_apart_madvise(void *address, size_t length, int advice);
GRAFT_APART int graft_apart_mprotect(void *address, size_t length, int protection);
GRAFT_APART int *graft_apart_errno(void);
GRAFT_APART void *graft_apart_no_memory(void);
GRAFT_APART void graft_apart_write(const char *text, size_t length);
GRAFT_APART const char *graft_apart_variable(const char *name);
GRAFT_APART uint64_t graft_apart_random(void);

#ifdef GRAFT_DONOR
#include "gate.h"
#include "random.h"
#include "settings.h"
#include "system.h"
#include "thread.h"

void graft_apart_enter(void)
{
	graft_gate_enter();
}

void graft_apart_leave(void)
{
	graft_gate_leave();
}

int graft_apart_mutex_lock(pthread_mutex_t *mutex)
{
	return graft_mutex_lock(mutex);
}

int graft_apart_mutex_trylock(pthread_mutex_t *mutex)
{
	return graft_mutex_trylock(mutex);
}

int graft_apart_mutex_unlock(pthread_mutex_t *mutex)
{
	return graft_mutex_unlock(mutex);
}

int graft_apart_key_create(pthread_key_t *key, void (*destructor)(void *))
{
	return graft_key_create(key, destructor);
}

void *graft_apart_mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
	return graft_mmap(address, length, protection, flags, fd, offset);
}

int graft_apart_munmap(void *address, size_t length)
{
	return graft_munmap(address, length);
}

int graft_apart_madvise(void *address, size_t length, int advice)
{
	return graft_madvise(address, length, advice);
}

int graft_apart_mprotect(void *address, size_t length, int protection)
{
	return graft_mprotect(address, length, protection);
}

int *graft_apart_errno(void)
{
	return &graft_private_errno;
}

void *graft_apart_no_memory(void)
{
	return graft_no_memory();
}

void graft_apart_write(const char *text, size_t length)
{
	graft_write(text, length);
}

const char *graft_apart_variable(const char *name)
{
	return graft_variable(name);
}

uint64_t graft_apart_random(void)
{
	return graft_random();
}
#endif

#endif

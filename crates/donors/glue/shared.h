/* The fork hook of a donor that is a shared object. The libc's fork does not call it, so it is registered as handlers.
 * The first constructors register them, so they are called last before a fork and first after it, except for handlers of
 * libraries whose constructors ran before. Such a handler may allocate between ours and the fork: the forking thread
 * counts as inside the gate, so it passes. */
#ifndef GRAFT_SHARED_H
#define GRAFT_SHARED_H

/* glibc's pthread_atfork is not a dynamic symbol: it is linked into each caller, and calls this (nptl/pthread_atfork.c). */
extern int __register_atfork(void (*)(void), void (*)(void), void (*)(void), void *) __attribute__((weak));
extern int pthread_atfork(void (*)(void), void (*)(void), void (*)(void)) __attribute__((weak));

static void graft_before_fork(void)
{
	__malloc_atfork(-1);
	graft_gate_depth++;
}

static void graft_after_fork_in_parent(void)
{
	graft_gate_depth--;
	__malloc_atfork(0);
}

static void graft_after_fork_in_child(void)
{
	graft_gate_depth--;
	__malloc_atfork(1);
}

static void graft_register_fork(void)
{
	if (__register_atfork)
		__register_atfork(graft_before_fork, graft_after_fork_in_parent, graft_after_fork_in_child, 0);
	else if (pthread_atfork)
		pthread_atfork(graft_before_fork, graft_after_fork_in_parent, graft_after_fork_in_child);
}

#endif

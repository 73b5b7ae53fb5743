/* The fork hook of a donor that is a shared object. The libc's fork does not call it, so it is registered as handlers.
 * The first constructors register them, so they are called last before a fork and first after it, except for handlers of
 * libraries whose constructors ran before. Such a handler may allocate between ours and the fork: the forking thread
 * counts as inside the gate, so it passes. */
#ifndef GRAFT_SHARED_H
#define GRAFT_SHARED_H

#include "libc_symbols.h"

/* glibc's pthread_atfork is not a dynamic symbol: it is linked into each caller, and calls this (nptl/pthread_atfork.c). */
extern int __register_atfork(void (*)(void), void (*)(void), void (*)(void), void *) __attribute__((weak));
extern int pthread_atfork(void (*)(void), void (*)(void), void (*)(void)) __attribute__((weak));

/* glibc alone hands arguments to constructors; in musl they are whatever was in the registers. */
static void graft_take_environment(char **environment)
{
	if (graft_host_is_glibc())
		graft_given_environment = environment;
}

/* What is made read-only once everything is relocated, where the donor has been merged into a program: the loader does
 * so for the program's own part only (PT_GNU_RELRO). `allograft graft` fills in up to two ranges, as distances from here
 * and sizes (crates/format/src/sealed.rs). */
__attribute__((used)) static const volatile struct {
	uint64_t magic, format;
	struct {
		uint64_t distance, size;
	} ranges[2];
} graft_sealed = {0x4445414c45534741, 1, {{0, 0}, {0, 0}}};

static void graft_seal(void)
{
	for (int i = 0; i < 2; i++) {
		if (graft_sealed.ranges[i].size)
			mprotect((char *)(uintptr_t)&graft_sealed + graft_sealed.ranges[i].distance, graft_sealed.ranges[i].size,
			         PROT_READ);
	}
}

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

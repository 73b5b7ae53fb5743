/* Numbers that differ from process to process and from call to call, without a system call: a filter that was made for
 * stock malloc may kill the program at getrandom. They are not secret: each follows from sixteen bytes that the kernel
 * gave the program at its start (AT_RANDOM, getauxval(3)), of which the first eight are libc's stack protector. */
#ifndef GRAFT_RANDOM_H
#define GRAFT_RANDOM_H

#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/auxv.h>

#include "early.h"

/* The finisher of splitmix64, so that successive calls give unrelated numbers. */
static inline uint64_t graft_random(void)
{
	GRAFT_EARLY static _Atomic uint32_t count;
	const char *given = (const char *)getauxval(AT_RANDOM);
	uint64_t random = 0;
	if (given)
		memcpy(&random, given + 8, sizeof random);
	random += (atomic_fetch_add_explicit(&count, 1, memory_order_relaxed) + 1) * UINT64_C(0x9e3779b97f4a7c15);
	random = (random ^ random >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	random = (random ^ random >> 27) * UINT64_C(0x94d049bb133111eb);
	return random ^ random >> 31;
}

#endif

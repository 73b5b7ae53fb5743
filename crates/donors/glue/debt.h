/* Bounded debt: free memory that waits for its next use, and a bound above which it goes back at once. What only waits for
 * a time goes back when somebody calls the allocator after it, so an idle process would keep all of it.
 *
 * A donor has one such state for each place where memory waits: a thread, an arena, a size class. Its bound is the greatest
 * of purge_debt, an eighth of what is in use there, and a credit. The credit is for programs that free memory and need it
 * again: eight times what went back and was needed again, up to purge_credit, or four times what is in use there. It is a
 * 64th less after each return.
 *
 * If two threads change a state at once, a change may be lost: then the credit is off by one step. */
#ifndef GRAFT_DEBT_H
#define GRAFT_DEBT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "options.h"

/* In bytes: what went back and was not needed again so far, and the credit. */
struct graft_debt {
	_Atomic size_t returned, credit;
};

static size_t graft_debt_load(const _Atomic size_t *value)
{
	return atomic_load_explicit(value, memory_order_relaxed);
}

static void graft_debt_store(_Atomic size_t *value, size_t to)
{
	atomic_store_explicit(value, to, memory_order_relaxed);
}

static bool graft_debt_is_bounded(void)
{
	return graft_options.entries[graft_option_purge_debt].value >= 0;
}

/* Returns how many of the waiting bytes have to go back, with so many in use: none up to the bound, then all but half of
 * it, so that it is not for every page. */
static size_t graft_debt_excess(const struct graft_debt *debt, size_t waiting, size_t in_use)
{
	size_t bound = (size_t)graft_options.entries[graft_option_purge_debt].value << 10;
	size_t most = (size_t)graft_options.entries[graft_option_purge_credit].value << 10;
	size_t credit = graft_debt_load(&debt->credit);
	if (!graft_debt_is_bounded())
		return 0;
	if (most && most / 4 < in_use)
		most = 4 * in_use;
	if (credit > most)
		credit = most;
	if (bound < credit)
		bound = credit;
	if (bound < in_use / 8)
		bound = in_use / 8;
	return waiting > bound ? waiting - bound / 2 : 0;
}

/* So many bytes went back. */
static void graft_debt_give_back(struct graft_debt *debt, size_t bytes)
{
	size_t credit = graft_debt_load(&debt->credit);
	graft_debt_store(&debt->credit, credit - credit / 64);
	graft_debt_store(&debt->returned, graft_debt_load(&debt->returned) + bytes);
}

/* So many bytes are in use again that did not wait. */
static void graft_debt_take(struct graft_debt *debt, size_t bytes)
{
	size_t returned = graft_debt_load(&debt->returned);
	size_t again = bytes < returned ? bytes : returned;
	if (!again)
		return;
	graft_debt_store(&debt->returned, returned - again);
	graft_debt_store(&debt->credit, graft_debt_load(&debt->credit) + 8 * again);
}

/* Takes up to so many bytes off what waits for several threads, and returns how many. */
static inline size_t graft_debt_withdraw(_Atomic size_t *waiting, size_t bytes)
{
	size_t all = graft_debt_load(waiting), part;
	do
		part = bytes < all ? bytes : all;
	while (part && !atomic_compare_exchange_weak_explicit(waiting, &all, all - part, memory_order_relaxed, memory_order_relaxed));
	return part;
}

#endif

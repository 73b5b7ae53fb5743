/* Upstream's allocator without two parts for Android only: hooks that a program may define, and a depot of stack traces
 * that takes 4 MiB and is filled by a function of Android's C library. */
#ifndef GRAFT_SCUDO_UPSTREAM_H
#define GRAFT_SCUDO_UPSTREAM_H

#include "internal_defs.h"

/* Declared under other names, and missing under their own: a weak reference would accept any symbol of the program. */
#define __scudo_allocate_hook scudo_declared_allocate_hook
#define __scudo_deallocate_hook scudo_declared_deallocate_hook
#include "scudo/interface.h"
#undef __scudo_allocate_hook
#undef __scudo_deallocate_hook

namespace scudo {

struct NoHook {
	constexpr bool operator&() const
	{
		return false;
	}

	template <typename... Arguments> constexpr void operator()(Arguments...) const
	{
	}
};

static constexpr NoHook __scudo_allocate_hook, __scudo_deallocate_hook;

#define SCUDO_STACK_DEPOT_H_
struct StackDepot {
	u32 insert(uptr *, uptr *)
	{
		return 0;
	}

	bool find(u32, uptr *, uptr *) const
	{
		return false;
	}

	uptr operator[](uptr) const
	{
		return 0;
	}
};

} // namespace scudo

#include "combined.h"
#include "primary32.h"
#include "size_class_map.h"

#endif

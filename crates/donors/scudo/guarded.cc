/* GWP-ASan, upstream's sampling of blocks: one of so many is put at the end or the beginning of a page between pages
 * without access, and the page loses its access when the block is freed. Off unless gwp_asan_sample_rate is set.
 *
 * Upstream's files are included here; the system interface does what their platform_specific/ does, with the glue's
 * functions. Upstream's handler for SIGSEGV, which prints what happened, is left out: that signal is the program's. */
#include "gwp_asan/common.cpp"
#include "gwp_asan/crash_handler.cpp"
#include "gwp_asan/guarded_pool_allocator.cpp"
#include "gwp_asan/stack_trace_compressor.cpp"

#include "gwp_asan/optional/backtrace.h"
#include "gwp_asan/optional/segv_handler.h"
#include "gwp_asan/platform_specific/guarded_pool_allocator_tls.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common.h"
#include "mutex.h"
#include "report.h"

#include "bridge.h"

namespace gwp_asan {

void die(const char *Message)
{
	scudo::reportError(Message);
}

void dieWithErrorCode(const char *Message, int64_t)
{
	die(Message);
}

/* The glue's mutexes wait for a fork to be over, and a fork takes these by Allocator::disable(). So they are scudo's
 * own, in place of pthread mutexes. Both kinds are unlocked when they are zero. */
static scudo::HybridMutex &hybrid(pthread_mutex_t &Mu)
{
	static_assert(sizeof(scudo::HybridMutex) <= sizeof Mu && alignof(scudo::HybridMutex) <= alignof(pthread_mutex_t));
	return reinterpret_cast<scudo::HybridMutex &>(Mu);
}

void Mutex::lock()
{
	hybrid(Mu).lock();
}

bool Mutex::tryLock()
{
	return hybrid(Mu).tryLock();
}

void Mutex::unlock()
{
	hybrid(Mu).unlock();
}

uint64_t getThreadID()
{
	return scudo::getThreadID();
}

/* Upstream takes the time; scudo's own source of random numbers is better. */
void GuardedPoolAllocator::initPRNG()
{
	scudo::u32 Seed = 0;
	if (!scudo::getRandom(&Seed, sizeof Seed) || !Seed)
		Seed = static_cast<scudo::u32>(scudo::getMonotonicTime()) | 1;
	getThreadLocals()->RandomState = Seed;
}

size_t GuardedPoolAllocator::getPlatformPageSize()
{
	return scudo::getPageSizeCached();
}

void *GuardedPoolAllocator::map(size_t Size, const char *Name) const
{
	return scudo::map(nullptr, Size, Name);
}

void GuardedPoolAllocator::unmap(void *Ptr, size_t Size) const
{
	scudo::unmap(Ptr, Size);
}

void *GuardedPoolAllocator::reserveGuardedPool(size_t Size)
{
	return scudo::map(nullptr, Size, kGwpAsanGuardPageName, MAP_NOACCESS);
}

void GuardedPoolAllocator::unreserveGuardedPool()
{
	unmap(reinterpret_cast<void *>(State.GuardedPagePool), State.GuardedPagePoolEnd - State.GuardedPagePool);
}

/* There is no way back from here if the kernel refuses, which it does at its limit of mappings. */
void GuardedPoolAllocator::allocateInGuardedPool(void *Ptr, size_t Size) const
{
	check(graft_apart_mprotect(Ptr, Size, PROT_READ | PROT_WRITE) == 0, "no mapping is left for a sampled block");
}

/* The next block there has to consist of zeros. */
void GuardedPoolAllocator::deallocateInGuardedPool(void *Ptr, size_t Size) const
{
	scudo::releasePagesToOS(reinterpret_cast<uintptr_t>(Ptr), 0, Size);
	check(graft_apart_mprotect(Ptr, Size, PROT_NONE) == 0, "no mapping is left for a sampled block");
}

/* A fork takes the locks by Allocator::disable(). */
void GuardedPoolAllocator::installAtFork()
{
}

namespace backtrace {

options::Backtrace_t getBacktraceFunction()
{
	return nullptr;
}

PrintBacktrace_t getPrintBacktraceFunction()
{
	return nullptr;
}

SegvBacktrace_t getSegvBacktraceFunction()
{
	return nullptr;
}

} // namespace backtrace

namespace segv_handler {

void installSignalHandlers(GuardedPoolAllocator *, Printf_t, backtrace::PrintBacktrace_t, backtrace::SegvBacktrace_t,
                           bool)
{
}

void uninstallSignalHandlers()
{
}

} // namespace segv_handler

} // namespace gwp_asan

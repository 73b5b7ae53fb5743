/* The threads' caches: each is in its thread's own memory, and is used without a lock.
 *
 * It does what upstream's tsd_exclusive.h does, but relies on the key's destructor being the last to run (glue/thread.h).
 * So it need not wait for the last round to return the cache, and blocks of destructors that run after it go to the
 * shared cache. A thread that only frees can have a cache of its own, too. Upstream sends it to the shared one, in case
 * its first free comes after the last destructor, which does not happen in musl. */
#ifndef GRAFT_SCUDO_REGISTRY_H
#define GRAFT_SCUDO_REGISTRY_H

#include <pthread.h>

#include "string_utils.h"
#include "tsd.h"

#include "bridge.h"

namespace scudo {

template <class Allocator> class ThreadRegistry {
public:
	void initOnceMaybe(Allocator *Instance)
	{
		ScopedLock Lock(Mutex);
		if (Initialized)
			return;
		Instance->init();
		HasKey = scudo_threads_are_linked() && !graft_apart_key_create(&Key, &endThread);
		Shared.init(Instance);
		Initialized = true;
	}

	ALWAYS_INLINE void initThreadMaybe(Allocator *Instance, UNUSED bool MinimalInit)
	{
		if (UNLIKELY(State == Stage::Unknown))
			initThread(Instance);
	}

	/* The cache that this thread may use now: its own, or the shared one, locked. */
	class ScopedTSD {
	public:
		ALWAYS_INLINE ScopedTSD(ThreadRegistry &Registry)
		{
			if (LIKELY(State == Stage::Live && !atomic_load(&Registry.Disabled, memory_order_acquire)))
				return;
			Registry.Shared.lock();
			Chosen = &Registry.Shared;
		}

		ALWAYS_INLINE ~ScopedTSD()
		{
			if (UNLIKELY(Chosen != &Own))
				Chosen->unlock();
		}

		TSD<Allocator> &operator*()
		{
			return *Chosen;
		}

		TSD<Allocator> *operator->()
		{
			return Chosen;
		}

	private:
		TSD<Allocator> *Chosen = &Own;
	};

	void drainCaches(Allocator *Instance)
	{
		if (State == Stage::Live)
			Instance->drainCache(&Own);
		Shared.lock();
		Instance->drainCache(&Shared);
		Shared.unlock();
	}

	/* Directs every thread to the shared cache, where it has to wait. */
	void disable()
	{
		Mutex.lock();
		Shared.lock();
		atomic_store(&Disabled, 1, memory_order_release);
	}

	void enable()
	{
		atomic_store(&Disabled, 0, memory_order_release);
		Shared.unlock();
		Mutex.unlock();
	}

	bool setOption(Option O, UNUSED sptr Value)
	{
		return O != Option::MaxTSDsCount;
	}

	bool getDisableMemInit()
	{
		return false;
	}

	void getStats(ScopedString *)
	{
	}

private:
	enum class Stage : u8 { Unknown, Live, Ended };

	/* Without a key, a thread's cache would never be returned. A program that starts threads has a key, unless it took
	 * all keys before its first malloc(). */
	NOINLINE void initThread(Allocator *Instance)
	{
		initOnceMaybe(Instance);
		if (HasKey)
			pthread_setspecific(Key, Instance);
		else if (scudo_threads_are_linked()) {
			State = Stage::Ended;
			return;
		}
		Own.init(Instance);
		State = Stage::Live;
	}

	static void endThread(void *Instance)
	{
		Own.commitBack(static_cast<Allocator *>(Instance));
		State = Stage::Ended;
	}

	pthread_key_t Key = 0;
	bool HasKey = false;
	bool Initialized = false;
	atomic_u8 Disabled = {};
	TSD<Allocator> Shared;
	HybridMutex Mutex;

	static thread_local Stage State;
	static thread_local TSD<Allocator> Own;
};

template <class Allocator>
constinit thread_local typename ThreadRegistry<Allocator>::Stage ThreadRegistry<Allocator>::State{};
template <class Allocator> constinit thread_local TSD<Allocator> ThreadRegistry<Allocator>::Own{};

} // namespace scudo

#endif

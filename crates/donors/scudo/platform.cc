/* The system interface for scudo: does what upstream's linux.cpp and mem_map_linux.cpp do, with the glue's functions.
 * Memory is counted and errno is the glue's. Nothing here is a cancellation point, and only errors that upstream cannot
 * survive are fatal. */
#include "common.h"
#include "mem_map.h"
#include "mutex.h"
#include "report.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "bridge.h"

namespace scudo {

namespace {

/* A system call that leaves the program's errno alone. */
template <typename... Arguments>
long quietly(long Number, Arguments... Args)
{
	const int Saved = errno;
	const long Result = syscall(Number, Args...);
	errno = Saved;
	return Result;
}

void futex(atomic_u32 *Word, int Operation, u32 Value)
{
	quietly(SYS_futex, Word, Operation | FUTEX_PRIVATE_FLAG, static_cast<long>(Value), static_cast<void *>(nullptr));
}

enum : u32 { Free = 0, Held = 1, Awaited = 2 };

} // namespace

uptr getPageSize()
{
	return getauxval(AT_PAGESZ);
}

void NORETURN die()
{
	abort();
}

void *map(void *Address, uptr Size, UNUSED const char *Name, uptr Flags, UNUSED MapPlatformData *Data)
{
	const bool Reserves = Flags & MAP_NOACCESS;
	const int Kind = MAP_PRIVATE | MAP_ANONYMOUS | (Reserves ? MAP_NORESERVE : 0) | (Address ? MAP_FIXED : 0);
	const int Protection = Reserves ? PROT_NONE : PROT_READ | PROT_WRITE;
	void *Mapping = graft_apart_mmap(Address, Size, Protection, Kind, -1, 0);
	if (Mapping == MAP_FAILED) {
		if (!(Flags & MAP_ALLOWNOMEM))
			reportOutOfMemory(Size);
		return nullptr;
	}
	if (!Reserves && !scudo_huge_pages_allowed())
		graft_apart_madvise(Mapping, Size, MADV_NOHUGEPAGE);
	return Mapping;
}

/* At the limit of mappings the kernel refuses to cut a mapping in two. Then the pages go back, but not the addresses. */
void unmap(void *Address, uptr Size, UNUSED uptr Flags, UNUSED MapPlatformData *Data)
{
	if (graft_apart_munmap(Address, Size))
		graft_apart_madvise(Address, Size, MADV_DONTNEED);
}

/* Callers expect zeros afterwards. After mlockall() the kernel does not provide them, since madvise() refuses locked
 * pages. Upstream tries again as long as the error is EAGAIN, which may be forever. */
void releasePagesToOS(uptr Base, uptr Offset, uptr Size, UNUSED MapPlatformData *Data)
{
	void *Address = reinterpret_cast<void *>(Base + Offset);
	if (graft_apart_madvise(Address, Size, MADV_DONTNEED))
		memset(Address, 0, Size);
}

bool MemMapLinux::mapImpl(uptr Address, uptr Size, const char *Name, uptr Flags)
{
	void *Mapping = scudo::map(reinterpret_cast<void *>(Address), Size, Name, Flags, nullptr);
	if (!Mapping)
		return false;
	MapBase = reinterpret_cast<uptr>(Mapping);
	MapCapacity = Size;
	return true;
}

/* A part is always at the beginning or the end. */
void MemMapLinux::unmapImpl(uptr Address, uptr Size)
{
	if (MapBase == Address)
		MapBase = Size == MapCapacity ? 0 : Address + Size;
	MapCapacity -= Size;
	scudo::unmap(reinterpret_cast<void *>(Address), Size, 0, nullptr);
}

bool MemMapLinux::remapImpl(uptr Address, uptr Size, const char *Name, uptr Flags)
{
	return scudo::map(reinterpret_cast<void *>(Address), Size, Name, Flags, nullptr);
}

void MemMapLinux::setMemoryPermissionImpl(uptr Address, uptr Size, uptr Flags)
{
	const int Protection = Flags & MAP_NOACCESS ? PROT_NONE : PROT_READ | PROT_WRITE;
	if (graft_apart_mprotect(reinterpret_cast<void *>(Address), Size, Protection))
		reportError("cannot change the protection of memory");
}

void MemMapLinux::releaseAndZeroPagesToOSImpl(uptr From, uptr Size)
{
	scudo::releasePagesToOS(From, 0, Size, nullptr);
}

bool ReservedMemoryLinux::createImpl(uptr Address, uptr Size, const char *Name, uptr Flags)
{
	void *Mapping = scudo::map(reinterpret_cast<void *>(Address), Size, Name, Flags | MAP_NOACCESS, nullptr);
	MapBase = reinterpret_cast<uptr>(Mapping);
	MapCapacity = Mapping ? Size : 0;
	return Mapping;
}

void ReservedMemoryLinux::releaseImpl()
{
	scudo::unmap(reinterpret_cast<void *>(MapBase), MapCapacity, 0, nullptr);
}

ReservedMemoryLinux::MemMapT ReservedMemoryLinux::dispatchImpl(uptr Address, uptr Size)
{
	return MemMapLinux(Address, Size);
}

/* Upstream asks this only for its statistics, before it ends a program that has no memory. */
u64 getResidentPages(uptr Base, uptr Size)
{
	const uptr Page = getPageSizeCached();
	u64 Count = 0;
	for (uptr Address = roundDown(Base, Page); Address < Base + Size; Address += Page) {
		unsigned char Resident = 0;
		quietly(SYS_mincore, Address, Page, &Resident);
		Count += Resident & 1;
	}
	return Count;
}

const char *getEnv(const char *Name)
{
	return graft_apart_variable(Name);
}

bool HybridMutex::tryLock()
{
	return atomic_compare_exchange_strong(&M, Free, Held, memory_order_acquire) == Free;
}

/* After one wait, the mutex counts as awaited until it is free: that may cause one wake too many, never one too few. */
void HybridMutex::lockSlow()
{
	while (atomic_exchange(&M, Awaited, memory_order_acquire) != Free)
		futex(&M, FUTEX_WAIT, Awaited);
}

void HybridMutex::unlock()
{
	if (atomic_exchange(&M, Free, memory_order_release) == Awaited)
		futex(&M, FUTEX_WAKE, 1);
}

static u64 nanoseconds(clockid_t Clock)
{
	timespec Now;
	clock_gettime(Clock, &Now);
	return static_cast<u64>(Now.tv_sec) * 1000000000 + static_cast<u64>(Now.tv_nsec);
}

u64 getMonotonicTime()
{
	return nanoseconds(CLOCK_MONOTONIC);
}

u64 getMonotonicTimeFast()
{
	return nanoseconds(CLOCK_MONOTONIC_COARSE);
}

u32 getThreadID()
{
	return static_cast<u32>(quietly(SYS_gettid));
}

/* Without getrandom(), uses a sequence that starts from the 16 random bytes that the kernel gives to every process. musl
 * takes its stack protector's canary from the first 8 of them. */
bool getRandom(void *Buffer, uptr Length, UNUSED bool Blocking)
{
	if (!Buffer || !Length || Length > MaxRandomLength)
		return false;
	constexpr int NonBlocking = 1;
	if (quietly(SYS_getrandom, Buffer, Length, static_cast<long>(NonBlocking)) == static_cast<long>(Length))
		return true;
	static u64 State;
	const auto *Seed = reinterpret_cast<const char *>(getauxval(AT_RANDOM));
	if (!Seed)
		return false;
	u64 Start;
	memcpy(&Start, Seed + 8, sizeof Start);
	for (uptr I = 0; I < Length; I++) {
		/* splitmix64 */
		u64 Mixed = Start + (State += 0x9e3779b97f4a7c15);
		Mixed = (Mixed ^ (Mixed >> 30)) * 0xbf58476d1ce4e5b9;
		Mixed = (Mixed ^ (Mixed >> 27)) * 0x94d049bb133111eb;
		static_cast<u8 *>(Buffer)[I] = static_cast<u8>(Mixed >> 32);
	}
	return true;
}

void outputRaw(const char *Text)
{
	graft_apart_write(Text, strlen(Text));
}

void setAbortMessage(UNUSED const char *Message)
{
}

} // namespace scudo

/* Reads a decimal number as in SCUDO_OPTIONS; sets `end` to its end. A number that fits no int sets the glue's errno,
 * and upstream refuses it. */
extern "C" long scudo_decimal(const char *text, char **end, int)
{
	const bool negative = *text == '-';
	unsigned long long value = 0;
	text += negative;
	for (; *text >= '0' && *text <= '9'; text++) {
		if (value <= 0x7fffffff)
			value = value * 10 + static_cast<unsigned long long>(*text - '0');
	}
	if (value > 0x7fffffff) {
		*graft_apart_errno() = ERANGE;
		value = 0x7fffffff;
	}
	*end = const_cast<char *>(text);
	return negative ? -static_cast<long>(value) : static_cast<long>(value);
}

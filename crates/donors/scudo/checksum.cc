/* The checksum of block headers in hardware. Upstream first checks whether the processor has it (hasHardwareCRC32 in
 * checksum.cpp), and otherwise computes it in software. */
#include "checksum.h"

#if defined(__x86_64__)
__attribute__((target("crc32"))) scudo::u32 scudo::computeHardwareCRC32(u32 Crc, uptr Data)
{
	return static_cast<u32>(__builtin_ia32_crc32di(Crc, Data));
}
#elif defined(__aarch64__)
__attribute__((target("crc"))) scudo::u32 scudo::computeHardwareCRC32(u32 Crc, uptr Data)
{
	return static_cast<u32>(__builtin_arm_crc32cd(Crc, Data));
}
#else
scudo::u32 scudo::computeHardwareCRC32(u32 Crc, uptr)
{
	return Crc;
}
#endif

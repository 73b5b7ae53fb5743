/* The checksum of block headers in hardware. Upstream first checks whether the processor has it (hasHardwareCRC32 in
 * checksum.cpp), and otherwise computes it in software. */
#include "checksum.h"

#if defined(__x86_64__)
__attribute__((target("crc32"))) scudo::u32 scudo::computeHardwareCRC32(u32 Crc, uptr Data)
{
	return static_cast<u32>(__builtin_ia32_crc32di(Crc, Data));
}
#elif defined(__i386__)
__attribute__((target("crc32"))) scudo::u32 scudo::computeHardwareCRC32(u32 Crc, uptr Data)
{
	return __builtin_ia32_crc32si(Crc, Data);
}
#elif defined(__aarch64__)
__attribute__((target("crc"))) scudo::u32 scudo::computeHardwareCRC32(u32 Crc, uptr Data)
{
	return static_cast<u32>(__builtin_arm_crc32cd(Crc, Data));
}
#else
/* Upstream calls this on arm: it looks at a bit of AT_HWCAP that means CRC32 on aarch64, and another extension, which
 * every ARMv7 has, on arm. */
scudo::u32 scudo::computeHardwareCRC32(u32 Crc, uptr Data)
{
	return computeBSDChecksum(static_cast<u16>(Crc), Data);
}
#endif

/* System calls, and the program's errno. The blob calls none of the program's functions. */
#ifndef TRANSPLANT_SYSTEM_H
#define TRANSPLANT_SYSTEM_H

#include <stdint.h>

#define HIDDEN __attribute__((visibility("hidden")))

extern HIDDEN int *__errno_location(void);

#if defined(__x86_64__)
static inline long kernel(long number, long a, long b, long c, long d, long e, long f)
{
	long result;
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;
	__asm__ volatile("syscall"
	                 : "=a"(result)
	                 : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
	                 : "rcx", "r11", "memory");
	return result;
}
#elif defined(__aarch64__)
static inline long kernel(long number, long a, long b, long c, long d, long e, long f)
{
	register long x8 __asm__("x8") = number;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;
	register long x4 __asm__("x4") = e;
	register long x5 __asm__("x5") = f;
	__asm__ volatile("svc #0"
	                 : "+r"(x0)
	                 : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
	                 : "memory", "cc");
	return x0;
}
#else
#error "no system calls for this architecture"
#endif

/* Results from -4095 to -1 are errors (syscall(2)). */
static inline long answered(long result)
{
	if ((unsigned long)result < -4095UL)
		return result;
	*__errno_location() = (int)-result;
	return -1;
}

#endif

/* The functions of string.h that a donor calls. Compiled without builtins; otherwise the compiler would make each a call
 * of itself. */
#ifndef TRANSPLANT_MEMORY_H
#define TRANSPLANT_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include "system.h"

HIDDEN void *memcpy(void *restrict to, const void *restrict from, size_t n)
{
	typedef long long wide __attribute__((vector_size(16), aligned(1), may_alias));
	char *target = to;
	const char *source = from;
	if (n >= 16 && n <= 512) {
		wide last = *(const wide *)(source + n - 16);
		for (size_t at = 0; at < n - 16; at += 16)
			*(wide *)(target + at) = *(const wide *)(source + at);
		*(wide *)(target + n - 16) = last;
		return to;
	}
#if defined(__x86_64__)
	__asm__ volatile("rep movsb" : "+D"(target), "+S"(source), "+c"(n) : : "memory");
#else
	for (; n >= 64; n -= 64, target += 64, source += 64) {
		wide one = *(const wide *)source, two = *(const wide *)(source + 16);
		wide three = *(const wide *)(source + 32), four = *(const wide *)(source + 48);
		*(wide *)target = one, *(wide *)(target + 16) = two;
		*(wide *)(target + 32) = three, *(wide *)(target + 48) = four;
	}
	while (n--)
		*target++ = *source++;
#endif
	return to;
}

HIDDEN void *memset(void *to, int byte, size_t n)
{
	typedef unsigned char wide __attribute__((vector_size(16), aligned(1), may_alias));
	char *target = to;
	if (n >= 16 && n <= 512) {
		wide value = (wide){} + (unsigned char)byte;
		for (size_t at = 0; at < n - 16; at += 16)
			*(wide *)(target + at) = value;
		*(wide *)(target + n - 16) = value;
		return to;
	}
#if defined(__x86_64__)
	__asm__ volatile("rep stosb" : "+D"(target), "+c"(n) : "a"(byte) : "memory");
#else
	wide value = (wide){} + (unsigned char)byte;
	for (; n >= 64; n -= 64, target += 64) {
		*(wide *)target = value, *(wide *)(target + 16) = value;
		*(wide *)(target + 32) = value, *(wide *)(target + 48) = value;
	}
	while (n--)
		*target++ = (char)byte;
#endif
	return to;
}

HIDDEN void *memmove(void *to, const void *from, size_t n)
{
	unsigned char *target = to;
	const unsigned char *source = from;
	if ((uintptr_t)target - (uintptr_t)source >= n)
		return memcpy(to, from, n);
	while (n--)
		target[n] = source[n];
	return to;
}

HIDDEN size_t strlen(const char *text)
{
	size_t n = 0;
	while (text[n])
		n++;
	return n;
}

HIDDEN int strncmp(const char *one, const char *other, size_t n)
{
	for (; n; one++, other++, n--) {
		if (*one != *other || !*one)
			return (unsigned char)*one - (unsigned char)*other;
	}
	return 0;
}
#endif

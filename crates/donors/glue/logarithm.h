/* The natural logarithm and the exponential function, as sampling needs them. libm is not part of every program. */
#ifndef GRAFT_LOGARITHM_H
#define GRAFT_LOGARITHM_H

#include <stdint.h>
#include <string.h>

#define GRAFT_LN2 0.693147180559945309417

/* Numbers of 64 bits as doubles, and whole parts of doubles from 0 to below 2^64: 32-bit architectures have no instruction
 * for either, and a libc.a no function. */
static double graft_as_double(uint64_t number)
{
	return (double)(uint32_t)(number >> 32) * 4294967296.0 + (double)(uint32_t)number;
}

static uint64_t graft_whole(double number)
{
	uint32_t upper = (uint32_t)(number / 4294967296.0);
	return (uint64_t)upper << 32 | (uint32_t)(number - (double)upper * 4294967296.0);
}

/* The logarithm of a number above 0, with an error below 1e-8. With x = m * 2^e and m in [1, 2) it is
 * e ln 2 + 2 artanh((m - 1) / (m + 1)). */
static double graft_log(double x)
{
	uint64_t bits;
	memcpy(&bits, &x, sizeof bits);
	int exponent = (int)(bits >> 52 & 0x7ff) - 1023;
	bits = (bits & ((UINT64_C(1) << 52) - 1)) | UINT64_C(1023) << 52;
	double mantissa;
	memcpy(&mantissa, &bits, sizeof mantissa);
	double ratio = (mantissa - 1) / (mantissa + 1), square = ratio * ratio, power = ratio, sum = 0;
	for (int divisor = 1; divisor <= 15; divisor += 2, power *= square)
		sum += power / divisor;
	return exponent * GRAFT_LN2 + 2 * sum;
}

/* 1 - e^-x for x >= 0, with a relative error below 1e-6 from x = 1e-9 on. */
static double graft_one_minus_exp(double x)
{
	if (x > 40)
		return 1;
	if (x < 1e-5)
		return x - x * x / 2;
	int halvings = (int)(x / GRAFT_LN2);
	double rest = x - halvings * GRAFT_LN2, term = 1, sum = 1;
	for (int i = 1; i <= 12; i++) {
		term *= -rest / i;
		sum += term;
	}
	uint64_t bits = (uint64_t)(1023 - halvings) << 52;
	double scale;
	memcpy(&scale, &bits, sizeof scale);
	return 1 - sum * scale;
}

#endif

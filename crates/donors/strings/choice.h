/* Which width of lanes runs. A static musl program has no IFUNC, since nobody applies IRELATIVE relocations;
 * so the choice is a variable. It starts out at the base path, which every processor can run, and a constructor
 * raises it: whoever calls earlier, or at the same time in a thread of an earlier constructor, gets the base path,
 * and both give the same results. */
#ifndef STRINGS_CHOICE_H
#define STRINGS_CHOICE_H

#if defined(__x86_64__)
#include <cpuid.h>

#define CHOICE_WIDE 1u /* AVX2 with BMI1 and BMI2, and the system saves the registers */
#define CHOICE_REP 2u  /* ERMS: `rep movsb` and `rep stosb` are fast on long blocks */

static unsigned strings_choice;

INLINE bool chosen(unsigned what)
{
	return (__atomic_load_n(&strings_choice, __ATOMIC_RELAXED) & what) != 0;
}

/* XCR0, which says what registers the system saves; read only where CPUID says that it exists. */
static uint64_t saved_registers(void)
{
	uint32_t low, high;
	__asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
	return (uint64_t)high << 32 | low;
}

static unsigned processor_choice(void)
{
	unsigned a, b, c, d, choice = 0;
	if (!__get_cpuid(1, &a, &b, &c, &d))
		return 0;
	bool wide = (c & bit_OSXSAVE) && (c & bit_AVX) && (saved_registers() & 6) == 6;
	if (!__get_cpuid_count(7, 0, &a, &b, &c, &d))
		return 0;
	if (wide && (b & bit_AVX2) && (b & bit_BMI) && (b & bit_BMI2))
		choice |= CHOICE_WIDE;
	if (b & bit_ENH_MOVSB)
		choice |= CHOICE_REP;
	return choice;
}

static void strings_choose(unsigned choice)
{
	__atomic_store_n(&strings_choice, choice, __ATOMIC_RELAXED);
}

__attribute__((constructor(101))) static void strings_start(void)
{
	strings_choose(processor_choice());
}

#ifdef STRINGS_PROOF
/* The proof and the benchmark run every path that the processor has. */
__attribute__((visibility("default"))) unsigned proof_choices(void) { return processor_choice(); }
__attribute__((visibility("default"))) void proof_choose(unsigned choice) { strings_choose(choice); }
#endif

#elif defined(STRINGS_PROOF)
__attribute__((visibility("default"))) unsigned proof_choices(void) { return 0; }
__attribute__((visibility("default"))) void proof_choose(unsigned choice) { (void)choice; }
#endif

#endif

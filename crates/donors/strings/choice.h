/* Which width of lanes runs. A static musl program has no IFUNC, since nobody applies IRELATIVE relocations;
 * so the choice is a variable. It starts out at the base path, which every processor can run, and is made once that
 * path has had some work: a virtual machine traps CPUID, which then takes as long as hundreds of short calls, and many
 * programs end before. Threads may choose at the same time; they choose alike, and both paths give the same results. */
#ifndef STRINGS_CHOICE_H
#define STRINGS_CHOICE_H

#if defined(__x86_64__)
#include <cpuid.h>

#define CHOICE_WIDE 1u /* AVX2 with BMI1 and BMI2, and the system saves the registers */
#define CHOICE_REP 2u  /* ERMS: `rep movsb` and `rep stosb` are fast on long blocks */
#define CHOICE_MASKS 8u /* AVX-512 with BW, VL and VBMI2, and the system saves the registers */
#define CHOICE_OPEN 4u /* the processor was not asked yet */

/* The work of the base path until the processor is asked, in bytes; what a call counts for beside its length; and what it
 * counts for where the length is not known before. Neither variable is zero at first: so they are in .data, of which a
 * page is there in any case, and not in .bss. */
#define CHOICE_WORK 65536
#define CHOICE_CALL 32
#define CHOICE_TEXT 32
static unsigned strings_choice = CHOICE_OPEN;
static size_t strings_work = CHOICE_WORK;

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
	/* Every processor with 64 bits has leaf 1. One with XSAVE describes that in leaf 13, so that it has leaf 7. */
	__cpuid(1, a, b, c, d);
	if (!(c & bit_OSXSAVE))
		return 0;
	uint64_t saved = saved_registers();
	bool wide = (c & bit_AVX) && (saved & 6) == 6;
	__cpuid_count(7, 0, a, b, c, d);
	if (wide && (b & bit_AVX2) && (b & bit_BMI) && (b & bit_BMI2))
		choice |= CHOICE_WIDE;
	const unsigned masks = bit_AVX512F | bit_AVX512BW | bit_AVX512VL;
	if ((choice & CHOICE_WIDE) && (saved & 0xe6) == 0xe6 && (b & masks) == masks && (c & bit_AVX512VBMI2))
		choice |= CHOICE_MASKS;
	if (b & bit_ENH_MOVSB)
		choice |= CHOICE_REP;
	return choice;
}

static void strings_choose(unsigned choice)
{
	__atomic_store_n(&strings_choice, choice, __ATOMIC_RELAXED);
}

/* Counts a call of the base path with so many bytes, and asks the processor when it is due. The call before which this
 * runs has its arguments in registers, and keeps them there. */
__attribute__((noinline, cold, preserve_most)) static void strings_count(size_t bytes)
{
	size_t work = __atomic_load_n(&strings_work, __ATOMIC_RELAXED);
	if (bytes < work && bytes + CHOICE_CALL < work)
		__atomic_store_n(&strings_work, work - bytes - CHOICE_CALL, __ATOMIC_RELAXED);
	else
		strings_choose(processor_choice());
}

/* Called on the way to the base path. */
INLINE void count_work(size_t bytes)
{
	if (UNLIKELY(chosen(CHOICE_OPEN)))
		strings_count(bytes);
}

#ifdef STRINGS_PROOF
/* The proof and the benchmark run every path that the processor has. */
__attribute__((visibility("default"))) unsigned proof_choices(void) { return processor_choice(); }
__attribute__((visibility("default"))) void proof_choose(unsigned choice) { strings_choose(choice); }
/* As at the start of a program, with `work` bytes left until the processor is asked; and whether it was asked. */
__attribute__((visibility("default"))) void proof_begin(size_t work)
{
	strings_work = work;
	strings_choice = CHOICE_OPEN;
}
__attribute__((visibility("default"))) bool proof_has_chosen(void) { return !chosen(CHOICE_OPEN); }
#endif

#elif defined(STRINGS_PROOF)
__attribute__((visibility("default"))) unsigned proof_choices(void) { return 0; }
__attribute__((visibility("default"))) void proof_choose(unsigned choice) { (void)choice; }
__attribute__((visibility("default"))) void proof_begin(size_t work) { (void)work; }
__attribute__((visibility("default"))) bool proof_has_chosen(void) { return true; }
#endif

#endif

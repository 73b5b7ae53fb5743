/* Two probes for profilers outside of the program, with the contract of OpenTelemetry's profiler (its design document 3,
 * "Memory profiling"): `otel_memory:alloc(block, size, weighted_bytes)` at a sampled allocation, and
 * `otel_memory:free(block)` when that block is freed.
 *
 * A probe is an instruction that does nothing, and a note that says where it is and where its arguments are
 * (sourceware.org/systemtap/wiki/UserSpaceProbeImplementation). Readers of version 1 take the arguments from the
 * registers of the first parameters without reading the note, so they are there.
 *
 * The kernel counts readers in the probes' semaphore (uprobes' ref_ctr_offset). It is the word that makes the family's
 * functions take the long way, so a program that nobody prepared begins to sample as soon as somebody listens. */
#ifndef GRAFT_PROBES_H
#define GRAFT_PROBES_H

#include <stddef.h>
#include <stdint.h>

#if defined(__x86_64__) || defined(__aarch64__)
#define GRAFT_HAS_PROBES
#ifdef __x86_64__
#define GRAFT_PROBE_ARGUMENTS "8@%%rdi 8@%%rsi 8@%%rdx"
#define GRAFT_PROBE_ARGUMENT "8@%%rdi"
#define GRAFT_REGISTER(number) __asm__(GRAFT_REGISTER_##number)
#define GRAFT_REGISTER_0 "rdi"
#define GRAFT_REGISTER_1 "rsi"
#define GRAFT_REGISTER_2 "rdx"
#else
#define GRAFT_PROBE_ARGUMENTS "8@x0 8@x1 8@x2"
#define GRAFT_PROBE_ARGUMENT "8@x0"
#define GRAFT_REGISTER(number) __asm__("x" #number)
#endif

/* The section is not loaded: profilers find it by the file's section headers. The base that prelink would need is 0. */
#define GRAFT_PROBE(name, arguments)                                                                                   \
	"990: nop\n"                                                                                                       \
	"\t.pushsection .note.stapsdt,\"\",%%note\n"                                                                        \
	"\t.balign 4\n"                                                                                                    \
	"\t.4byte 8, 992f - 991f, 3\n"                                                                                     \
	"\t.asciz \"stapsdt\"\n"                                                                                           \
	"991: .8byte 990b, 0, allograft_probes\n"                                                                          \
	"\t.asciz \"otel_memory\"\n"                                                                                       \
	"\t.asciz \"" name "\"\n"                                                                                          \
	"\t.asciz \"" arguments "\"\n"                                                                                     \
	"992: .balign 4\n"                                                                                                 \
	"\t.popsection\n"

static __attribute__((noinline, cold)) void graft_probe_alloc(void *block, size_t size, uint64_t weighted)
{
	register void *first GRAFT_REGISTER(0) = block;
	register size_t second GRAFT_REGISTER(1) = size;
	register uint64_t third GRAFT_REGISTER(2) = weighted;
	__asm__ volatile(GRAFT_PROBE("alloc", GRAFT_PROBE_ARGUMENTS) : : "r"(first), "r"(second), "r"(third) : "memory");
}

static __attribute__((noinline, cold)) void graft_probe_free(void *block)
{
	register void *first GRAFT_REGISTER(0) = block;
	__asm__ volatile(GRAFT_PROBE("free", GRAFT_PROBE_ARGUMENT) : : "r"(first) : "memory");
}
#else
static inline void graft_probe_alloc(void *block, size_t size, uint64_t weighted)
{
	(void)block, (void)size, (void)weighted;
}

static inline void graft_probe_free(void *block)
{
	(void)block;
}
#endif

#endif

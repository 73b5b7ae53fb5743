/* The calls whose blocks are sampled (heap.h): they are made so that the block will be known again, and remembered with
 * the callers. */
#ifndef GRAFT_SAMPLED_H
#define GRAFT_SAMPLED_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "heap.h"

enum graft_sampled_call {
	graft_sampled_malloc,
	graft_sampled_zalloc,
	graft_sampled_realloc,
	graft_sampled_aligned,
	graft_sampled_posix_memalign,
};

static void *graft_aligned_alloc(size_t alignment, size_t n);

/* A block that starts a page. The donor may make those of a page or more so by itself. */
static void *graft_sampled_block(size_t n, bool is_zero)
{
	void *block = 0;
	if (n >= graft_heap_page) {
		block = is_zero ? donor_zalloc(n) : donor_malloc(n);
		if (!block || graft_heap_can_know(block, n))
			return block;
		donor_free(block);
	}
	block = donor_aligned(graft_heap_page, n);
	return block && is_zero ? memset(block, 0, n) : block;
}

/* As with malloc, a block that was moved has its new caller. One that would not be known again moves once more. */
static void *graft_sampled_move(void *block, size_t n, struct graft_frame frame)
{
	struct graft_heap_block kept;
	bool is_sampled = graft_heap_left < 0 && graft_heap_draw(n);
	bool was_sampled = graft_heap_may_know(block) && graft_heap_forget(block, &kept);
	void *moved = donor_realloc(block, n);
	if (!moved) {
		if (was_sampled)
			graft_heap_put_back(&kept);
		return 0;
	}
	if (!is_sampled)
		return moved;
	if (!graft_heap_can_know(moved, n)) {
		void *other = donor_aligned(graft_heap_page, n);
		if (!other)
			return moved;
		memcpy(other, moved, n);
		donor_free(moved);
		moved = other;
	}
	graft_heap_remember(moved, n, frame);
	return moved;
}

/* `block` is the one to move, or where posix_memalign's result goes. The last three are the caller's registers. */
__attribute__((noinline, used)) static void *graft_sample(void *block, size_t n, size_t alignment,
                                                          enum graft_sampled_call call, uintptr_t sp, uintptr_t fp,
                                                          uintptr_t return_address)
{
#ifdef __x86_64__
	return_address = *(const uintptr_t *)sp;
	sp += sizeof sp;
#endif
	struct graft_frame frame = {sp, fp, graft_plain_address(return_address), false};
	void *result = 0;
	if (call == graft_sampled_realloc && block) {
		size_t before = graft_counting ? donor_usable(block) : 0;
		result = graft_sampled_move(block, n, frame);
		if (graft_counting && result)
			graft_count_free(before);
		return graft_counted(result);
	}
	bool is_sampled = graft_heap_draw(n);
	if (call == graft_sampled_aligned || call == graft_sampled_posix_memalign) {
		bool is_raised = is_sampled && alignment < graft_heap_page && !(alignment & (alignment - 1));
		result = graft_aligned_alloc(is_raised ? graft_heap_page : alignment, n);
	} else if (is_sampled) {
		result = graft_counted(graft_sampled_block(n, call == graft_sampled_zalloc));
	} else {
		result = graft_counted(call == graft_sampled_zalloc ? donor_zalloc(n) : donor_malloc(n));
	}
	if (is_sampled && result && graft_heap_can_know(result, n))
		graft_heap_remember(result, n, frame);
	if (call != graft_sampled_posix_memalign)
		return result;
	if (result)
		*(void **)block = result;
	return (void *)(intptr_t)(result ? 0 : ENOMEM);
}

/* Goes to graft_sample with the registers as they are: its return address is that of the program's call, since all calls
 * from the family's function to here are tail calls. */
#if defined(__x86_64__) || defined(__aarch64__) || (defined(__riscv) && __riscv_xlen == 64)
__attribute__((visibility("hidden"))) void *graft_sampled(void *block, size_t n, size_t alignment,
                                                           enum graft_sampled_call call);
__asm__(".pushsection .text.graft_sampled,\"ax\",%progbits\n"
	".globl graft_sampled\n"
	".hidden graft_sampled\n"
	".type graft_sampled,%function\n"
	"graft_sampled:\n"
#ifdef __x86_64__
	"\tmovq %rsp, %r8\n"
	"\tmovq %rbp, %r9\n"
	"\tjmp graft_sample\n"
#elif defined(__aarch64__)
	"\tmov x4, sp\n"
	"\tmov x5, x29\n"
	"\tmov x6, x30\n"
	"\tb graft_sample\n"
#else
	"\tmv a4, sp\n"
	"\tmv a5, s0\n"
	"\tmv a6, ra\n"
	"\ttail graft_sample\n"
#endif
	".size graft_sampled, . - graft_sampled\n"
	".popsection");
/* The same, for a function that returns a number. */
int graft_sampled_status(void *block, size_t n, size_t alignment, enum graft_sampled_call call) __asm__("graft_sampled");
#define GRAFT_CALLER_HERE
#define GRAFT_CALLER_PARAMETER
#define GRAFT_CALLER
#else
/* At the end of arguments: the caller of the public function that says it, and the parameter that has it. */
#define GRAFT_CALLER_HERE , (uintptr_t)__builtin_return_address(0)
#define GRAFT_CALLER_PARAMETER , uintptr_t caller
#define GRAFT_CALLER , caller
#define graft_sampled graft_sample_from
#define graft_sampled_status (int)(intptr_t)graft_sample_from
static void *graft_sample_from(void *block, size_t n, size_t alignment, enum graft_sampled_call call, uintptr_t caller)
{
	return graft_sample(block, n, alignment, call, 0, 0, caller);
}
#endif

#endif

/* The callers of the malloc family, innermost first, from inside the program: by the unwind tables of the program
 * (eh_frame.h), by the call that led into a function without one, and by frame pointers. A profile of the heap needs
 * them; nothing here runs while none is taken.
 *
 * What a table says of an address is kept, so that a stack that was seen before costs a few nanoseconds a frame. Nothing
 * is allocated. The caller makes sure that one thread at a time is here. */
#ifndef GRAFT_UNWIND_H
#define GRAFT_UNWIND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "eh_frame.h"

/* Most programs never run this. */
#pragma clang attribute push(__attribute__((minsize)), apply_to = function)

/* What is known of addresses. One thread at a time is here. */
enum { graft_row_slots = 4096 };
struct graft_row_slot {
	uintptr_t address;
	struct graft_row row;
};

static struct graft_row graft_row_of(struct graft_row_slot *slots, uintptr_t address)
{
	struct graft_row_slot *slot = &slots[(uint32_t)(address * UINT64_C(0x9e3779b97f4a7c15) >> 52)];
	if (slot->address != address) {
		slot->row = graft_look_up_row(address);
		slot->address = address;
	}
	return slot->row;
}

/* The registers of a function's caller, at the call. On aarch64, a function without a table does not tell where its
 * frame ends: then `sp` only lies below the caller's. */
struct graft_frame {
	uintptr_t sp, fp, return_address;
	bool is_low;
};
#ifdef __aarch64__
enum { graft_frame_is_low = true };
#else
enum { graft_frame_is_low = false };
#endif

/* Takes the signature off a return address (aarch64's pointer authentication). No address of a program has these bits. */
static uintptr_t graft_plain_address(uintptr_t address)
{
#ifdef __aarch64__
	return address & ((UINT64_C(1) << 48) - 1);
#else
	return address;
#endif
}

/* Whether two words of a frame may be read at `record`. A register that is no frame pointer may hold anything. */
static bool graft_is_frame(uintptr_t record, uintptr_t sp)
{
	enum { near = 4096, far = 1 << 26 };
	if (record < sp || record % sizeof record || record - sp > far)
		return false;
	return record - sp < near / 2 || (graft_is_readable(record) && graft_is_readable(record + sizeof record));
}

/* One step by the frame pointer: it points to the caller's, and the return address is behind it. On riscv it points
 * behind both. */
static bool graft_step_by_frame_pointer(struct graft_frame *frame)
{
#ifdef __riscv
	uintptr_t record = frame->fp - 2 * sizeof(uintptr_t);
#else
	uintptr_t record = frame->fp;
#endif
	if (!graft_is_frame(record, frame->sp))
		return false;
	const uintptr_t *words = (const uintptr_t *)record;
	uintptr_t fp = words[0], address = graft_plain_address(words[1]);
	if (!graft_is_code(address) || fp <= frame->fp)
		return false;
	*frame = (struct graft_frame){record + 2 * sizeof record, fp, address, graft_frame_is_low};
	return true;
}

/* The target of a call of a function in another file: the code at `stub` jumps through a table that the dynamic linker
 * has filled in (the psABIs' procedure linkage tables). Otherwise `stub` itself. */
static uintptr_t graft_target_of_stub(uintptr_t stub)
{
	uintptr_t slot = 0;
	if (!graft_is_readable(stub) || !graft_is_readable(stub + 8))
		return 0;
#if defined(__x86_64__)
	const uint8_t *code = (const uint8_t *)stub;
	int32_t distance;
	if (code[0] == 0xf3 && code[1] == 0x0f && code[2] == 0x1e && code[3] == 0xfa) /* endbr64 */
		code += 4;
	code += code[0] == 0xf2; /* bnd */
	if (code[0] != 0xff || code[1] != 0x25 || !graft_is_readable((uintptr_t)code))
		return stub;
	memcpy(&distance, code + 2, sizeof distance);
	slot = (uintptr_t)code + 6 + (uintptr_t)(intptr_t)distance;
#elif defined(__aarch64__)
	uint32_t code[2];
	memcpy(code, (const void *)stub, sizeof code);
	/* adrp x16, page; ldr x17, [x16, place] */
	if ((code[0] & 0x9f00001f) != 0x90000010 || (code[1] & 0xffc003ff) != 0xf9400211)
		return stub;
	int64_t pages = (int64_t)((uint64_t)(code[0] >> 5 & 0x7ffff) << 45) >> 43 | (code[0] >> 29 & 3);
	slot = (stub & ~(uintptr_t)4095) + (uintptr_t)pages * 4096 + (code[1] >> 10 & 0xfff) * 8;
#endif
	return slot && graft_is_readable(slot) ? *(const uintptr_t *)slot : stub;
}

/* Whether an instruction before this address calls a function that begins shortly before `inside`, which is in it. */
static bool graft_is_call_of(uintptr_t address, uintptr_t inside)
{
	enum { longest = 4096 };
	const struct graft_module *module = graft_module_of(address);
	if (!module || address - module->start < 8)
		return false;
#if defined(__x86_64__)
	int32_t distance;
	memcpy(&distance, (const void *)(address - 4), sizeof distance);
	uintptr_t target = address + (uintptr_t)(intptr_t)distance;
	const uint8_t *call = (const uint8_t *)address - 6;
	if (call[0] == 0xff && call[1] == 0x15) /* through the table at once, with -fno-plt */
		target = graft_is_readable(target) ? *(const uintptr_t *)target : 0;
	else if (call[1] != 0xe8)
		return false;
#elif defined(__aarch64__)
	uint32_t call;
	memcpy(&call, (const void *)(address - 4), sizeof call);
	if (call >> 26 != 0x25)
		return false;
	uintptr_t target = address - 4 + (uintptr_t)(intptr_t)((int32_t)(call << 6) >> 6) * 4;
#else
	uintptr_t target = 0;
#endif
	return inside - target < longest || inside - graft_target_of_stub(target) < longest;
}

/* One step out of a function that has neither table nor frame pointer, as musl's own: its return address is the first
 * word on the stack behind a call of it. */
static bool graft_step_by_call(struct graft_frame *frame)
{
	enum { most = 64, page = 4096 };
	for (uintptr_t place = frame->sp; place < frame->sp + most * sizeof place; place += sizeof place) {
		if ((place == frame->sp || place % page == 0) && !graft_is_readable(place))
			return false;
		uintptr_t word = graft_plain_address(*(const uintptr_t *)place);
		if (!graft_is_call_of(word, frame->return_address))
			continue;
		*frame = (struct graft_frame){place + sizeof place, frame->fp, word, graft_frame_is_low};
		return true;
	}
	return false;
}

/* Goes to the caller of the function that `frame` is in. Returns false behind the last one, or where nothing tells. */
static bool graft_step(struct graft_row_slot *slots, struct graft_frame *frame)
{
	struct graft_row row = graft_row_of(slots, frame->return_address - 1);
	if (row.kind == graft_row_end)
		return false;
	if (row.kind == graft_row_none)
		return graft_frame_is_low ? graft_step_by_frame_pointer(frame) || graft_step_by_call(frame)
		                          : graft_step_by_call(frame) || graft_step_by_frame_pointer(frame);
	if (frame->is_low && row.kind != graft_row_by_fp)
		return false;
	uintptr_t cfa = (row.kind == graft_row_by_fp ? frame->fp : frame->sp) + (uintptr_t)(intptr_t)row.cfa;
	uintptr_t place = cfa + (uintptr_t)(intptr_t)row.return_address;
	uintptr_t fp_place = cfa + (uintptr_t)(intptr_t)row.frame_pointer;
	bool is_fp_saved = row.frame_pointer != GRAFT_ROW_KEPT;
	if (cfa <= frame->sp || cfa % sizeof cfa || row.return_address == GRAFT_ROW_KEPT || place < frame->sp ||
	    (is_fp_saved && fp_place < frame->sp))
		return false;
	if (row.kind == graft_row_by_fp &&
	    (!graft_is_frame(place, frame->sp) || (is_fp_saved && !graft_is_frame(fp_place, frame->sp))))
		return false;
	uintptr_t fp = is_fp_saved ? *(const uintptr_t *)fp_place : frame->fp;
	*frame = (struct graft_frame){cfa, fp, graft_plain_address(*(const uintptr_t *)place), false};
	return frame->return_address != 0;
}

/* Writes the addresses of the callers, innermost first: of each, that of the call's last byte. Returns their number. */
static unsigned graft_unwind(struct graft_row_slot *slots, struct graft_frame frame, uintptr_t *callers, unsigned most)
{
	unsigned count = 0;
	do
		callers[count++] = frame.return_address - 1;
	while (graft_unwinds && count < most && graft_step(slots, &frame));
	return count;
}

#pragma clang attribute pop

#endif

/* The callers of the malloc family, innermost first, from inside the program: by the unwind tables of the program
 * (`.eh_frame`), and by frame pointers where there is no table. A profile of the heap needs them; nothing here runs
 * while none is taken.
 *
 * Of the registers, only the stack pointer, the frame pointer and the return address are followed: compilers use no
 * other one to find a frame. What a table says of an address is kept, so that a stack that was seen before costs a few
 * nanoseconds a frame. The tables are those of DWARF 5, section 6.4, in the form of the Linux Standard Base, "Exception
 * Frames". Little of the stack is used, and nothing is allocated. The caller makes sure that one thread at a time is
 * here. */
#ifndef GRAFT_UNWIND_H
#define GRAFT_UNWIND_H

#include <elf.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "modules.h"

/* Most programs never run this. */
#pragma clang attribute push(__attribute__((minsize)), apply_to = function)

/* DWARF's numbers of the registers. */
#if defined(__x86_64__)
enum { graft_dwarf_fp = 6, graft_dwarf_sp = 7, graft_dwarf_ra = 16, graft_unwinds = true };
#elif defined(__aarch64__)
enum { graft_dwarf_fp = 29, graft_dwarf_sp = 31, graft_dwarf_ra = 30, graft_unwinds = true };
#elif defined(__riscv) && __riscv_xlen == 64
enum { graft_dwarf_fp = 8, graft_dwarf_sp = 2, graft_dwarf_ra = 1, graft_unwinds = true };
#else
enum { graft_dwarf_fp = -1, graft_dwarf_sp = -2, graft_dwarf_ra = -3, graft_unwinds = false };
#endif

/* Where the caller's registers are: the address of its frame (CFA) is a register plus a distance, and the return address
 * and the frame pointer lie at distances from there. */
enum graft_row_kind { graft_row_none, graft_row_by_sp, graft_row_by_fp, graft_row_end };
#define GRAFT_ROW_KEPT INT16_MIN /* the register still has the caller's value */
struct graft_row {
	int32_t cfa;
	int16_t return_address, frame_pointer;
	uint8_t kind;
};

/* What is known of addresses. One thread at a time is here. */
enum { graft_row_slots = 4096 };
struct graft_row_slot {
	uintptr_t address;
	struct graft_row row;
};

/* Bytes of a table that is being read. Past its end, only zeros are read, and `at` is null. */
struct graft_reader {
	const uint8_t *at, *end;
};

static uint64_t graft_read_word(struct graft_reader *reader, size_t size)
{
	uint64_t word = 0;
	if (!reader->at || (size_t)(reader->end - reader->at) < size) {
		reader->at = 0;
		return 0;
	}
	memcpy(&word, reader->at, size);
	reader->at += size;
	return word;
}

static uint64_t graft_read_leb(struct graft_reader *reader, bool is_signed)
{
	uint64_t value = 0;
	unsigned shift = 0;
	uint8_t byte = 0x80;
	while (byte & 0x80 && reader->at) {
		byte = (uint8_t)graft_read_word(reader, 1);
		if (shift < 64)
			value |= (uint64_t)(byte & 0x7f) << shift;
		shift += 7;
	}
	if (is_signed && shift < 64 && byte & 0x40)
		value |= ~UINT64_C(0) << shift;
	return value;
}

/* A pointer in one of the encodings DW_EH_PE. `base` is what data-relative ones count from. Indirect ones are not
 * followed: no table of this kind has any. */
static uint64_t graft_read_encoded(struct graft_reader *reader, uint8_t encoding, uint64_t base)
{
	uint64_t place = (uintptr_t)reader->at, value = 0;
	if (encoding == 0xff)
		return 0;
	switch (encoding & 0x0f) {
	case 0x00: value = graft_read_word(reader, sizeof(uintptr_t)); break;
	case 0x01: value = graft_read_leb(reader, false); break;
	case 0x02: value = graft_read_word(reader, 2); break;
	case 0x03: value = graft_read_word(reader, 4); break;
	case 0x04: case 0x0c: value = graft_read_word(reader, 8); break;
	case 0x09: value = graft_read_leb(reader, true); break;
	case 0x0a: value = (uint64_t)(int16_t)graft_read_word(reader, 2); break;
	case 0x0b: value = (uint64_t)(int32_t)graft_read_word(reader, 4); break;
	default: reader->at = 0; return 0;
	}
	switch (encoding & 0x70) {
	case 0x00: return value;
	case 0x10: return value + place;
	case 0x30: return value + base;
	default: reader->at = 0; return 0;
	}
}

/* What the entries of several functions have in common (a CIE). */
struct graft_common {
	struct graft_reader instructions;
	uint64_t code_unit;
	int64_t data_unit;
	uint64_t return_column;
	uint8_t encoding;
	bool has_augmentation, is_signal;
};

static bool graft_read_common(const uint8_t *at, const uint8_t *limit, struct graft_common *common)
{
	struct graft_reader reader = {at, limit};
	uint64_t length = graft_read_word(&reader, 4);
	if (!reader.at || length == 0xffffffff || length > (uint64_t)(limit - reader.at))
		return false;
	reader.end = reader.at + length;
	if (graft_read_word(&reader, 4))
		return false;
	uint8_t version = (uint8_t)graft_read_word(&reader, 1);
	const char *augmentation = (const char *)reader.at;
	while (graft_read_word(&reader, 1))
		;
	if (!reader.at || (version != 1 && version != 3))
		return false;
	*common = (struct graft_common){.encoding = 0};
	common->code_unit = graft_read_leb(&reader, false);
	common->data_unit = (int64_t)graft_read_leb(&reader, true);
	common->return_column = version == 1 ? graft_read_word(&reader, 1) : graft_read_leb(&reader, false);
	if (augmentation[0] == 'z') {
		uint64_t size = graft_read_leb(&reader, false);
		if (!reader.at || size > (uint64_t)(reader.end - reader.at))
			return false;
		struct graft_reader data = {reader.at, reader.at + size};
		reader.at += size;
		common->has_augmentation = true;
		for (const char *letter = augmentation + 1; *letter; letter++) {
			if (*letter == 'R')
				common->encoding = (uint8_t)graft_read_word(&data, 1);
			else if (*letter == 'L')
				graft_read_word(&data, 1);
			else if (*letter == 'P')
				graft_read_encoded(&data, (uint8_t)graft_read_word(&data, 1) & 0x7f, 0);
			else if (*letter == 'S')
				common->is_signal = true;
		}
	} else if (augmentation[0]) {
		return false;
	}
	common->instructions = reader;
	return reader.at;
}

/* The entry of one function (an FDE). */
struct graft_entry {
	struct graft_common common;
	struct graft_reader instructions;
	uintptr_t start, size;
};

static bool graft_read_entry(const uint8_t *at, const uint8_t *limit, struct graft_entry *entry)
{
	struct graft_reader reader = {at, limit};
	uint64_t length = graft_read_word(&reader, 4);
	if (!reader.at || !length || length == 0xffffffff || length > (uint64_t)(limit - reader.at))
		return false;
	reader.end = reader.at + length;
	const uint8_t *place = reader.at;
	uint64_t back = graft_read_word(&reader, 4);
	if (!back || !graft_read_common(place - back, limit, &entry->common))
		return false;
	entry->start = (uintptr_t)graft_read_encoded(&reader, entry->common.encoding, 0);
	entry->size = (uintptr_t)graft_read_encoded(&reader, entry->common.encoding & 0x0f, 0);
	if (entry->common.has_augmentation) {
		uint64_t size = graft_read_leb(&reader, false);
		if (!reader.at || size > (uint64_t)(reader.end - reader.at))
			return false;
		reader.at += size;
	}
	entry->instructions = reader;
	return reader.at;
}

/* Programs that were linked without .eh_frame_hdr, as gcc does with -static, get a table of our own: .eh_frame is found
 * by the file's section headers, and its entries are sorted. */
static void graft_sift(struct graft_function_entry *table, size_t at, size_t count)
{
	struct graft_function_entry moved = table[at];
	for (size_t child; (child = 2 * at + 1) < count; at = child) {
		if (child + 1 < count && table[child + 1].function > table[child].function)
			child++;
		if (moved.function >= table[child].function)
			break;
		table[at] = table[child];
	}
	table[at] = moved;
}

static void graft_sort_table(struct graft_function_entry *table, size_t count)
{
	for (size_t i = count / 2; i--;)
		graft_sift(table, i, count);
	for (size_t i = count; i-- > 1;) {
		struct graft_function_entry last = table[i];
		table[i] = table[0];
		table[0] = last;
		graft_sift(table, 0, i);
	}
}

/* Lists the entries of functions in .eh_frame in a table, if there is one yet, and returns their number. */
static size_t graft_list_entries(const uint8_t *frames, size_t size, uintptr_t base, struct graft_function_entry *table)
{
	const uint8_t *at = frames, *limit = frames + size;
	size_t count = 0;
	while (limit - at >= 8) {
		uint32_t words[2];
		struct graft_entry entry;
		memcpy(words, at, sizeof words);
		if (!words[0] || words[0] > (size_t)(limit - at) - 4)
			break;
		if (words[1] && graft_read_entry(at, limit, &entry)) {
			int32_t function = (int32_t)(entry.start - base), place = (int32_t)((uintptr_t)at - base);
			if (table)
				table[count] = (struct graft_function_entry){function, place};
			count++;
		}
		at += 4 + words[0];
	}
	return count;
}

/* Returns whether an address range lies in a readable segment of the program. */
static bool graft_is_loaded(uintptr_t bias, uintptr_t start, size_t size)
{
	const ElfW(Phdr) *headers = (const void *)getauxval(AT_PHDR);
	for (size_t i = 0; headers && i < getauxval(AT_PHNUM); i++) {
		uintptr_t first = headers[i].p_vaddr + bias, length = headers[i].p_filesz;
		bool is_read = headers[i].p_type == PT_LOAD && headers[i].p_flags & PF_R;
		if (is_read && start >= first && start - first <= length && size <= length - (start - first))
			return true;
	}
	return false;
}

/* Reads bytes of a file. On 32-bit architectures the kernel takes the place in two words; there nothing is read. */
static bool graft_read_at(int fd, void *bytes, size_t size, uint64_t at)
{
	return graft_unwinds && syscall(SYS_pread64, fd, bytes, size, (long)at) == (long)size;
}

/* Returns .eh_frame of the program's own file by its section headers, or null. */
static const uint8_t *graft_find_frames(int fd, uintptr_t bias, size_t *size)
{
	ElfW(Ehdr) file;
	ElfW(Shdr) names, section;
	char name[sizeof ".eh_frame"];
	if (!graft_read_at(fd, &file, sizeof file, 0) || file.e_shentsize != sizeof section ||
	    !graft_read_at(fd, &names, sizeof names, file.e_shoff + file.e_shstrndx * sizeof names))
		return 0;
	for (unsigned i = 0; i < file.e_shnum; i++) {
		if (!graft_read_at(fd, &section, sizeof section, file.e_shoff + i * sizeof section))
			return 0;
		if (section.sh_type == SHT_NOBITS || !(section.sh_flags & SHF_ALLOC) ||
		    !graft_read_at(fd, name, sizeof name, names.sh_offset + section.sh_name) ||
		    !graft_is_same(name, ".eh_frame", sizeof name) ||
		    !graft_is_loaded(bias, section.sh_addr + bias, section.sh_size))
			continue;
		*size = section.sh_size;
		return (const uint8_t *)(section.sh_addr + bias);
	}
	return 0;
}

/* Gives the program's module a table, if it has none. Called once, before others read it. */
static void graft_index_program(void)
{
	struct graft_module *module = 0;
	for (unsigned i = 0; i < graft_modules->count; i++) {
		struct graft_module *one = &graft_modules->all[i];
		if (one->is_program && !one->count)
			module = one;
		else if (one->is_program)
			return;
	}
	if (!module)
		return;
	size_t size = 0;
	int fd = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/exe", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	const uint8_t *frames = graft_find_frames(fd, module->bias, &size);
	syscall(SYS_close, fd);
	size_t count = frames ? graft_list_entries(frames, size, module->start, 0) : 0;
	if (!count)
		return;
	struct graft_function_entry *table =
		mmap(0, count * sizeof *table, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (table == MAP_FAILED)
		return;
	graft_list_entries(frames, size, module->start, table);
	graft_sort_table(table, count);
	for (unsigned i = 0; i < graft_modules->count; i++) {
		struct graft_module *one = &graft_modules->all[i];
		if (one->is_program) {
			one->base = module->start;
			one->table = table;
			one->count = count;
		}
	}
}

/* The rules while instructions are executed. A distance of GRAFT_ROW_KEPT means the register itself. */
struct graft_rules {
	uint64_t base;
	int64_t cfa, return_address, frame_pointer;
	bool is_unknown, is_outermost;
};

static void graft_set_rule(struct graft_rules *rules, const struct graft_common *common, uint64_t column, int64_t rule)
{
	if (column == common->return_column)
		rules->return_address = rule;
	else if (column == (uint64_t)graft_dwarf_fp)
		rules->frame_pointer = rule;
}

static void graft_restore_rule(struct graft_rules *rules, const struct graft_common *common,
                               const struct graft_rules *initial, uint64_t column)
{
	graft_set_rule(rules, common, column,
	               column == common->return_column ? initial->return_address : initial->frame_pointer);
}

/* Executes instructions up to the address that lies `distance` behind the function's start. */
static void graft_execute(struct graft_reader reader, const struct graft_common *common, uint64_t distance,
                          const struct graft_rules *initial, struct graft_rules *rules)
{
	static struct graft_rules remembered[8];
	unsigned depth = 0;
	uint64_t at = 0, column, size;
	while (reader.at && reader.at < reader.end && !rules->is_unknown) {
		uint8_t code = (uint8_t)graft_read_word(&reader, 1), low = code & 0x3f;
		uint64_t advance = 0;
		switch (code & 0xc0) {
		case 0x40: advance = low; break;
		case 0x80:
			graft_set_rule(rules, common, low, (int64_t)graft_read_leb(&reader, false) * common->data_unit);
			continue;
		case 0xc0: graft_restore_rule(rules, common, initial, low); continue;
		default:
			switch (low) {
			case 0x00: continue;
			case 0x02: advance = graft_read_word(&reader, 1); break;
			case 0x03: advance = graft_read_word(&reader, 2); break;
			case 0x04: advance = graft_read_word(&reader, 4); break;
			case 0x05: /* DW_CFA_offset_extended */
				column = graft_read_leb(&reader, false);
				graft_set_rule(rules, common, column, (int64_t)graft_read_leb(&reader, false) * common->data_unit);
				continue;
			case 0x06: graft_restore_rule(rules, common, initial, graft_read_leb(&reader, false)); continue;
			case 0x07: /* DW_CFA_undefined: of the return address, it marks the outermost function. */
				column = graft_read_leb(&reader, false);
				rules->is_outermost |= column == common->return_column;
				continue;
			case 0x08: graft_set_rule(rules, common, graft_read_leb(&reader, false), GRAFT_ROW_KEPT); continue;
			case 0x09: /* DW_CFA_register */
				column = graft_read_leb(&reader, false);
				graft_read_leb(&reader, false);
				rules->is_unknown |= column == common->return_column || column == (uint64_t)graft_dwarf_fp;
				continue;
			case 0x0a: /* DW_CFA_remember_state */
				if (depth == sizeof remembered / sizeof *remembered)
					rules->is_unknown = true;
				else
					remembered[depth++] = *rules;
				continue;
			case 0x0b: /* DW_CFA_restore_state */
				if (!depth)
					rules->is_unknown = true;
				else
					*rules = remembered[--depth];
				continue;
			case 0x0c: /* DW_CFA_def_cfa */
				rules->base = graft_read_leb(&reader, false);
				rules->cfa = (int64_t)graft_read_leb(&reader, false);
				continue;
			case 0x0d: rules->base = graft_read_leb(&reader, false); continue;
			case 0x0e: rules->cfa = (int64_t)graft_read_leb(&reader, false); continue;
			case 0x0f: /* DW_CFA_def_cfa_expression: until another instruction says it plainly. */
				size = graft_read_leb(&reader, false);
				reader.at = reader.at && size <= (uint64_t)(reader.end - reader.at) ? reader.at + size : 0;
				rules->base = UINT64_MAX;
				continue;
			case 0x10: case 0x16: /* DW_CFA_expression, DW_CFA_val_expression */
				column = graft_read_leb(&reader, false);
				size = graft_read_leb(&reader, false);
				reader.at = reader.at && size <= (uint64_t)(reader.end - reader.at) ? reader.at + size : 0;
				rules->is_unknown |= column == common->return_column || column == (uint64_t)graft_dwarf_fp;
				continue;
			case 0x11: /* DW_CFA_offset_extended_sf */
				column = graft_read_leb(&reader, false);
				graft_set_rule(rules, common, column, (int64_t)graft_read_leb(&reader, true) * common->data_unit);
				continue;
			case 0x12: /* DW_CFA_def_cfa_sf */
				rules->base = graft_read_leb(&reader, false);
				rules->cfa = (int64_t)graft_read_leb(&reader, true) * common->data_unit;
				continue;
			case 0x13: rules->cfa = (int64_t)graft_read_leb(&reader, true) * common->data_unit; continue;
			case 0x2d: continue; /* DW_CFA_AARCH64_negate_ra_state: the signature is taken off everywhere. */
			case 0x2e: graft_read_leb(&reader, false); continue; /* DW_CFA_GNU_args_size */
			default: rules->is_unknown = true; continue;
			}
		}
		at += advance * common->code_unit;
		if (at > distance)
			return;
	}
	rules->is_unknown |= !reader.at;
}

/* Returns what the tables say of an address, or a row of the kind `none`. */
static struct graft_row graft_look_up_row(uintptr_t address)
{
	struct graft_row none = {.kind = graft_row_none};
	struct graft_entry entry;
	const uint8_t *limit, *at = graft_find_entry(address, &limit);
	if (!at || !graft_read_entry(at, limit, &entry) || address - entry.start >= entry.size)
		return none;
	struct graft_rules initial = {.return_address = GRAFT_ROW_KEPT, .frame_pointer = GRAFT_ROW_KEPT};
	graft_execute(entry.common.instructions, &entry.common, UINT64_MAX, &initial, &initial);
	struct graft_rules rules = initial;
	graft_execute(entry.instructions, &entry.common, address - entry.start, &initial, &rules);
	if (rules.is_outermost)
		return (struct graft_row){.kind = graft_row_end};
	bool is_by_fp = rules.base == (uint64_t)graft_dwarf_fp;
	if (rules.is_unknown || (!is_by_fp && rules.base != (uint64_t)graft_dwarf_sp) || rules.cfa >= 1 << 29 ||
	    rules.cfa < -(1 << 29) ||
	    rules.return_address != (int16_t)rules.return_address || rules.frame_pointer != (int16_t)rules.frame_pointer)
		return none;
	return (struct graft_row){(int32_t)rules.cfa, (int16_t)rules.return_address, (int16_t)rules.frame_pointer,
	                          is_by_fp ? graft_row_by_fp : graft_row_by_sp};
}

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

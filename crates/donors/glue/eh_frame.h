/* The unwind tables of a program (`.eh_frame`): where a function's caller has its registers. The tables are those of DWARF
 * 5, section 6.4, in the form of the Linux Standard Base, "Exception Frames". Of the registers, only the stack pointer,
 * the frame pointer and the return address are followed: compilers use no other one to find a frame. Little of the stack
 * is used. The caller makes sure that one thread at a time is here. */
#ifndef GRAFT_EH_FRAME_H
#define GRAFT_EH_FRAME_H

#include <elf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "count.h"
#include "modules.h"

/* Most programs never run this. */
#pragma clang attribute push(__attribute__((minsize)), apply_to = function)

/* DWARF's numbers of the registers. */
#if defined(__x86_64__)
enum { graft_dwarf_fp = 6, graft_dwarf_sp = 7, graft_unwinds = true };
#elif defined(__aarch64__)
enum { graft_dwarf_fp = 29, graft_dwarf_sp = 31, graft_unwinds = true };
#elif defined(__riscv) && __riscv_xlen == 64
enum { graft_dwarf_fp = 8, graft_dwarf_sp = 2, graft_unwinds = true };
#else
enum { graft_dwarf_fp = -1, graft_dwarf_sp = -2, graft_unwinds = false };
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

/* A pointer in one of the encodings DW_EH_PE, absolute or relative to its place: compilers write no others here. Indirect
 * ones are not followed. */
static uint64_t graft_read_encoded(struct graft_reader *reader, uint8_t encoding)
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
	bool has_augmentation;
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
				graft_read_encoded(&data, (uint8_t)graft_read_word(&data, 1) & 0x7f);
		}
		if (!data.at)
			return false;
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
	entry->start = (uintptr_t)graft_read_encoded(&reader, entry->common.encoding);
	entry->size = (uintptr_t)graft_read_encoded(&reader, entry->common.encoding & 0x0f);
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
	struct graft_function_entry *table = graft_count_page(MAP_PRIVATE, count * sizeof *table);
	if (!table)
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

#pragma clang attribute pop

#endif

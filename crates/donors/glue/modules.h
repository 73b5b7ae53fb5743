/* The files whose code runs in this process, for a profile of the heap: where they are mapped, their build ids, and their
 * unwind tables. They are read from /proc/self/maps and from the files' own program headers in memory. */
#ifndef GRAFT_MODULES_H
#define GRAFT_MODULES_H

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "page.h"

/* Most programs never run this. */
#pragma clang attribute push(__attribute__((minsize)), apply_to = function)

/* An entry of a sorted table of functions, as in .eh_frame_hdr: the function's start and its entry in .eh_frame, both as
 * distances from the table's base (Linux Standard Base, "The .eh_frame_hdr section"). */
struct graft_function_entry {
	int32_t function, entry;
};

/* A mapping with code. */
struct graft_module {
	uintptr_t start, end, offset;
	uint32_t path, build_id_size;
	uint8_t build_id[32];
	bool is_program;
	uintptr_t bias; /* from addresses in the file to those in memory */
	uintptr_t base;
	const struct graft_function_entry *table;
	size_t count;
};

enum { graft_modules_most = 512, graft_module_paths = 65536 };

/* All of them. One thread at a time writes, and only behind what others read. */
struct graft_modules {
	struct graft_module all[graft_modules_most];
	_Atomic unsigned count;
	uint32_t used;
	char paths[graft_module_paths];
	char line[8192];
};
static struct graft_modules *graft_modules;

static const struct graft_module *graft_module_of(uintptr_t address)
{
	unsigned count = atomic_load_explicit(&graft_modules->count, memory_order_acquire);
	for (unsigned i = 0; i < count; i++) {
		const struct graft_module *module = &graft_modules->all[i];
		if (address >= module->start && address < module->end)
			return module;
	}
	return 0;
}

/* Whether 8 bytes can be read: the kernel reads them before it finds that there is no such operation
 * (rt_sigprocmask(2)). */
static bool graft_is_readable(uintptr_t address)
{
	int saved = errno;
	bool is_readable = syscall(SYS_rt_sigprocmask, ~0, address, (void *)0, 8l) == 0 || errno != EFAULT;
	errno = saved;
	return is_readable;
}

static bool graft_is_code(uintptr_t address)
{
	return graft_module_of(address);
}

/* Returns the place of the entry in .eh_frame that may describe the function at this address, or null. */
static const uint8_t *graft_find_entry(uintptr_t address, const uint8_t **limit)
{
	const struct graft_module *module = graft_module_of(address);
	if (!module || !module->count)
		return 0;
	/* A library may be gone, and another one in its place. */
	if (!module->is_program && (!graft_is_readable((uintptr_t)module->table) ||
	                            !graft_is_readable((uintptr_t)(module->table + module->count - 1))))
		return 0;
	size_t low = 0, high = module->count;
	while (low < high) {
		size_t middle = (low + high) / 2;
		if (module->base + (uintptr_t)(intptr_t)module->table[middle].function <= address)
			low = middle + 1;
		else
			high = middle;
	}
	if (!low)
		return 0;
	const uint8_t *entry = (const uint8_t *)module->base + module->table[low - 1].entry;
	/* Compilers write shorter ones; the reader stops at the entry's own length. */
	enum { longest = 4096 };
	*limit = entry + longest;
	if (!module->is_program && (!graft_is_readable((uintptr_t)entry) || !graft_is_readable((uintptr_t)entry + 64)))
		return 0;
	return entry;
}

/* A mapping as the kernel lists it (proc_pid_maps(5)). */
struct graft_mapping {
	uintptr_t start, end, offset;
	bool is_readable, is_code;
	const char *path;
};

static uintptr_t graft_read_hexadecimal(const char **text)
{
	uintptr_t number = 0;
	for (;; ++*text) {
		char digit = **text;
		if (digit >= '0' && digit <= '9')
			number = number << 4 | (uintptr_t)(digit - '0');
		else if (digit >= 'a' && digit <= 'f')
			number = number << 4 | (uintptr_t)(digit - 'a' + 10);
		else
			return number;
	}
}

static bool graft_parse_mapping(const char *line, struct graft_mapping *mapping)
{
	mapping->start = graft_read_hexadecimal(&line);
	if (*line++ != '-')
		return false;
	mapping->end = graft_read_hexadecimal(&line);
	if (*line++ != ' ')
		return false;
	mapping->is_readable = line[0] == 'r';
	mapping->is_code = line[0] && line[1] && line[2] == 'x';
	while (*line && *line != ' ')
		line++;
	line += *line == ' ';
	mapping->offset = graft_read_hexadecimal(&line);
	/* Behind it: device and inode. */
	for (int field = 0; field < 2; field++) {
		while (*line == ' ')
			line++;
		while (*line && *line != ' ')
			line++;
	}
	while (*line == ' ')
		line++;
	mapping->path = line;
	return true;
}

/* Calls `each` for every mapping. Returns false if the kernel does not list them. */
static bool graft_each_mapping(void (*each)(const struct graft_mapping *, void *), void *argument)
{
	char *text = graft_modules->line;
	size_t length = 0;
	struct graft_mapping mapping;
	int fd = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	for (;;) {
		long got = syscall(SYS_read, fd, text + length, sizeof graft_modules->line - 1 - length);
		if (got <= 0)
			break;
		length += (size_t)got;
		char *line = text;
		for (char *end = text; end < text + length; end++) {
			if (*end != '\n')
				continue;
			*end = 0;
			if (graft_parse_mapping(line, &mapping))
				each(&mapping, argument);
			line = end + 1;
		}
		length -= (size_t)(line - text);
		memmove(text, line, length);
		if (length == sizeof graft_modules->line - 1)
			break;
	}
	syscall(SYS_close, fd);
	return true;
}

/* The file whose first bytes were listed last, and the program itself. */
struct graft_listing {
	uintptr_t start, end;
	char path[1024], program[1024];
};

static void graft_take_build_id(struct graft_module *module, const uint8_t *note, size_t size)
{
	while (size >= sizeof(ElfW(Nhdr))) {
		const ElfW(Nhdr) *head = (const void *)note;
		size_t name = (head->n_namesz + 3u) & ~3u, whole = sizeof *head + name + ((head->n_descsz + 3u) & ~3u);
		if (name > size || whole > size)
			return;
		if (head->n_type == NT_GNU_BUILD_ID && head->n_namesz == 4 && graft_is_same(head + 1, "GNU", 4)) {
			module->build_id_size = head->n_descsz <= sizeof module->build_id ? head->n_descsz : 0;
			memcpy(module->build_id, (const uint8_t *)(head + 1) + name, module->build_id_size);
			return;
		}
		note += whole;
		size -= whole;
	}
}

/* The head of .eh_frame_hdr, of the only form that linkers write: version 1, a table of 4-byte distances. */
static void graft_take_table(struct graft_module *module, uintptr_t head, size_t size)
{
	const uint8_t *bytes = (const uint8_t *)head;
	uint32_t count;
	if (size < 12 || bytes[0] != 1 || (bytes[2] & 0x0f) != 0x03 || bytes[3] != 0x3b)
		return;
	memcpy(&count, bytes + 8, sizeof count);
	if (count > (size - 12) / sizeof *module->table)
		return;
	module->base = head;
	module->table = (const void *)(head + 12);
	module->count = count;
}

static void graft_take_headers(struct graft_module *module, const ElfW(Phdr) *headers, size_t count, uintptr_t first)
{
	uintptr_t bias = 0;
	bool is_known = false;
	for (size_t i = 0; i < count; i++) {
		if (headers[i].p_type == PT_LOAD && !headers[i].p_offset) {
			bias = first - headers[i].p_vaddr;
			is_known = true;
		}
	}
	module->bias = bias;
	for (size_t i = 0; is_known && i < count; i++) {
		uintptr_t at = headers[i].p_vaddr + bias;
		if (headers[i].p_type == PT_NOTE && !module->build_id_size)
			graft_take_build_id(module, (const uint8_t *)at, headers[i].p_filesz);
		else if (headers[i].p_type == PT_GNU_EH_FRAME)
			graft_take_table(module, at, headers[i].p_filesz);
	}
}

static void graft_copy_path(char *to, const char *path)
{
	size_t length = strlen(path);
	length = length < sizeof((struct graft_listing *)0)->path ? length : 0;
	memcpy(to, path, length);
	to[length] = 0;
}

static bool graft_is_same_text(const char *one, const char *other)
{
	return strlen(one) == strlen(other) && graft_is_same(one, other, strlen(one));
}

/* The program is the file with the entry point. */
static void graft_note_program(const struct graft_mapping *mapping, void *argument)
{
	struct graft_listing *listing = argument;
	uintptr_t entry = getauxval(AT_ENTRY);
	if (entry >= mapping->start && entry < mapping->end)
		graft_copy_path(listing->program, mapping->path);
}

static void graft_note_module(const struct graft_mapping *mapping, void *argument)
{
	struct graft_listing *listing = argument;
	/* Small files have a page in two segments, and the file's first bytes twice: the first of them counts. */
	bool is_other = *mapping->path && !graft_is_same_text(mapping->path, listing->path);
	if (!mapping->offset && mapping->is_readable && is_other) {
		listing->start = mapping->start;
		listing->end = mapping->end;
		graft_copy_path(listing->path, mapping->path);
	}
	unsigned count = atomic_load(&graft_modules->count);
	size_t length = strlen(mapping->path) + 1;
	const struct graft_module *known = graft_module_of(mapping->start);
	if (!mapping->is_code || known || count == graft_modules_most || graft_module_paths - graft_modules->used < length)
		return;
	struct graft_module *module = &graft_modules->all[count];
	*module = (struct graft_module){.start = mapping->start, .end = mapping->end, .offset = mapping->offset};
	module->path = graft_modules->used;
	memcpy(graft_modules->paths + graft_modules->used, mapping->path, length);
	graft_modules->used += (uint32_t)length;
	if (*mapping->path && graft_is_same_text(mapping->path, listing->path)) {
		const ElfW(Ehdr) *file = (const void *)listing->start;
		size_t size = listing->end - listing->start;
		module->is_program = graft_is_same_text(mapping->path, listing->program);
		if (module->is_program)
			graft_take_headers(module, (const void *)getauxval(AT_PHDR), getauxval(AT_PHNUM), listing->start);
		else if (size >= sizeof *file && graft_is_same(file->e_ident, ELFMAG, SELFMAG) && file->e_phoff < size &&
		         file->e_phnum <= (size - file->e_phoff) / sizeof(ElfW(Phdr)))
			graft_take_headers(module, (const void *)(listing->start + file->e_phoff), file->e_phnum, listing->start);
	}
	atomic_store_explicit(&graft_modules->count, count + 1, memory_order_release);
}

/* Reads the mappings again: libraries may have been added. Those that are known stay as they are. */
static void graft_read_modules(void)
{
	static struct graft_listing listing;
	int saved = errno;
	listing.path[0] = listing.program[0] = 0;
	if (graft_each_mapping(graft_note_program, &listing))
		graft_each_mapping(graft_note_module, &listing);
	errno = saved;
}

#pragma clang attribute pop

#endif

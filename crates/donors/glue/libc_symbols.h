/* Redirects libc's own names of the malloc family to the donor.
 *
 * The donor comes first in the order in which a process looks up symbols, but three kinds of look-up ignore that order:
 * a library that is loaded with RTLD_DEEPBIND looks in its own dependencies first, and one of them is libc; `dlsym`
 * with a handle of libc or of a library that needs it; and old names that only libc has (`cfree`). Each finds libc's
 * `free` for one of the donor's blocks. All of them end at libc's table of dynamic symbols, so the donor writes its own
 * addresses there when it starts: before any of the program's code or, in a merged program of glibc, of a library's
 * code. No code changes.
 *
 * Both loaders look up names in that table each time, and add the file's base to the value, as a number that may wrap
 * (glibc elf/dl-lookup.c, `do_lookup_x`, and sysdeps/generic/ldsodefs.h, `SYMBOL_ADDRESS`; musl ldso/dynlink.c,
 * `find_sym2`). Earlier bindings stay; they were made in the process's order. `__libc_malloc` and similar names keep
 * libc's addresses: their callers give the blocks to `__libc_free`, and may be bound already. So do names that handle
 * no blocks (`mallopt`, `mallinfo`): each page of the table that is written takes memory and time in every process.
 * `malloc_trim` is redirected: Python programs call it by libc's handle, to return memory. */
#ifndef GRAFT_LIBC_SYMBOLS_H
#define GRAFT_LIBC_SYMBOLS_H

#include <elf.h>
#include <link.h>
#include <stdint.h>
#include <sys/auxv.h>
#include <sys/mman.h>

extern __typeof(dl_iterate_phdr) dl_iterate_phdr __attribute__((weak));

#define GRAFT_LED(X)                                                                                             \
	X(malloc) X(calloc) X(realloc) X(free) X(aligned_alloc) X(memalign) X(posix_memalign) X(valloc) X(pvalloc)    \
	X(reallocarray) X(malloc_usable_size) X(malloc_trim)

#define GRAFT_LED_NAME(name) {#name, (uintptr_t)name},
static const struct {
	const char *name;
	uintptr_t address;
} graft_led[] = {GRAFT_LED(GRAFT_LED_NAME){"cfree", (uintptr_t)free}};

/* The dynamic symbols of a loaded file. */
struct graft_symbols {
	uintptr_t base;
	ElfW(Sym) *table;
	const char *names;
	const uint32_t *gnu_hash, *hash;
	/* The start of the last table that the loader reads: no code is between the symbols and it. */
	uintptr_t last_table;
};

static void graft_read_symbols(struct graft_symbols *symbols, uintptr_t base, const ElfW(Dyn) *dynamic)
{
	*symbols = (struct graft_symbols){.base = base};
	for (; dynamic->d_tag != DT_NULL; dynamic++) {
		/* glibc has added the base already, except where the section is read-only. */
		uintptr_t at = dynamic->d_un.d_ptr < base ? dynamic->d_un.d_ptr + base : dynamic->d_un.d_ptr;
		switch (dynamic->d_tag) {
		case DT_SYMTAB:
			symbols->table = (void *)at;
			break;
		case DT_HASH:
			symbols->hash = (const void *)at;
			break;
		case DT_GNU_HASH:
			symbols->gnu_hash = (const void *)at;
			break;
		case DT_STRTAB:
			symbols->names = (const void *)at;
			/* fall through */
		case DT_VERSYM:
		case DT_VERDEF:
		case DT_RELA:
		case DT_JMPREL:
			if (at > symbols->last_table)
				symbols->last_table = at;
			break;
		}
	}
	/* Without any of these, no name is found in it. */
	if (!symbols->table || !symbols->names || !(symbols->gnu_hash || symbols->hash))
		symbols->table = 0;
}

static int graft_is_definition(const struct graft_symbols *symbols, uint32_t index, const char *name)
{
	const ElfW(Sym) *symbol = &symbols->table[index];
	const char *is = symbols->names + symbol->st_name;
	/* Data counts, too: `stdin`. The address of an indirect function is not a function's own. */
	unsigned type = symbol->st_info & 15;
	if (symbol->st_shndx == SHN_UNDEF || !symbol->st_value || type > STT_FUNC)
		return 0;
	while (*name && *name == *is)
		name++, is++;
	return *name == *is;
}

/* The next definition of a name behind `before`; the first definition if `before` is 0. Returns 0 at the end. */
GRAFT_SMALL uint32_t graft_definition(const struct graft_symbols *symbols, const char *name, uint32_t before)
{
	if (!symbols->table)
		return 0;
	if (symbols->gnu_hash) {
		const uint32_t *head = symbols->gnu_hash;
		const uint32_t *buckets = head + 4 + head[2] * (sizeof(ElfW(Addr)) / sizeof *head), *chains = buckets + head[0];
		uint32_t hash = 5381, index;
		for (const char *at = name; *at; at++)
			hash = hash * 33 + (unsigned char)*at;
		if (!head[0])
			return 0;
		index = before ? before : buckets[hash % head[0]];
		if (!index || (before && chains[before - head[1]] & 1))
			return 0;
		for (index += before != 0;; index++) {
			uint32_t link = chains[index - head[1]];
			if ((link | 1) == (hash | 1) && graft_is_definition(symbols, index, name))
				return index;
			if (link & 1)
				return 0;
		}
	}
	const uint32_t *head = symbols->hash, *chains = head + 2 + head[0];
	uint32_t hash = 0, index;
	for (const char *at = name; *at; at++) {
		hash = (hash << 4) + (unsigned char)*at;
		hash = (hash ^ (hash >> 24 & 0xf0)) & 0x0fffffff;
	}
	if (!head[0])
		return 0;
	for (index = before ? chains[before] : head[2 + hash % head[0]]; index; index = chains[index]) {
		if (graft_is_definition(symbols, index, name))
			return index;
	}
	return 0;
}

/* Writes the donor's addresses into the symbols of libc, which are in a segment with these flags. */
static void graft_lead(const struct graft_symbols *libc, const struct dl_phdr_info *info)
{
	enum { COUNT = sizeof graft_led / sizeof *graft_led };
	uintptr_t page = (uintptr_t)getauxval(AT_PAGESZ), low = UINTPTR_MAX, high = 0;
	for (int i = 0; i < COUNT; i++) {
		for (uint32_t index = 0; (index = graft_definition(libc, graft_led[i].name, index));) {
			uintptr_t at = (uintptr_t)&libc->table[index];
			low = at < low ? at : low;
			high = at + sizeof *libc->table > high ? at + sizeof *libc->table : high;
		}
	}
	if (low >= high)
		return;
	uintptr_t start = low & ~(page - 1), end = (high + page - 1) & ~(page - 1);
	unsigned flags = 0;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
		uintptr_t from = info->dlpi_addr + segment->p_vaddr;
		if (segment->p_type == PT_LOAD && from <= low && high <= from + segment->p_filesz)
			flags = segment->p_flags;
	}
	if (!(flags & PF_R))
		return;
	/* GNU's linker puts tables and code into one segment on aarch64. Pages that have tables only are not made executable
	 * again, which a system may forbid for a page that was written (SELinux, PR_SET_MDWE). */
	int protection = PROT_READ;
	if (flags & PF_X && end > libc->last_table)
		protection |= PROT_EXEC;
	if (!(flags & PF_W) && mprotect((void *)start, end - start, protection | PROT_WRITE))
		return;
	for (int i = 0; i < COUNT; i++) {
		for (uint32_t index = 0; (index = graft_definition(libc, graft_led[i].name, index));)
			libc->table[index].st_value = graft_led[i].address - libc->base;
	}
	if (!(flags & PF_W))
		mprotect((void *)start, end - start, protection);
}

/* Called for the files of the process in the order in which names are looked up. Ends with 1 at libc, and with -1 if
 * another file's malloc comes before the donor's. */
static int graft_look_for_libc(struct dl_phdr_info *info, size_t size, void *given)
{
	int *is_first = given, holds_donor = 0;
	const ElfW(Dyn) *dynamic = 0;
	struct graft_symbols symbols;
	(void)size;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
		uintptr_t start = info->dlpi_addr + segment->p_vaddr;
		if (segment->p_type == PT_DYNAMIC)
			dynamic = (const void *)start;
		if (segment->p_type == PT_LOAD && (uintptr_t)graft_led - start < segment->p_memsz)
			holds_donor = 1;
	}
	if (!dynamic)
		return 0;
	graft_read_symbols(&symbols, info->dlpi_addr, dynamic);
	if (!*is_first && graft_definition(&symbols, "malloc", 0)) {
		if (!holds_donor)
			return -1;
		*is_first = 1;
	}
	/* By what it does, whatever its name: it starts programs, and has the streams. */
	if (holds_donor || !graft_definition(&symbols, "__libc_start_main", 0) || !graft_definition(&symbols, "stdin", 0))
		return 0;
	graft_lead(&symbols, info);
	return 1;
}

static void graft_lead_libc(void)
{
	int is_first = 0;
	if (dl_iterate_phdr)
		dl_iterate_phdr(graft_look_for_libc, &is_first);
}

#endif

/* The kernel's clock without a system call: the function in the shared object that the kernel maps into every process
 * (vdso(7)). libc's malloc looks at no clock, so a filter made for stock's calls may kill at clock_gettime; and a call
 * is slow. */
#ifndef TRANSPLANT_VDSO_H
#define TRANSPLANT_VDSO_H

#include <elf.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#if defined(__x86_64__)
#define VDSO_CLOCK "__vdso_clock_gettime"
#elif defined(__aarch64__)
#define VDSO_CLOCK "__kernel_clock_gettime"
#else
#error "no name of the clock for this architecture"
#endif

typedef int vdso_clock_function(clockid_t clock, struct timespec *time);

static inline bool vdso_same(const char *one, const char *other)
{
	while (*one && *one == *other)
		one++, other++;
	return *one == *other;
}

/* Returns the number of symbols: of DT_HASH, or, where only DT_GNU_HASH is there, one more than the last in a chain. */
static inline uint32_t vdso_symbols(const uint32_t *hash, const uint32_t *gnu)
{
	if (hash)
		return hash[1];
	if (!gnu)
		return 0;
	uint32_t buckets = gnu[0], first = gnu[1], last = 0;
	const uint32_t *starts = gnu + 4 + 2 * gnu[2], *chains = starts + buckets;
	for (uint32_t i = 0; i < buckets; i++)
		last = starts[i] > last ? starts[i] : last;
	if (last < first)
		return 0;
	while (!(chains[last - first] & 1))
		last++;
	return last + 1;
}

/* Returns the function in the shared object at `image` (AT_SYSINFO_EHDR); NULL if it is missing. The kernel's object is
 * trusted to be well formed. */
static inline vdso_clock_function *vdso_find(uintptr_t image)
{
	const Elf64_Ehdr *header = (const Elf64_Ehdr *)image;
	if (!header)
		return NULL;
	const Elf64_Phdr *segment = (const Elf64_Phdr *)(image + header->e_phoff);
	const Elf64_Dyn *dynamic = NULL;
	uintptr_t bias = 0;
	bool loaded = false;
	for (int i = 0; i < header->e_phnum; i++) {
		if (segment[i].p_type == PT_LOAD && !loaded) {
			bias = image + segment[i].p_offset - segment[i].p_vaddr;
			loaded = true;
		} else if (segment[i].p_type == PT_DYNAMIC) {
			dynamic = (const Elf64_Dyn *)(image + segment[i].p_offset);
		}
	}
	if (!loaded || !dynamic)
		return NULL;
	const char *names = NULL;
	const Elf64_Sym *symbols = NULL;
	const uint32_t *hash = NULL, *gnu = NULL;
	for (; dynamic->d_tag != DT_NULL; dynamic++) {
		uintptr_t at = bias + dynamic->d_un.d_ptr;
		if (dynamic->d_tag == DT_STRTAB)
			names = (const char *)at;
		else if (dynamic->d_tag == DT_SYMTAB)
			symbols = (const Elf64_Sym *)at;
		else if (dynamic->d_tag == DT_HASH)
			hash = (const uint32_t *)at;
		else if (dynamic->d_tag == DT_GNU_HASH)
			gnu = (const uint32_t *)at;
	}
	if (!names || !symbols)
		return NULL;
	uint32_t count = vdso_symbols(hash, gnu);
	for (uint32_t i = 1; i < count; i++) {
		if (symbols[i].st_shndx != SHN_UNDEF && vdso_same(names + symbols[i].st_name, VDSO_CLOCK))
			return (vdso_clock_function *)(bias + symbols[i].st_value);
	}
	return NULL;
}

#endif

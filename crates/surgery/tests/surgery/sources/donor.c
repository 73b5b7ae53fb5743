/* A donor in small: hands out memory and takes none back. Its helpers are global, to be made local. */
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define HIDDEN __attribute__((visibility("hidden")))
#define PUBLIC(name, internal) extern __typeof(internal) name __attribute__((weak, alias(#internal), visibility("default")))

static _Alignas(4096) char room[4 << 20];
size_t counter;
int secret(int x) { return x + 1; }

/* The size is in front of a block. */
void *helper(size_t alignment, size_t n)
{
	uintptr_t at = ((uintptr_t)room + counter + sizeof(size_t) + alignment - 1) & -alignment;
	if (n > sizeof room || at + n > (uintptr_t)room + sizeof room) {
		errno = ENOMEM;
		return 0;
	}
	((size_t *)at)[-1] = n;
	counter = at + n - (uintptr_t)room;
	return (void *)at;
}

HIDDEN void *__libc_malloc(size_t n) { return helper(16, n); }
HIDDEN void *__libc_calloc(size_t count, size_t n) { return helper(16, count * n); }
HIDDEN void __libc_free(void *block) { (void)block; }
HIDDEN void *__libc_realloc(void *old, size_t n)
{
	void *new = helper(16, n);
	if (new && old) {
		size_t before = ((size_t *)old)[-1];
		memcpy(new, old, before < n ? before : n);
	}
	return new;
}
static size_t usable(void *block) { return block ? ((size_t *)block)[-1] : 0; }
static int posix(void **to, size_t alignment, size_t n) { return (*to = helper(alignment, n)) ? 0 : ENOMEM; }
static void *page(size_t n) { return helper(4096, n); }
static void *array(void *old, size_t count, size_t n) { return __libc_realloc(old, count * n); }
HIDDEN void __malloc_donate(char *from, char *to) { (void)from, (void)to; }
HIDDEN void __malloc_atfork(int who) { (void)secret(who); }

PUBLIC(malloc, __libc_malloc);
PUBLIC(calloc, __libc_calloc);
PUBLIC(realloc, __libc_realloc);
PUBLIC(free, __libc_free);
PUBLIC(aligned_alloc, helper);
PUBLIC(memalign, helper);
PUBLIC(posix_memalign, posix);
PUBLIC(valloc, page);
PUBLIC(pvalloc, page);
PUBLIC(reallocarray, array);
PUBLIC(malloc_usable_size, usable);

struct option {
	char name[32];
	int64_t value, min, max;
	uint32_t flags, reserved;
};
__attribute__((used, section(".rodata.allograft.options"))) static const struct {
	char magic[4];
	uint32_t format, count, size;
	struct option options[1];
} options = {"ARGO", 1, 1, 64, {{"purge_delay", 10, -1, 1000, 0, 0}}};

__attribute__((used, section(".note.allograft"), aligned(4))) static const struct {
	uint32_t name_size, size, type;
	char name[12], text[512];
} note = {10, 512, 1, "allograft", "donor=small\nversion=1\noptions=\nobject=\nallograft=0.1.0\n"};

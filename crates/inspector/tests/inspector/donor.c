// A donor that is easy to see through: one lock, one bump pointer, free lists by power of two. It stands in for real ones
// where tests need a graft, or one that is broken in a chosen way: WITHOUT_HOOK, EMPTY_HOOK, WITH_STRDUP, WITH_NEED,
// WITHOUT_BOND.
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#define HIDDEN __attribute__((visibility("hidden")))
#define PUBLIC(name, internal) extern __typeof(internal) name __attribute__((weak, alias(#internal)))

__attribute__((used, section(".note.allograft"), aligned(4))) static const volatile struct {
	uint32_t name_size, description_size, type;
	char name[12], description[512];
} note = {10, 512, 1, "allograft", "donor=sample\nversion=1.2\noptions=\nobject=\nallograft=\n"};

__attribute__((used, section(".rodata.allograft.options"))) static const volatile struct {
	uint32_t magic, format, count, entry_size;
	struct {
		char name[32];
		int64_t value, least, greatest;
		uint32_t flags, reserved;
	} entries[2];
} options = {0x4f475241, 1, 2, 64, {{"patience", 5, 0, 10, 0, 0}, {"depth", -1, -1, 7, 0, 0}}};

struct header {
	size_t class, size;
};
static char lock, *top, *end;
static struct header *lists[64];

static void enter(void) {
	while (__atomic_test_and_set(&lock, __ATOMIC_ACQUIRE)) {}
}

static void leave(void) { __atomic_clear(&lock, __ATOMIC_RELEASE); }

static void *no_memory(void) {
	errno = ENOMEM;
	return 0;
}

static void *fresh(size_t size) {
	if (size > (size_t)(end - top)) {
		size_t chunk = size < ((size_t)64 << 20) ? (size_t)64 << 20 : size;
		char *mapped = mmap(0, chunk, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (mapped == MAP_FAILED) return 0;
		top = mapped;
		end = mapped + chunk;
	}
	top += size;
	return top - size;
}

HIDDEN void *__libc_malloc(size_t n) {
	if (n > PTRDIFF_MAX / 4) return no_memory();
	size_t class = 5;
	while (((size_t)1 << class) < n + sizeof(struct header)) class++;
	enter();
	struct header *block = lists[class];
	if (block)
		memcpy(&lists[class], block + 1, sizeof block);
	else
		block = fresh((size_t)1 << class);
	leave();
	if (!block) return no_memory();
	*block = (struct header){class, ((size_t)1 << class) - sizeof *block};
	return block + 1;
}

HIDDEN void __libc_free(void *p) {
	if (!p) return;
	struct header *block = (struct header *)p - 1;
	if (block->class == 63) return; // part of an aligned block: never reused
	enter();
	memcpy(block + 1, &lists[block->class], sizeof block);
	lists[block->class] = block;
	leave();
}

static size_t usable(void *p) { return p ? ((struct header *)p - 1)->size : 0; }

HIDDEN void *__libc_calloc(size_t m, size_t n) {
	size_t size;
	if (__builtin_mul_overflow(m, n, &size)) return no_memory();
	void *p = __libc_malloc(size);
	return p ? memset(p, 0, size) : 0;
}

HIDDEN void *__libc_realloc(void *p, size_t n) {
	if (p && n <= usable(p)) return p;
	void *q = __libc_malloc(n);
	if (q && p) memcpy(q, p, usable(p)), __libc_free(p);
	return q;
}

static void *aligned(size_t alignment, size_t n) {
	if (alignment & (alignment - 1)) {
		errno = EINVAL;
		return 0;
	}
	if (alignment <= 16) return __libc_malloc(n);
	if (alignment > PTRDIFF_MAX / 8 || n > PTRDIFF_MAX / 8) return no_memory();
	char *p = __libc_malloc(n + alignment + sizeof(struct header));
	if (!p) return 0;
	char *at = (char *)(((uintptr_t)p + sizeof(struct header) + alignment - 1) & -alignment);
	((struct header *)at)[-1] = (struct header){63, usable(p) - (size_t)(at - p)};
	return at;
}

static int posix(void **result, size_t alignment, size_t n) {
	if (alignment < sizeof(void *) || (alignment & (alignment - 1))) return EINVAL;
	int saved = errno;
	void *p = aligned(alignment, n);
	errno = saved;
	if (!p) return ENOMEM;
	*result = p;
	return 0;
}

static void *paged(size_t n) { return aligned(4096, n); }

static void *whole_pages(size_t n) {
	return n > PTRDIFF_MAX ? no_memory() : aligned(4096, n ? (n + 4095) & -(size_t)4096 : 4096);
}

static void *array(void *p, size_t m, size_t n) {
	size_t size;
	return __builtin_mul_overflow(m, n, &size) ? no_memory() : __libc_realloc(p, size);
}

PUBLIC(malloc, __libc_malloc);
PUBLIC(calloc, __libc_calloc);
PUBLIC(realloc, __libc_realloc);
PUBLIC(free, __libc_free);
PUBLIC(aligned_alloc, aligned);
PUBLIC(memalign, aligned);
PUBLIC(posix_memalign, posix);
PUBLIC(valloc, paged);
PUBLIC(pvalloc, whole_pages);
PUBLIC(reallocarray, array);
PUBLIC(malloc_usable_size, usable);

#ifndef WITHOUT_BOND
__asm__(".pushsection .note.allograft.bond,\"a\",%note\n"
	"\t.balign 4\n"
	"\t.long 10, 16, 3\n"
	"\t.ascii \"allograft\\0\\0\\0\"\n"
	"\t.long malloc - .\n"
	"\t.long __libc_malloc - .\n"
	"\t.long free - .\n"
	"\t.long __libc_free - .\n"
	"\t.popsection");
#endif

HIDDEN void __malloc_donate(char *from, char *to) { (void)from, (void)to; }

#if defined EMPTY_HOOK
HIDDEN void __malloc_atfork(int who) { (void)who; }
#elif !defined WITHOUT_HOOK
HIDDEN void __malloc_atfork(int who) {
	if (who < 0)
		enter();
	else
		leave();
}
#endif

#ifdef WITH_STRDUP
char *strdup(const char *text) {
	size_t size = strlen(text) + 1;
	char *copy = __libc_malloc(size);
	return copy ? memcpy(copy, text, size) : 0;
}
#endif

#ifdef WITH_NEED
extern void nobody_has_this(void);
__attribute__((used)) static void (*const need)(void) = nobody_has_this;
#endif

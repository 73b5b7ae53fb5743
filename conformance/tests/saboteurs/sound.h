// A small allocator without faults. Each saboteur sets one of the switches below and includes this file, so the
// result has that one fault. Linked before a libc.a, it replaces libc's own allocator.
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef SMALL_ALIGNMENT // of blocks of at most 8 bytes
#define SMALL_ALIGNMENT 16
#endif
#ifndef ON_FREE // before free returns; errno is the caller's again
#define ON_FREE(block)
#endif
#ifndef ON_EXHAUSTION // instead of a block
#define ON_EXHAUSTION() (errno = ENOMEM)
#endif
#ifndef CLEAR // what calloc does to a block
#define CLEAR(block, size) memset(block, 0, size)
#endif
#ifndef CLEAR_INTERNAL // what libc's internal calloc does to a block
#define CLEAR_INTERNAL(block, size) memset(block, 0, size)
#endif
#ifndef PRODUCT_OVERFLOWS
#define PRODUCT_OVERFLOWS(count, size) ((size) && (count) > SIZE_MAX / (size))
#endif
#ifndef COPIED // how much realloc carries over
#define COPIED(size) (size)
#endif
#ifndef LOST // whether free forgets the block
#define LOST(block) 0
#endif
#ifndef LOCKED
#define LOCKED 1
#endif
#ifndef READY // whether the allocator works yet
#define READY() 1
#endif
#ifndef PUBLIC
#define PUBLIC __attribute__((weak))
#endif
#ifndef PRIVATE_RESIZE // whether reallocarray overlooks that the program has its own realloc
#define PRIVATE_RESIZE 0
#endif
#define HIDDEN __attribute__((visibility("hidden")))

enum { UNIT = 16, CLASSES = 17, CHUNK = 1 << 20, MAPPED = CLASSES };

// Stored directly before every block.
struct head {
	uint32_t class, offset; // MAPPED, or a power of two; from the start of the slot to the block
	size_t size;
};

static union slot {
	union slot *next;
	size_t mapped;
} *spare[CLASSES];
static unsigned char *chunk, *chunk_end;
static atomic_flag lock = ATOMIC_FLAG_INIT;

static void acquire(void) {
	while (LOCKED && atomic_flag_test_and_set_explicit(&lock, memory_order_acquire)) sched_yield();
}

static void release(void) { atomic_flag_clear_explicit(&lock, memory_order_release); }

static void *map(size_t size) {
	void *memory = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return memory == MAP_FAILED ? 0 : memory;
}

static void *take_slot(uint32_t class) {
	size_t room = (size_t)1 << class;
	acquire();
	union slot *slot = spare[class];
	if (slot) {
		spare[class] = slot->next;
	} else {
		if ((size_t)(chunk_end - chunk) < room) {
			chunk = map(CHUNK);
			chunk_end = chunk ? chunk + CHUNK : 0;
		}
		if (chunk) slot = (void *)chunk, chunk += room;
	}
	release();
	return slot;
}

static void *take(size_t alignment, size_t size) {
	if (!READY()) return 0;
	if (alignment < UNIT) alignment = UNIT;
	if (size > PTRDIFF_MAX - UNIT * 4 || alignment > PTRDIFF_MAX - UNIT * 4 - size) return ON_EXHAUSTION(), (void *)0;
	size_t room = size + 2 * UNIT + (alignment > UNIT ? alignment : 0) + (size <= 8);
	uint32_t class = 5;
	while (class < CLASSES && (size_t)1 << class < room) class ++;
	unsigned char *slot = class < CLASSES ? take_slot(class) : map(room + UNIT);
	if (!slot) return ON_EXHAUSTION(), (void *)0;
	if (class == CLASSES) ((union slot *)slot)->mapped = room + UNIT;
	uintptr_t place = ((uintptr_t)slot + 2 * UNIT + alignment - 1) / alignment * alignment;
	if (alignment == UNIT && class < CLASSES) place = (uintptr_t)slot + UNIT;
	if (alignment == UNIT && size <= 8) place += UNIT - SMALL_ALIGNMENT;
	struct head *head = (struct head *)place - 1;
	*head = (struct head){class, (uint32_t)(place - (uintptr_t)slot), size};
	return (void *)place;
}

static struct head *head_of(void *block) { return (struct head *)block - 1; }

static void give(void *block) {
	if (!block || LOST(block)) return;
	int before = errno;
	struct head head = *head_of(block);
	union slot *slot = (void *)((unsigned char *)block - head.offset);
	if (head.class == MAPPED) {
		munmap(slot, slot->mapped);
	} else {
		memset(block, 0xdd, head.size); // shows reads after free, and code that expects zeros
		acquire();
		slot->next = spare[head.class];
		spare[head.class] = slot;
		release();
	}
	errno = before;
	ON_FREE(block);
}

static void *resize(void *block, size_t size) {
	void *moved = take(UNIT, size);
	if (!block || !moved) return moved;
	size_t kept = head_of(block)->size < size ? head_of(block)->size : size;
	memcpy(moved, block, COPIED(kept));
	give(block);
	return moved;
}

PUBLIC void *malloc(size_t size) { return take(UNIT, size); }
PUBLIC void free(void *block) { give(block); }
PUBLIC void *realloc(void *block, size_t size) { return resize(block, size); }
PUBLIC size_t malloc_usable_size(void *block) { return block ? head_of(block)->size : 0; }

PUBLIC void *calloc(size_t count, size_t size) {
	if (PRODUCT_OVERFLOWS(count, size)) return ON_EXHAUSTION(), (void *)0;
	void *block = take(UNIT, count * size);
	if (block) CLEAR(block, count * size);
	return block;
}

PUBLIC void *aligned_alloc(size_t alignment, size_t size) {
	if (alignment & (alignment - 1)) return errno = EINVAL, (void *)0;
	return take(alignment, size);
}

PUBLIC void *memalign(size_t alignment, size_t size) { return aligned_alloc(alignment, size); }
PUBLIC void *valloc(size_t size) { return memalign(4096, size); }

PUBLIC int posix_memalign(void **result, size_t alignment, size_t size) {
	if (alignment < sizeof(void *)) return EINVAL;
	void *block = aligned_alloc(alignment, size);
	if (!block) return errno;
	*result = block;
	return 0;
}

PUBLIC void *reallocarray(void *block, size_t count, size_t size) {
	if (size && count > SIZE_MAX / size) return ON_EXHAUSTION(), (void *)0;
	return PRIVATE_RESIZE ? resize(block, count * size) : realloc(block, count * size);
}

HIDDEN void *__libc_malloc(size_t size) { return take(UNIT, size); }
HIDDEN void __libc_free(void *block) { give(block); }
HIDDEN void *__libc_realloc(void *block, size_t size) { return resize(block, size); }
HIDDEN void __malloc_donate(char *from, char *to) { (void)from, (void)to; }

HIDDEN void *__libc_calloc(size_t count, size_t size) {
	if (size && count > SIZE_MAX / size) return ON_EXHAUSTION(), (void *)0;
	void *block = take(UNIT, count * size);
	if (block) CLEAR_INTERNAL(block, count * size);
	return block;
}

#ifndef FORK_HOOK
#define FORK_HOOK
HIDDEN void __malloc_atfork(int who) { // -1 before the fork, 0 after it in the parent, 1 in the child
	if (who < 0) acquire();
	else release();
}
#endif

// Every function of the malloc family, with every edge.
// At most 120 s on a slow machine.
#include "check.h"

#ifdef __GLIBC__
#include <gnu/libc-version.h>
#endif

extern void *pvalloc(size_t) __attribute__((weak)); // not in stock musl
extern int malloc_trim(size_t) __attribute__((weak)); // glibc's, not in stock musl
extern int mallopt(int, int) __attribute__((weak));

enum { UNIT = 16 }; // the alignment that musl and glibc promise on 64-bit

static uint64_t state = 1;

// Checks a new block: not null, aligned, big enough, writable to the end of its usable size.
static void check_block(void *block, size_t size, size_t alignment) {
	CHECK(block != 0);
	CHECK_THAT(is_aligned(block, alignment), "block of %zu bytes at %p is not aligned to %zu", size, block, alignment);
	size_t usable = malloc_usable_size(block);
	CHECK_THAT(usable >= size, "usable size %zu of a block of %zu bytes", usable, size);
	memset(block, 0xa5, usable);
}

static int is_zero(const unsigned char *block, size_t size) {
	for (size_t i = 0; i < size; i++)
		if (block[i]) return 0;
	return 1;
}

static void sizes(void) {
	void *blocks[1100];
	for (size_t size = 0; size < LENGTH(blocks); size++) {
		blocks[size] = malloc(size);
		check_block(blocks[size], size, UNIT);
		pattern_fill(blocks[size], 0, size, size);
	}
	for (size_t size = 0; size < LENGTH(blocks); size++) CHECK_PATTERN(blocks[size], size, size);
	for (size_t size = 0; size < LENGTH(blocks); size++) free(blocks[size]);

	for (size_t power = 2; power <= (size_t)64 << 20; power *= 2) {
		for (size_t size = power - 1; size <= power + 1; size++) {
			unsigned char *block = malloc(size);
			CHECK(block && is_aligned(block, UNIT) && malloc_usable_size(block) >= size);
			block[0] = 1, block[size / 2] = 2, block[size - 1] = 3, block[malloc_usable_size(block) - 1] = 4;
			free(block);
		}
	}
}

static void size_zero(void) {
	void *blocks[64];
	for (size_t i = 0; i < LENGTH(blocks); i++) {
		switch (i % 4) {
		case 0: blocks[i] = malloc(0); break;
		case 1: blocks[i] = calloc(0, 8); break;
		case 2: blocks[i] = calloc(8, 0); break;
		default: blocks[i] = aligned_alloc(64, 0);
		}
		CHECK(blocks[i] && is_aligned(blocks[i], UNIT));
		for (size_t j = 0; j < i; j++) CHECK(blocks[j] != blocks[i]);
	}
	for (size_t i = 0; i < LENGTH(blocks); i++) free(blocks[i]);
}

// Many blocks at once. For blocks of 1 to 8 bytes, allocators like to save the alignment.
static void alignment_of_small(void) {
	static void *blocks[4][8][200];
	for (int round = 0; round < 3; round++) {
		for (size_t way = 0; way < 4; way++)
			for (size_t size = 1; size <= 8; size++)
				for (size_t i = 0; i < 200; i++) {
					void *block = way == 0   ? malloc(size)
								  : way == 1 ? calloc(1, size)
								  : way == 2 ? realloc(0, size)
											 : realloc(malloc(40), size);
					check_block(block, size, UNIT);
					pattern_fill(block, 0, size, i + way);
					blocks[way][size - 1][i] = block;
				}
		for (size_t way = 0; way < 4; way++)
			for (size_t size = 1; size <= 8; size++)
				for (size_t i = 0; i < 200; i++) {
					CHECK_PATTERN(blocks[way][size - 1][i], size, i + way);
					free(blocks[way][size - 1][i]);
				}
	}
}

static void zeroing(void) {
	static const size_t all[] = {1, 8, 16, 24, 48, 100, 500, 1000, 4000, 4096, 16000, 70000, 140000, 300000, 1 << 20, 5 << 20};
	for (size_t s = 0; s < LENGTH(all); s++) {
		size_t size = all[s];
		void *blocks[16];
		size_t count = size < 20000 ? 16 : 2;
		for (int round = 0; round < 4; round++) {
			for (size_t i = 0; i < count; i++) {
				blocks[i] = malloc(size);
				CHECK(blocks[i]);
				memset(blocks[i], 0xff, malloc_usable_size(blocks[i]));
			}
			for (size_t i = 0; i < count; i++) free(blocks[i]);
			for (size_t i = 0; i < count; i++) {
				blocks[i] = round % 2 ? calloc(size, 1) : calloc(1, size);
				CHECK(blocks[i] && is_aligned(blocks[i], UNIT));
				CHECK_THAT(is_zero(blocks[i], size), "calloc of %zu bytes is not zero", size);
				memset(blocks[i], 0xff, size);
			}
			for (size_t i = 0; i < count; i++) free(blocks[i]);
		}
	}
	unsigned char *table = calloc(37, 113);
	CHECK(table && malloc_usable_size(table) >= 37 * 113 && is_zero(table, 37 * 113));
	free(table);
}

#define CHECK_NO_MEMORY(call)                                         \
	do {                                                                \
		errno = 0;                                                        \
		void *block_ = (call);                                            \
		CHECK_THAT(block_ == 0, "%s gave %p", #call, block_);             \
		CHECK_THAT(errno == ENOMEM, "%s left errno %d, not ENOMEM", #call, errno); \
	} while (0)

static void huge(void) {
	// Sizes beyond any address space, or on 32-bit beyond half of it; the last ones are the greatest of all.
	static const size_t all[] = {
#if SIZE_MAX > UINT32_MAX
		(size_t)1 << 48, (size_t)1 << 57, (size_t)1 << 62, PTRDIFF_MAX - 65536, PTRDIFF_MAX - 4096, PTRDIFF_MAX - 16,
		PTRDIFF_MAX,
#endif
		(size_t)PTRDIFF_MAX + 1, SIZE_MAX - ((size_t)1 << 22), SIZE_MAX - 65536, SIZE_MAX - 4096, SIZE_MAX - 4095,
		SIZE_MAX - 64, SIZE_MAX - 16, SIZE_MAX - 1, SIZE_MAX};
	unsigned char *block = malloc(100), *large = malloc(300000);
	CHECK(block && large);
	pattern_fill(block, 0, 100, 7);
	pattern_fill(large, 0, 300000, 8);
	for (size_t i = 0; i < LENGTH(all); i++) {
		size_t size = all[i];
		CHECK_NO_MEMORY(malloc(size));
		CHECK_NO_MEMORY(calloc(1, size));
		CHECK_NO_MEMORY(calloc(size, 1));
		CHECK_NO_MEMORY(realloc(0, size));
		CHECK_NO_MEMORY(realloc(block, size));
		CHECK_NO_MEMORY(realloc(large, size));
		CHECK_NO_MEMORY(reallocarray(block, size, 1));
		CHECK_NO_MEMORY(reallocarray(0, 1, size));
		CHECK_NO_MEMORY(valloc(size));
		if (pvalloc) CHECK_NO_MEMORY(pvalloc(size));
		for (size_t alignment = 1; alignment <= (size_t)1 << 20; alignment *= 4) {
			CHECK_NO_MEMORY(aligned_alloc(alignment, size));
			CHECK_NO_MEMORY(memalign(alignment, size));
			void *kept = &state;
			if (alignment >= sizeof(void *)) {
				CHECK(posix_memalign(&kept, alignment, size) == ENOMEM);
				CHECK(kept == &state);
			}
		}
	}
	// On 32-bit, a quarter of the address space may be free.
	if (SIZE_MAX > UINT32_MAX) CHECK_NO_MEMORY(memalign(SIZE_MAX / 4 + 1, 64));
	CHECK_NO_MEMORY(aligned_alloc(SIZE_MAX / 2 + 1, 1));
	CHECK_NO_MEMORY(aligned_alloc(SIZE_MAX / 2 + 1, SIZE_MAX));
	CHECK_PATTERN(block, 100, 7);
	CHECK_PATTERN(large, 300000, 8);
	free(block);
	free(large);
}

static void overflow(void) {
	// Products that overflow: to zero, to a small number, to a large one.
	const size_t root = (size_t)1 << sizeof(size_t) * 4;
	const size_t all[][2] = {{SIZE_MAX / 16 + 1, 16}, {16, SIZE_MAX / 16 + 2}, {SIZE_MAX / 2 + 1, 2},
							 {SIZE_MAX, SIZE_MAX},    {SIZE_MAX, 2},           {root, root},
							 {root + 1, root},        {SIZE_MAX / 3 + 1, 3},   {SIZE_MAX / 100 + 1, 100}};
	unsigned char *block = malloc(1000);
	CHECK(block);
	pattern_fill(block, 0, 1000, 9);
	for (size_t i = 0; i < LENGTH(all); i++) {
		CHECK_NO_MEMORY(calloc(all[i][0], all[i][1]));
		CHECK_NO_MEMORY(reallocarray(0, all[i][0], all[i][1]));
		CHECK_NO_MEMORY(reallocarray(block, all[i][0], all[i][1]));
	}
	CHECK_PATTERN(block, 1000, 9);
	block = reallocarray(block, 500, 30);
	check_block(block, 15000, UNIT);
	free(block);
}

// Requests that cannot be met must print nothing: neither a warning nor a report.
static void silence(void (*part)(void)) {
	int ends[2], kept_out = dup(1), kept_err = dup(2);
	char text[200];
	CHECK(kept_out >= 0 && kept_err >= 0 && pipe2(ends, O_NONBLOCK) == 0);
	check_stderr = kept_err;
	CHECK(dup2(ends[1], 1) == 1 && dup2(ends[1], 2) == 2);
	part();
	CHECK(dup2(kept_out, 1) == 1 && dup2(kept_err, 2) == 2);
	check_stderr = 2;
	ssize_t length = read(ends[0], text, sizeof text - 1);
	CHECK_THAT(length < 0 && errno == EAGAIN, "the allocator printed: %.*s", (int)(length > 0 ? length : 0), text);
	close(ends[0]), close(ends[1]), close(kept_out), close(kept_err);
}

static void reallocation(void) {
	// One block grows and shrinks; the contents up to the smaller size are kept.
	unsigned char *block = 0;
	size_t size = 0;
	for (long i = 0; i < scaled(1500); i++) {
		size_t target = random_between(&state, 1, i % 10 ? 3000 : 400000);
		unsigned char *moved = realloc(block, target);
		CHECK(moved && is_aligned(moved, UNIT) && malloc_usable_size(moved) >= target);
		block = moved;
		CHECK_PATTERN(block, target < size ? target : size, 11);
		if (target > size) pattern_fill(block, size, target, 11);
		size = target;
	}
	free(block);

	// Blocks grow by small steps next to others, so that both growing in place and moving happen.
	unsigned char *grown[32] = {0};
	for (size_t before = 0, target = 1; target < 3000; before = target, target += 1 + target / 8)
		for (size_t i = 0; i < LENGTH(grown); i++) {
			grown[i] = realloc(grown[i], target);
			CHECK(grown[i] && is_aligned(grown[i], UNIT));
			CHECK_PATTERN(grown[i], before, i);
			pattern_fill(grown[i], before, target, i);
		}
	for (size_t i = 0; i < LENGTH(grown); i++) free(grown[i]);

	// Shrinking keeps the start, and the block stays usable.
	for (size_t from = 16; from <= (size_t)2 << 20; from *= 4) {
		block = malloc(from);
		CHECK(block);
		pattern_fill(block, 0, from, from);
		for (size_t to = from; to; to /= 2) {
			block = realloc(block, to);
			CHECK(block && is_aligned(block, UNIT));
			CHECK_PATTERN(block, to, from);
		}
		free(block);
	}

	// realloc to size 0 frees the block. musl's returns another one, glibc's returns none.
	for (int i = 0; i < 100; i++) {
		block = realloc(malloc(i % 2 ? 50 : 200000), 0);
#ifdef __GLIBC__
		CHECK(!block);
		block = reallocarray(malloc(50), i % 2, i % 2 - 1);
		CHECK(!block);
#else
		CHECK(block && is_aligned(block, UNIT));
#endif
		free(block);
	}
	block = realloc(0, 0);
	CHECK(block);
	free(block);
}

static void *aligned(int way, size_t alignment, size_t size) {
	void *block = 0;
	if (way == 0) return aligned_alloc(alignment, size);
	if (way == 1) return memalign(alignment, size);
	CHECK(posix_memalign(&block, alignment, size) == 0);
	return block;
}

static void alignments(void) {
	for (size_t alignment = 1; alignment <= (size_t)1 << 20; alignment *= 2) {
		for (int way = 0; way < 3; way++) {
			if (way == 2 && alignment < sizeof(void *)) continue;
			size_t least = alignment < UNIT ? UNIT : alignment;
			const size_t all[] = {0, 1, 8, 24, alignment - 1, alignment, alignment + 1, 3 * alignment + 5, 100, 5000, 40000};
			void *blocks[2][LENGTH(all)];
			for (int round = 0; round < 2; round++) {
				for (size_t i = 0; i < LENGTH(all); i++) {
					for (int copy = 0; copy < 2; copy++) {
						void *block = blocks[copy][i] = aligned(way, alignment, all[i]);
						check_block(block, all[i], least);
						pattern_fill(block, 0, all[i], i + (size_t)copy);
					}
				}
				for (size_t i = 0; i < LENGTH(all); i++) {
					CHECK_PATTERN(blocks[0][i], all[i], i);
					CHECK_PATTERN(blocks[1][i], all[i], i + 1);
					free(blocks[0][i]);
					unsigned char *moved = realloc(blocks[1][i], all[i] * 2 + 1);
					CHECK(moved && is_aligned(moved, UNIT) && malloc_usable_size(moved) >= all[i] * 2 + 1);
					CHECK_PATTERN(moved, all[i], i + 1);
					pattern_fill(moved, 0, all[i] * 2 + 1, i);
					moved = realloc(moved, all[i] / 2 + 1);
					CHECK(moved && is_aligned(moved, UNIT));
					CHECK_PATTERN(moved, all[i] / 2 + 1, i);
					blocks[1][i] = moved;
				}
				// Memory of aligned blocks comes back in plain blocks, which calloc has to clear.
				for (size_t i = 0; i < LENGTH(all); i++) {
					free(blocks[1][i]);
					unsigned char *plain = calloc(1, all[i] + 1);
					CHECK(plain && is_zero(plain, all[i] + 1));
					check_block(plain, all[i] + 1, UNIT);
					free(plain);
				}
			}
		}
	}
}

// Whether memalign takes any alignment up to half of the address space, and rounds it up to a power of two, as glibc's
// does; and whether aligned_alloc does, as glibc's did before 2.38.
#ifdef __GLIBC__
static int memalign_rounds(void) { return 1; }
static int aligned_alloc_rounds(void) { return atoi(gnu_get_libc_version() + 2) < 38; }
#else
static int memalign_rounds(void) { return 0; }
static int aligned_alloc_rounds(void) { return 0; }
#endif

static void check_wrong(const char *name, int rounds, void *block, size_t alignment) {
	if (!rounds || alignment > SIZE_MAX / 2 + 1) {
		CHECK_THAT(!block && errno == EINVAL, "%s(%zu, 100): %p, errno %d", name, alignment, block, errno);
		return;
	}
	size_t power = 1;
	while (power < alignment) power *= 2;
	CHECK_THAT(block && is_aligned(block, power), "%s(%zu, 100): %p, errno %d", name, alignment, block, errno);
	memset(block, 1, 100);
	free(block);
}

static void wrong_alignments(void) {
	static const size_t all[] = {3, 5, 6, 7, 12, 24, 48, 100, 4097, ((size_t)1 << 20) + 16, SIZE_MAX, SIZE_MAX - 1};
	for (size_t i = 0; i < LENGTH(all); i++) {
		void *kept = &state;
		errno = 0;
		check_wrong("aligned_alloc", aligned_alloc_rounds(), aligned_alloc(all[i], 100), all[i]);
		errno = 0;
		check_wrong("memalign", memalign_rounds(), memalign(all[i], 100), all[i]);
		CHECK_THAT(posix_memalign(&kept, all[i], 100) == EINVAL, "posix_memalign(%zu)", all[i]);
		CHECK(kept == &state);
	}
	for (size_t alignment = 0; alignment < sizeof(void *); alignment++) {
		void *kept = &state;
		CHECK_THAT(posix_memalign(&kept, alignment, 100) == EINVAL, "posix_memalign(%zu)", alignment);
		CHECK(kept == &state);
	}
}

static void pages(void) {
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	for (size_t size = 0; size < 3 * page; size += 1 + size / 2) {
		void *block = valloc(size), *rounded = pvalloc ? pvalloc(size) : 0;
		check_block(block, size, page);
		if (pvalloc) check_block(rounded, (size + page - 1) / page * page, page);
		free(block);
		free(rounded);
	}
}

static void frees(void) {
	static const size_t all[] = {0, 1, 8, 100, 5000, 100000, 200000, 1 << 20, 9 << 20};
	CHECK(malloc_usable_size(0) == 0);
	for (size_t i = 0; i < LENGTH(all); i++) {
		void *block = malloc(all[i]);
		CHECK(block);
		memset(block, 1, all[i]);
		errno = 4242;
		free(block);
		CHECK_THAT(errno == 4242, "free of %zu bytes set errno to %d", all[i], errno);
		block = aligned_alloc(65536, all[i]);
		CHECK(block);
		errno = 4242;
		free(block);
		CHECK_THAT(errno == 4242, "free of %zu aligned bytes set errno to %d", all[i], errno);
	}
	errno = 4242;
	free(0);
	CHECK(errno == 4242);
}

// Functions for programs written for glibc: they return what malloc_trim(3) and mallopt(3) say, leave errno alone,
// and harm no block.
static void of_glibc(void) {
	enum { COUNT = 4000, SIZE = 1000, PARAMETERS = 8 };
	static unsigned char *blocks[COUNT];
	for (size_t i = 0; i < COUNT; i++) {
		CHECK(blocks[i] = malloc(SIZE));
		pattern_fill(blocks[i], 0, SIZE, i);
	}
	for (size_t i = 0; i < COUNT; i++)
		if (i % 8) free(blocks[i]);
	errno = 4242;
	if (malloc_trim) {
		int first = malloc_trim(0), second = malloc_trim(1 << 20);
		CHECK_THAT((first == 0 || first == 1) && (second == 0 || second == 1), "malloc_trim gave %d, %d", first, second);
	}
	if (mallopt) {
		for (int parameter = -1; parameter >= -PARAMETERS; parameter--)
			CHECK_THAT(mallopt(parameter, 1) == 1, "mallopt(%d, 1) gave no 1", parameter);
		CHECK(mallopt(1, 64) == 1 && mallopt(1, 1 << 20) == 0 && mallopt(1, -1) == 0);
#ifdef __GLIBC__
		const int unknown = 1; // whatever mallopt(3) says
#else
		const int unknown = 0;
#endif
		CHECK(mallopt(0, 1) == unknown && mallopt(4711, 1) == unknown && mallopt(-4711, 1) == unknown);
	}
	CHECK_THAT(errno == 4242, "errno is %d after malloc_trim and mallopt", errno);
	for (size_t i = 0; i < COUNT; i += 8) {
		CHECK_PATTERN(blocks[i], SIZE, i);
		free(blocks[i]);
	}
}

// Random work over all functions at once, every block checked before it goes.
static void mixture(void) {
	enum { SLOTS = 512 };
	static struct { unsigned char *block; size_t size; } slots[SLOTS];
	for (long i = 0; i < scaled(60000); i++) {
		size_t slot = random_between(&state, 0, SLOTS - 1), size = random_between(&state, 0, i % 50 ? 800 : 60000);
		unsigned char *block = slots[slot].block;
		if (block) CHECK_PATTERN(block, slots[slot].size, slot);
		size_t kept = 0;
		switch (next_random(&state) % 6) {
		case 0:
			free(block);
			block = malloc(size);
			break;
		case 1:
			free(block);
			block = calloc(1, size);
			CHECK(block && is_zero(block, size));
			break;
		case 2:
			free(block);
			block = aligned_alloc((size_t)1 << random_between(&state, 0, 12), size);
			break;
		case 3:
			free(block);
			slots[slot].block = 0;
			continue;
		default:
			kept = block ? (slots[slot].size < size ? slots[slot].size : size) : 0;
			block = realloc(block, size = size ? size : 1); // see above
		}
		CHECK(block && is_aligned(block, UNIT) && malloc_usable_size(block) >= size);
		CHECK_PATTERN(block, kept, slot);
		pattern_fill(block, kept, size, slot);
		slots[slot].block = block, slots[slot].size = size;
	}
	for (size_t i = 0; i < SLOTS; i++) free(slots[i].block);
}

int main(void) {
	check_begin();
	size_zero();
	sizes();
	alignment_of_small();
	zeroing();
	silence(huge);
	silence(overflow);
	silence(wrong_alignments);
	reallocation();
	alignments();
	pages();
	frees();
	of_glibc();
	mixture();
	return check_done();
}

// 70,000 large blocks, and an allocator at the system's limit of mappings: no memory is no crash, and passes.
// At most 300 s on a slow machine.
#include "check.h"

enum { COUNT = 70000, LARGE = 200 << 10, BLOCKS = 600, PAGE = 4096 };

static unsigned char **many;

static void *fresh(size_t i, size_t size) {
	unsigned char *block = i % 7 == 6 ? aligned_alloc(64 << 10, size) : i % 7 == 5 ? calloc(1, size) : malloc(size);
	if (!block) {
		CHECK_THAT(errno == ENOMEM, "errno %d, not ENOMEM", errno);
		return 0;
	}
	CHECK(i % 7 != 5 || (!block[0] && !block[size - 1]));
	block[0] = pattern_byte(i, 0);
	return block;
}

static void drop(size_t i) {
	if (!many[i]) return;
	CHECK_THAT(many[i][0] == pattern_byte(i, 0), "block %zu is damaged", i);
	errno = 77;
	free(many[i]);
	CHECK_THAT(errno == 77, "free set errno to %d", errno);
	many[i] = 0;
}

// Allocates as many large blocks as an allocator may want mappings for, and frees them so that the rest is in
// pieces.
static void large_blocks(void) {
	size_t count = (size_t)scaled(COUNT), got = 0;
	many = calloc(count, sizeof *many);
	CHECK(many);
	for (size_t i = 0; i < count; i++) {
		errno = 0;
		many[i] = fresh(i, LARGE + i % 5 * 1000);
		got += many[i] != 0;
	}
	// With pages without access around it, each block takes two or three mappings.
	CHECK_THAT(got >= count / 3, "only %zu of %zu large blocks", got, count);
	if (got < count) NOTE("the limit of mappings comes before 70,000 large blocks: ENOMEM\n");
	for (size_t i = 0; i < count; i += 2) drop(i);
	for (size_t i = 1; i < count; i += 4) {
		errno = 0;
		unsigned char *moved = many[i] ? realloc(many[i], 2 * LARGE) : 0;
		if (moved) many[i] = moved;
		else CHECK(!many[i] || errno == ENOMEM);
	}
	for (size_t i = 0; i < count; i += 2) many[i] = fresh(i, LARGE / 2);
	for (size_t i = 0; i < count; i++) drop(i);
	free(many);
}

// Uses blocks of every size in a process at its limit of mappings, where unmapping a part of a mapping fails as
// well.
static void use_at_limit(uint64_t *state) {
	static const size_t sizes[] = {20, 300, 3000, 20000, 100000, 200000, 1 << 20, 5 << 20};
	for (long step = 0; step < scaled(6000); step++) {
		size_t i = next_random(state) % BLOCKS, size = sizes[next_random(state) % LENGTH(sizes)];
		errno = 0;
		if (next_random(state) % 3 == 0 && many[i]) {
			unsigned char *moved = realloc(many[i], size);
			if (moved) many[i] = moved;
			else CHECK_THAT(errno == ENOMEM, "realloc: errno %d, not ENOMEM", errno);
		} else {
			drop(i);
			errno = 0;
			many[i] = fresh(i, size);
		}
	}
}

static void at_limit(void) {
	uint64_t state = 4;
	// Neighbouring pages have different access, so that they do not merge into one mapping, until the system refuses
	// more.
	size_t pages = 1 << 20, made = 0;
	unsigned char *field = mmap(0, pages * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (field == MAP_FAILED) {
		NOTE("no address space for a field of mappings: the limit is not tried\n");
		return;
	}
	many = calloc(BLOCKS, sizeof *many);
	CHECK(many);
	use_at_limit(&state);
	while (made < pages && mprotect(field + made * PAGE, PAGE, PROT_READ) == 0) made += 2;
	if (made >= pages) NOTE("the system sets no limit below %zu mappings\n", made);
	use_at_limit(&state);
	for (size_t i = 0; i < BLOCKS; i += 2) drop(i);
	use_at_limit(&state);
	CHECK(munmap(field, pages * PAGE) == 0);

	// There is room again: no request may fail any more.
	for (size_t i = 0; i < BLOCKS; i++) {
		drop(i);
		many[i] = fresh(i, i % 10 * 30000 + 16);
		CHECK_THAT(many[i], "no block of %zu bytes after the limit was lifted", i % 10 * 30000 + 16);
	}
	for (size_t i = 0; i < BLOCKS; i++) drop(i);
	free(many);
}

int main(void) {
	check_begin();
	// Each block is touched at its beginning; with huge pages, all of it would become resident.
	prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
	if (is_emulated()) {
		NOTE("under an emulator the limit of mappings is the emulator's own: not tried\n");
		return check_done();
	}
	large_blocks();
	at_limit();
	return check_done();
}

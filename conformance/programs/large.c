// Blocks of 1 MiB to 256 MiB, touched here and there, resized in every direction.
// At most 120 s on a slow machine.
#include "check.h"

enum { STEP = 60000 };
static const size_t MIB = 1 << 20;

static void touch(unsigned char *block, size_t from, size_t to, size_t seed) {
	for (size_t i = (from + STEP - 1) / STEP * STEP; i < to; i += STEP) block[i] = pattern_byte(seed, i);
}

static void verify(const unsigned char *block, size_t size, size_t seed) {
	for (size_t i = 0; i < size; i += STEP) CHECK_THAT(block[i] == pattern_byte(seed, i), "a block of %zu bytes lost what was at %zu", size, i);
}

static unsigned char *resize(unsigned char *block, size_t *size, size_t target, size_t seed) {
	block = realloc(block, target);
	CHECK(block && is_aligned(block, 16) && malloc_usable_size(block) >= target);
	verify(block, target < *size ? target : *size, seed);
	if (target > *size) touch(block, *size, target, seed);
	block[target - 1] = 1;
	if ((target - 1) % STEP == 0) block[target - 1] = pattern_byte(seed, target - 1);
	*size = target;
	return block;
}

int main(void) {
	check_begin();
	uint64_t state = 3;

	for (size_t size = MIB; size <= 256 * MIB; size *= 2)
		for (int step = -1; step <= 1; step++) {
			unsigned char *block = step ? malloc(size + (size_t)step) : aligned_alloc(MIB, size);
			CHECK(block && malloc_usable_size(block) >= size + (size_t)step && (step || is_aligned(block, MIB)));
			touch(block, 0, size + (size_t)step, size);
			verify(block, size + (size_t)step, size);
			errno = 77;
			free(block);
			CHECK(errno == 77);
			block = calloc(size / 16, 16);
			CHECK(block);
			for (size_t i = 0; i < size; i += STEP) CHECK(!block[i]);
			free(block);
		}

	// Grows and shrinks in doubling steps.
	size_t size = 0;
	unsigned char *block = 0;
	for (size_t target = MIB; target <= 128 * MIB; target *= 2) block = resize(block, &size, target + 5, 1);
	for (size_t target = 64 * MIB; target >= 1000; target /= 3) block = resize(block, &size, target, 1);
	free(block);

	// Several blocks at once, at random.
	unsigned char *blocks[6] = {0};
	size_t sizes[6] = {0};
	for (long i = 0; i < scaled(150); i++) {
		size_t which = next_random(&state) % 6;
		blocks[which] = resize(blocks[which], &sizes[which], random_between(&state, 1, (i % 10 ? 4 : 24) * MIB), which);
		if (i % 7 == 0) {
			which = next_random(&state) % 6;
			free(blocks[which]);
			blocks[which] = 0, sizes[which] = 0;
		}
	}
	for (size_t i = 0; i < 6; i++) {
		verify(blocks[i], sizes[i], i);
		free(blocks[i]);
	}
	return check_done();
}

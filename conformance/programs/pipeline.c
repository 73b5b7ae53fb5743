// Threads that only allocate and threads that only free, in sizes that change over time: memory does not grow.
// For four seconds, or $ALLOGRAFT_PIPELINE_SECONDS.
// At most 300 s on a slow machine.
#include "check.h"

#include <pthread.h>

enum { LINES = 2, QUEUE = 2048, PHASES = 16 };

// Permitted growth: the memory for the current sizes in addition to that of earlier ones.
enum { ALLOWED = 64 << 20 };

// The least number of blocks in each half of the time. A leak of all of them is several times ALLOWED.
enum { HALF = 160000 };

struct item {
	size_t size;
	uint64_t number;
	unsigned char bytes[];
};

// One thread allocates, one resizes some of the passing blocks, one frees.
static struct line {
	_Alignas(64) _Atomic size_t made, moved, freed;
	struct item *items[QUEUE];
} lines[LINES];

static atomic_int stop;

static void verify(const struct item *item, size_t number) {
	size_t length = item->size - sizeof *item;
	CHECK_THAT(item->number == number, "block %zu is another one", number);
	unsigned char byte = (unsigned char)number;
	CHECK_THAT(!length || (item->bytes[0] == byte && item->bytes[length - 1] == byte), "block %zu is damaged", number);
}

static void mark(struct item *item, size_t size, size_t number) {
	CHECK(item && is_aligned(item, 16));
	item->size = size, item->number = number;
	if (size > sizeof *item) item->bytes[0] = item->bytes[size - sizeof *item - 1] = (unsigned char)number;
}

// A moving window of sizes: 128 times as large after 35,000 blocks, and back.
static size_t size_of(uint64_t *state, size_t number) {
	size_t phase = number / 5000 % PHASES, step = phase < PHASES / 2 ? phase : PHASES - 1 - phase;
	size_t low = (size_t)16 << step;
	if (next_random(state) % 2000 == 0) return sizeof(struct item) + random_between(state, 100000, 2000000);
	return sizeof(struct item) + random_between(state, low, 4 * low);
}

static void *make(void *argument) {
	struct line *line = argument;
	uint64_t state = (uint64_t)(line - lines) + 9;
	for (size_t i = 0;; i++) {
		while (i - line->freed >= QUEUE && !stop) sched_yield();
		if (stop) break;
		size_t size = size_of(&state, i);
		struct item *item = next_random(&state) % 8 ? malloc(size) : calloc(1, size);
		mark(item, size, i);
		line->items[i % QUEUE] = item;
		line->made = i + 1;
	}
	return 0;
}

static void *move(void *argument) {
	struct line *line = argument;
	uint64_t state = (uint64_t)(line - lines) + 90;
	for (size_t i = 0;; i++) {
		while (i >= line->made && !stop) sched_yield();
		if (i >= line->made) break;
		struct item **item = &line->items[i % QUEUE];
		if (next_random(&state) % 16 == 0) {
			verify(*item, i);
			size_t size = (*item)->size / 2 + 200;
			*item = realloc(*item, size);
			mark(*item, size, i);
		}
		line->moved = i + 1;
	}
	return 0;
}

static void *discard(void *argument) {
	struct line *line = argument;
	for (size_t i = 0;; i++) {
		while (i >= line->moved && !stop) sched_yield();
		if (i >= line->moved) break;
		verify(line->items[i % QUEUE], i);
		free(line->items[i % QUEUE]);
		line->freed = i + 1;
	}
	return 0;
}

static size_t passed(void) { return lines[0].freed + lines[1].freed; }

int main(void) {
	check_begin();
	pthread_t threads[LINES][3];
	long length = working_time("ALLOGRAFT_PIPELINE_SECONDS", 4000);
	for (size_t i = 0; i < LINES; i++) {
		CHECK(pthread_create(&threads[i][0], 0, make, &lines[i]) == 0);
		CHECK(pthread_create(&threads[i][1], 0, move, &lines[i]) == 0);
		CHECK(pthread_create(&threads[i][2], 0, discard, &lines[i]) == 0);
	}
	expect_flat("blocks that are passed on", length, passed, (size_t)scaled(HALF), ALLOWED);
	stop = 1;
	for (size_t i = 0; i < LINES; i++)
		for (size_t j = 0; j < 3; j++) CHECK(pthread_join(threads[i][j], 0) == 0);
	for (size_t i = 0; i < LINES; i++)
		for (size_t j = lines[i].freed; j < lines[i].made; j++) free(lines[i].items[j % QUEUE]);
	CHECK(passed() > 0);
	return check_done();
}

// A program that brings its own malloc: it links, libc's functions use it, and libc's own blocks stay apart from it.
// At most 120 s on a slow machine.
#include "check.h"

#include <dlfcn.h>
#include <locale.h>
#include <pthread.h>

enum { HEAP = 256 << 20, UNIT = 16, MARK = 0x0113 };

struct head {
	size_t size, mark;
};

static unsigned char *heap;
static _Atomic size_t used;
static atomic_long taken, given_back;

static int ours(const void *block) {
	return heap && (const unsigned char *)block >= heap && (const unsigned char *)block < heap + HEAP;
}

static struct head *head_of(void *block) {
	CHECK_THAT(ours(block), "a block at %p is not of this program's allocator", block);
	struct head *head = (struct head *)block - 1;
	CHECK(head->mark == MARK);
	return head;
}

static void *take(size_t alignment, size_t size) {
	static atomic_flag lock = ATOMIC_FLAG_INIT;
	if (!heap) {
		while (atomic_flag_test_and_set(&lock)) continue;
		if (!heap) {
			void *memory = mmap(0, HEAP, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
			if (memory != MAP_FAILED) heap = memory;
		}
		atomic_flag_clear(&lock);
	}
	if (alignment < UNIT) alignment = UNIT;
	if (!heap || size > HEAP / 2 || alignment > HEAP / 2) return errno = ENOMEM, (void *)0;
	size_t room = size + alignment + 2 * UNIT, begin = atomic_fetch_add(&used, room / UNIT * UNIT);
	if (begin + room > HEAP) return errno = ENOMEM, (void *)0;
	uintptr_t place = ((uintptr_t)heap + begin + UNIT + alignment - 1) / alignment * alignment;
	struct head *head = (struct head *)place - 1;
	head->size = size, head->mark = MARK;
	atomic_fetch_add(&taken, 1);
	return (void *)place;
}

void *malloc(size_t size) { return take(UNIT, size); }

void free(void *block) {
	if (!block) return;
	head_of(block)->mark = 0;
	atomic_fetch_add(&given_back, 1);
}

void *calloc(size_t count, size_t size) {
	if (size && count > SIZE_MAX / size) return errno = ENOMEM, (void *)0;
	return take(UNIT, count * size); // fresh from mmap: zero
}

void *realloc(void *block, size_t size) {
	void *moved = take(UNIT, size);
	if (!block || !moved) return moved;
	memcpy(moved, block, head_of(block)->size < size ? head_of(block)->size : size);
	free(block);
	return moved;
}

void *aligned_alloc(size_t alignment, size_t size) { return take(alignment, size); }
void *memalign(size_t alignment, size_t size) { return take(alignment, size); }

int posix_memalign(void **result, size_t alignment, size_t size) {
	void *block = take(alignment, size);
	if (block) *result = block;
	return block ? 0 : ENOMEM;
}

size_t malloc_usable_size(void *block) { return block ? head_of(block)->size : 0; }

static int exits;
static void at_exit(void) {
	free(malloc(10));
	if (++exits == 100) _exit(6);
}

static atomic_int forked;

static void work(int rounds) {
	for (int i = 0; i < rounds; i++) {
		free(realloc(strdup("text"), 50));
		dlopen("nothing", RTLD_NOW);
		CHECK(dlerror());
		locale_t locale = newlocale(LC_ALL_MASK, i % 2 ? "C.UTF-8" : "xx_YY", 0);
		CHECK(locale);
		freelocale(duplocale(locale));
		freelocale(locale);
	}
}

// This does not end while the process forks. pthread_exit takes musl's list of threads and then dlerror's lock, and
// fork takes them in the reverse order, so a thread with a message from dlerror can block both forever (seen in stock
// 1.2.3).
static void *keep_working(void *unused) {
	while (!forked) {
		work(5);
		usleep(2000); // this heap never reuses memory
	}
	return unused;
}

int main(void) {
	check_begin();
	char *copy = strdup("ours"), *line = 0, *text = 0;
	size_t room = 0;
	CHECK(ours(copy));
	free(copy);

	// Functions that libc has in members of their own call the program's functions.
	void *array = reallocarray(0, 10, 20), *page = valloc(100);
	CHECK_THAT(ours(array), "reallocarray does not call this program's realloc");
	array = reallocarray(array, 20, 20);
	CHECK(ours(array));
	CHECK_THAT(ours(page) && is_aligned(page, (size_t)sysconf(_SC_PAGESIZE)), "valloc does not call this program's memalign");
	free(array), free(page);

	FILE *file = fmemopen("one line\nand another\n", 21, "r");
	CHECK(file && getline(&line, &room, file) == 9 && ours(line));
	free(line);
	CHECK(fclose(file) == 0);
	CHECK(asprintf(&text, "%d", 42) == 2 && ours(text));
	free(text);
	text = realpath("/", 0);
	CHECK(ours(text));
	free(text);

	pthread_t threads[4];
	for (size_t i = 0; i < LENGTH(threads); i++) CHECK(pthread_create(&threads[i], 0, keep_working, 0) == 0);
	for (int i = 0; i < 20; i++) {
		pid_t child = fork();
		if (child == 0) {
			work(50);
			for (int j = 0; j < 100; j++) CHECK(atexit(at_exit) == 0);
			exit(1);
		}
		expect_exit(child, 6, "a child with 100 exit handlers");
	}
	forked = 1;
	for (size_t i = 0; i < LENGTH(threads); i++) CHECK(pthread_join(threads[i], 0) == 0);
	work(100);
	setenv("TZ", "<a-name-longer-than-any-other-before-it>-2", 1);
	tzset();
	CHECK(taken > 200 && given_back > 200);
	return check_done();
}

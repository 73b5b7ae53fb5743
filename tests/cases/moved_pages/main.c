#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

static void fail(const char *what) {
	fprintf(stderr, "%s\n", what);
	exit(1);
}

// A word that depends on its place, so that a page that is missing, twice there or elsewhere is found.
static uint64_t word(size_t at, uint64_t seed) {
	return (at + 1) * UINT64_C(0x9e3779b97f4a7c15) ^ seed;
}

struct vector {
	uint64_t *words, seed;
	size_t count;
};

static void grow(struct vector *vector, size_t count) {
	vector->words = realloc(vector->words, count * sizeof *vector->words);
	if (!vector->words) fail("realloc");
	for (size_t i = vector->count; i < count; i++) vector->words[i] = word(i, vector->seed);
	vector->count = count;
}

static void check(const struct vector *vector) {
	for (size_t i = 0; i < vector->count; i++)
		if (vector->words[i] != word(i, vector->seed)) fail("a word is not what it was");
}

// Several grow side by side. What they leave is used for others, which the kernel fills.
static void grow_side_by_side(size_t most) {
	enum { COUNT = 4 };
	struct vector vectors[COUNT];
	int zeros[2];
	if (pipe(zeros)) fail("pipe");
	for (int i = 0; i < COUNT; i++) vectors[i] = (struct vector){0, (uint64_t)i << 56, 0};
	for (size_t count = 4000; count < most / sizeof(uint64_t); count += count / 2) {
		for (int i = 0; i < COUNT; i++) {
			grow(&vectors[i], count);
			char *between = malloc(count * 3);
			if (!between || write(zeros[1], vectors[i].words, 4096) != 4096 || read(zeros[0], between, 4096) != 4096 ||
			    memcmp(between, vectors[i].words, 4096))
				fail("the kernel could not fill a block");
			memset(between, 0xff, count * 3);
			free(between);
			char *cleared = calloc(count, 3);
			for (size_t at = 0; at < count * 3; at++)
				if (cleared[at]) fail("calloc gave a block that is not clear");
			free(cleared);
		}
		for (int i = 0; i < COUNT; i++) check(&vectors[i]);
	}
	for (int i = 0; i < COUNT; i++) free(vectors[i].words);
	close(zeros[0]);
	close(zeros[1]);
}

static void *grow_some(void *argument) {
	(void)argument;
	grow_side_by_side(3 << 20);
	return 0;
}

// Blocks of a thread that still runs, or has ended, grow in this one.
static void *begin(void *argument) {
	struct vector *vectors = argument;
	for (int i = 0; i < 8; i++) {
		vectors[i] = (struct vector){0, (uint64_t)i, 0};
		grow(&vectors[i], 40000 << i % 4);
	}
	return 0;
}

static void grow_of_others(void) {
	struct vector vectors[8];
	pthread_t thread;
	if (pthread_create(&thread, 0, begin, vectors) || pthread_join(thread, 0)) fail("thread");
	for (int i = 0; i < 8; i++) grow(&vectors[i], vectors[i].count * 5);
	for (int i = 0; i < 8; i++) {
		check(&vectors[i]);
		free(vectors[i].words);
	}
}

// Blocks that were moved leave mappings of their own, and larger blocks on several of them grow, too.
static void grow_on_moved(void) {
	enum { COUNT = 64 };
	static struct vector small[COUNT], large[COUNT / 8];
	for (int round = 0; round < 4; round++) {
		for (int i = 0; i < COUNT; i++) small[i] = (struct vector){0, (uint64_t)i, 0};
		for (size_t count = 16000; count < 100000; count *= 2)
			for (int i = 0; i < COUNT; i++) grow(&small[i], count);
		for (int i = 0; i < COUNT; i++) {
			check(&small[i]);
			free(small[i].words);
		}
		for (int i = 0; i < COUNT / 8; i++) large[i] = (struct vector){0, (uint64_t)i << 32, 0};
		for (size_t count = 100000; count < 2000000; count *= 2)
			for (int i = 0; i < COUNT / 8; i++) grow(&large[i], count);
		for (int i = 0; i < COUNT / 8; i++) {
			check(&large[i]);
			free(large[i].words);
		}
	}
}

static int kernel_moves(void) {
	char *place = mmap(0, 2 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (place == MAP_FAILED) fail("mmap");
	int flags = MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP;
	int moves = mremap(place, 1 << 16, 1 << 16, flags, place + (1 << 16)) != MAP_FAILED;
	munmap(place, 2 << 16);
	return moves;
}

static size_t peak(void) {
	struct rusage usage;
	getrusage(RUSAGE_SELF, &usage);
	return (size_t)usage.ru_maxrss << 10;
}

// Runs `part` in a process of its own.
static void apart(void (*part)(void)) {
	int status;
	pid_t child = fork();
	if (child < 0) fail("fork");
	if (child == 0) {
		part();
		exit(0);
	}
	if (waitpid(child, &status, 0) != child || status != 0) fail("a part of the test failed");
}

static const size_t greatest = 96 << 20;
static void grow_one(void) {
	size_t before = peak();
	struct vector vector = {0, 7, 0};
	for (size_t count = 4000; count < greatest / sizeof(uint64_t); count += count / 2) grow(&vector, count);
	check(&vector);
	size_t needed = vector.count * sizeof(uint64_t), taken = peak() - before;
	free(vector.words);
	if (kernel_moves() && taken > needed + needed / 8) {
		fprintf(stderr, "a block of %zu bytes took %zu while it grew\n", needed, taken);
		exit(1);
	}
}

// The filter refuses mremap with the error `refusal`, as a sandbox may.
static void refuse_mremap(int refusal) {
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mremap, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)refusal),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof code / sizeof *code, code};
	// An emulator has no filters.
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) exit(0);
	errno = 0;
	grow_side_by_side(3 << 20);
	if (errno == refusal) fail("the refusal is in errno");
}

static void refuse_by_policy(void) {
	refuse_mremap(EPERM);
}

static void refuse_as_unknown(void) {
	refuse_mremap(ENOSYS);
}

// As when there are too many mappings, or not enough promised memory.
static void refuse_for_lack_of_memory(void) {
	refuse_mremap(ENOMEM);
}

int main(void) {
	apart(grow_one);
	apart(refuse_by_policy);
	apart(refuse_as_unknown);
	apart(refuse_for_lack_of_memory);
	grow_side_by_side(24 << 20);
	grow_of_others();
	grow_on_moved();
	apart(grow_of_others);
	pthread_t threads[3];
	for (int i = 0; i < 3; i++)
		if (pthread_create(&threads[i], 0, grow_some, 0)) fail("pthread_create");
	for (int i = 0; i < 3; i++) pthread_join(threads[i], 0);
	puts("ok");
	return 0;
}

// The system refuses memory, one kind of call after the other: allocations fail with ENOMEM, what there was stays.
// At most 120 s on a slow machine.
#include "check.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/syscall.h>

enum { THREADS = 3, SLOTS = 80, MANY = 1300 };

#ifdef SYS_mmap2
enum { MAP_CALL = SYS_mmap2 };
#else
enum { MAP_CALL = SYS_mmap };
#endif

// The refusals of a real system: at a limit, without overcommit, at the limit of mappings, for locked memory
// (mlockall).
static const struct refusal {
	const char *what;
	int error;
	unsigned from; // the least length that is refused
	int calls[6];
} refusals[] = {
	{"mmap, mremap and brk", ENOMEM, 0, {MAP_CALL, SYS_mremap, SYS_brk}},
	{"mmap of a megabyte and more", ENOMEM, 1 << 20, {MAP_CALL, SYS_mremap}},
	{"brk", ENOMEM, 0, {SYS_brk}},
	{"mremap", ENOMEM, 0, {SYS_mremap}},
	{"mprotect", ENOMEM, 0, {SYS_mprotect}},
	{"munmap", ENOMEM, 0, {SYS_munmap}},
	{"madvise, with EINVAL", EINVAL, 0, {SYS_madvise}},
	{"madvise, with EAGAIN", EAGAIN, 0, {SYS_madvise}},
	{"everything", ENOMEM, 0, {MAP_CALL, SYS_mremap, SYS_brk, SYS_mprotect, SYS_munmap, SYS_madvise}},
};

static const struct refusal *refusal;
static pthread_barrier_t barrier;
static int warm;

// Installs the filter for every thread, permanently.
static int refuse(void) {
	struct sock_filter code[20];
	unsigned short length = 0, count = 0;
	while (count < LENGTH(refusal->calls) && refusal->calls[count]) count++;
	code[length++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
	for (unsigned short i = 0; i < count; i++)
		code[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)refusal->calls[i],
		                                              (unsigned char)(count - i), 0);
	code[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	// The length is the second argument of all calls but brk. Its lower half comes first.
	code[length++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1]));
	code[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, refusal->from, 1, 0);
	code[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	code[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)refusal->error);
	struct sock_fprog program = {length, code};
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return 0;
	return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0;
}

static void drop(unsigned char **block, size_t seed) {
	if (!*block) return;
	CHECK((*block)[0] == (unsigned char)seed);
	errno = 77;
	free(*block);
	CHECK_THAT(errno == 77, "free set errno to %d", errno);
	*block = 0;
}

static void *work(void *argument) {
	static const size_t sizes[] = {16, 100, 2000, 30000, 300000};
	uint64_t state = (uintptr_t)argument + 3;
	unsigned char *blocks[SLOTS] = {0};
	if (argument) {
		if (warm) free(malloc(3000));
		pthread_barrier_wait(&barrier);
	}
	for (long step = 0; step < scaled(5000); step++) {
		size_t i = next_random(&state) % SLOTS, size = sizes[next_random(&state) % LENGTH(sizes)];
		int kind = (int)(next_random(&state) % 5);
		errno = 0;
		unsigned char *block;
		if (kind == 0) {
			block = realloc(blocks[i], size);
			if (!block) CHECK_THAT(errno == ENOMEM, "realloc: errno %d, not ENOMEM", errno);
			else blocks[i] = block, block[0] = (unsigned char)i;
			continue;
		}
		drop(&blocks[i], i);
		errno = 0;
		size_t alignment = (size_t)64 << next_random(&state) % 8;
		block = kind == 1 ? calloc(1, size) : kind == 2 ? aligned_alloc(alignment, size) : malloc(size);
		if (!block) CHECK_THAT(errno == ENOMEM, "errno %d, not ENOMEM", errno);
		// Memory that the system refused to take back is still there, and is not zero.
		for (size_t at = 0; block && kind == 1 && at < size; at++)
			CHECK_THAT(!block[at], "calloc's block of %zu bytes is not zero at %zu", size, at);
		blocks[i] = block;
		if (block) memset(block, 0xee, size), block[0] = (unsigned char)i;
	}
	for (size_t i = 0; i < SLOTS; i++) drop(&blocks[i], i);
	return 0;
}

static void exhaust(void) {
	void **last = 0;
	for (int i = 0; i < MANY; i++) {
		errno = 0;
		void **block = malloc(1 << 20);
		if (!block) CHECK_THAT(errno == ENOMEM, "errno %d, not ENOMEM", errno);
		if (!block) break;
		*block = last;
		last = block;
	}
	for (void **block; (block = last);) {
		last = *block;
		free(block);
	}
}

static void refused(void) {
	pthread_t threads[THREADS];
	CHECK(pthread_barrier_init(&barrier, 0, THREADS + 1) == 0);
	if (warm) work(0);
	for (size_t i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], 0, work, (void *)(i + 1)) == 0);
	if (!refuse()) FAIL("no filter: errno %d", errno);
	pthread_barrier_wait(&barrier);
	work(0);
	for (size_t i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], 0) == 0);
	exhaust();
	work(0);
	// The thread itself may be refused, too; if not, it works like the others.
	pthread_t thread;
	if (pthread_create(&thread, 0, work, 0) == 0) CHECK(pthread_join(thread, 0) == 0);
}

int main(void) {
	check_begin();
	prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
	if (is_emulated()) {
		NOTE("no seccomp here (an emulator?): nothing is tried\n");
		return check_done();
	}
	for (size_t i = 0; i < LENGTH(refusals); i++)
		for (warm = 0; warm < 2; warm++) {
			char what[80];
			refusal = &refusals[i];
			snprintf(what, sizeof what, "%s refused %s", refusal->what, warm ? "after a while" : "from the start");
			expect_silence(what, refused);
		}
	return check_done();
}

/*
 * Producers allocate messages, consumers free them: every block is freed by another thread than the one that allocated it.
 *
 *     pipeline [PAIRS [MESSAGES]]
 *
 * stdout: one line with a checksum, the same for every libc and allocator.
 */
#include "../workload.h"

#include <sched.h>

enum { RING = 4096, LEAST = 16, MOST = 1024, MAX_PAIRS = MAX_THREADS / 2 };

/* A ring for one writer and one reader; each side has a cache line of its own. It uses the compiler's atomics, since
 * only musl's headers are available, and musl has no <stdatomic.h>. */
struct pipe {
    _Alignas(64) uint64_t written;
    _Alignas(64) uint64_t read;
    _Alignas(64) struct block *ring[RING];
    uint64_t messages, sum, seed;
};

struct end {
    struct pipe *pipe;
    int produces;
};

static void produce(struct pipe *pipe) {
    struct numbers numbers = {pipe->seed};
    for (uint64_t i = 0; i < pipe->messages; i++) {
        struct block *message = make_block(draw_between(&numbers, LEAST, MOST), (uint32_t)i);
        while (i - __atomic_load_n(&pipe->read, __ATOMIC_ACQUIRE) >= RING) sched_yield();
        pipe->ring[i % RING] = message;
        __atomic_store_n(&pipe->written, i + 1, __ATOMIC_RELEASE);
    }
}

static void consume(struct pipe *pipe) {
    for (uint64_t i = 0; i < pipe->messages; i++) {
        while (__atomic_load_n(&pipe->written, __ATOMIC_ACQUIRE) <= i) sched_yield();
        pipe->sum += end_block(pipe->ring[i % RING]);
        __atomic_store_n(&pipe->read, i + 1, __ATOMIC_RELEASE);
    }
}

static void *work(void *argument) {
    struct end *end = argument;
    if (end->produces) {
        produce(end->pipe);
    } else {
        consume(end->pipe);
    }
    return NULL;
}

int main(int argc, char **argv) {
    size_t pairs = (size_t)argument(argc, argv, 1, 1, 1, MAX_PAIRS);
    uint64_t messages = argument(argc, argv, 2, 6000000, 1, UINT32_MAX);
    struct pipe *pipes;
    errno = posix_memalign((void **)&pipes, 64, pairs * sizeof *pipes);
    if (errno != 0) fail("posix_memalign");
    memset(pipes, 0, pairs * sizeof *pipes);
    struct end ends[MAX_THREADS];
    for (size_t i = 0; i < pairs; i++) {
        pipes[i].messages = messages / pairs;
        pipes[i].seed = i;
        ends[2 * i] = (struct end){&pipes[i], 1};
        ends[2 * i + 1] = (struct end){&pipes[i], 0};
    }
    in_threads(2 * pairs, work, ends, sizeof *ends);
    uint64_t sum = 0;
    for (size_t i = 0; i < pairs; i++) sum += pipes[i].sum;
    printf("pipeline %zu %" PRIu64 " sum %016" PRIx64 "\n", pairs, messages, sum);
    free(pipes);
    return 0;
}

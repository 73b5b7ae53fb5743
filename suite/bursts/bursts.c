/*
 * Many short threads: each allocates a hundred blocks, frees all but one, and ends. The starting thread frees the last
 * one. Most of the work is what an allocator sets up for each thread and does at the thread's end.
 *
 *     bursts [THREADS AT A TIME [THREADS IN ALL]]
 *
 * stdout: one line with a checksum, the same for every libc and allocator.
 */
#include "../workload.h"

enum { BLOCKS = 100, LEAST = 16, MOST = 2048 };

struct errand {
    struct numbers numbers;
    struct block *left;
    uint64_t sum;
};

static void *run(void *argument) {
    struct errand *errand = argument;
    struct block *blocks[BLOCKS];
    for (size_t i = 0; i < BLOCKS; i++) {
        blocks[i] = make_block(draw_between(&errand->numbers, LEAST, MOST), (uint32_t)i);
    }
    for (size_t i = 1; i < BLOCKS; i++) errand->sum += end_block(blocks[i]);
    errand->left = blocks[0];
    return NULL;
}

int main(int argc, char **argv) {
    size_t threads = (size_t)argument(argc, argv, 1, 1, 1, MAX_THREADS);
    uint64_t all = argument(argc, argv, 2, 40000, 1, UINT32_MAX);
    struct errand errands[MAX_THREADS];
    uint64_t sum = 0;
    for (uint64_t done = 0; done < all; done += threads) {
        pthread_t started[MAX_THREADS];
        for (size_t i = 0; i < threads; i++) {
            errands[i] = (struct errand){{done + i}, NULL, 0};
            errno = pthread_create(&started[i], NULL, run, &errands[i]);
            if (errno != 0) fail("pthread_create");
        }
        for (size_t i = 0; i < threads; i++) {
            pthread_join(started[i], NULL);
            sum += errands[i].sum + end_block(errands[i].left);
        }
    }
    printf("bursts %zu %" PRIu64 " sum %016" PRIx64 "\n", threads, all, sum);
    return 0;
}

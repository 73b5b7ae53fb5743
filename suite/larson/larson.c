/*
 * A server that replaces its blocks: each thread has an array of blocks, frees one at random and puts a new one in its
 * place. Now and then the array goes to a new thread, as connections go to new workers, so that blocks are freed by
 * threads that did not allocate them.
 *
 *     larson [THREADS [REPLACEMENTS [GENERATIONS]]]
 *
 * stdout: one line with a checksum, the same for every libc and allocator.
 */
#include "../workload.h"

enum { HELD = 1000, LEAST = 16, MOST = 512 };

struct shelf {
    struct block *held[HELD];
    struct numbers numbers;
    uint64_t replacements, generations, sum;
};

static void *serve(void *argument) {
    struct shelf *shelf = argument;
    for (uint64_t i = 0; i < shelf->replacements; i++) {
        size_t at = draw_between(&shelf->numbers, 0, HELD - 1);
        shelf->sum += end_block(shelf->held[at]);
        shelf->held[at] = make_block(draw_between(&shelf->numbers, LEAST, MOST), (uint32_t)i);
    }
    return NULL;
}

/* One sequence of threads, each of which takes over the blocks of the one before. */
static void *succeed(void *argument) {
    struct shelf *shelf = argument;
    for (size_t i = 0; i < HELD; i++) {
        shelf->held[i] = make_block(draw_between(&shelf->numbers, LEAST, MOST), (uint32_t)i);
    }
    for (uint64_t i = 0; i < shelf->generations; i++) {
        pthread_t heir;
        errno = pthread_create(&heir, NULL, serve, shelf);
        if (errno != 0) fail("pthread_create");
        pthread_join(heir, NULL);
    }
    for (size_t i = 0; i < HELD; i++) shelf->sum += end_block(shelf->held[i]);
    return NULL;
}

int main(int argc, char **argv) {
    size_t threads = (size_t)argument(argc, argv, 1, 1, 1, MAX_THREADS);
    uint64_t replacements = argument(argc, argv, 2, 8000000, 1, UINT32_MAX);
    uint64_t generations = argument(argc, argv, 3, 50, 1, UINT32_MAX);
    struct shelf *shelves = calloc(threads, sizeof *shelves);
    if (shelves == NULL) fail("calloc");
    for (size_t i = 0; i < threads; i++) {
        shelves[i].numbers.state = i;
        shelves[i].generations = generations;
        shelves[i].replacements = replacements / threads / generations;
    }
    in_threads(threads, succeed, shelves, sizeof *shelves);
    uint64_t sum = 0;
    for (size_t i = 0; i < threads; i++) sum += shelves[i].sum;
    printf("larson %zu %" PRIu64 " %" PRIu64 " sum %016" PRIx64 "\n", threads, replacements, generations, sum);
    free(shelves);
    return 0;
}

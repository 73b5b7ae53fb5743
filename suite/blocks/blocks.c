/*
 * Large blocks, as in image or compression libraries: buffers of 64 KiB to 8 MiB, a few alive at a time. Each page is
 * touched once.
 *
 *     blocks [THREADS [BUFFERS]]
 *
 * stdout: one line with a checksum, the same for every libc and allocator.
 */
#include "../workload.h"

enum { ALIVE = 6, SMALLEST = 16, LARGEST = 23, PAGE = 4096 };

struct share {
    uint64_t buffers, sum;
    struct numbers numbers;
};

static void *fill(void *argument) {
    struct share *share = argument;
    unsigned char *alive[ALIVE] = {NULL};
    for (uint64_t i = 0; i < share->buffers; i++) {
        size_t at = draw_between(&share->numbers, 0, ALIVE - 1);
        /* Small ones are as frequent as large ones. */
        size_t power = draw_between(&share->numbers, SMALLEST, LARGEST - 1);
        size_t size = draw_between(&share->numbers, (size_t)1 << power, (size_t)2 << power);
        free(alive[at]);
        alive[at] = malloc(size);
        if (alive[at] == NULL) fail("malloc");
        for (size_t offset = 0; offset < size; offset += PAGE) alive[at][offset] = (unsigned char)i;
        share->sum += mix(size ^ alive[at][size / 2 / PAGE * PAGE]);
    }
    for (size_t at = 0; at < ALIVE; at++) free(alive[at]);
    return NULL;
}

int main(int argc, char **argv) {
    size_t threads = (size_t)argument(argc, argv, 1, 1, 1, MAX_THREADS);
    uint64_t buffers = argument(argc, argv, 2, 4000, 1, UINT32_MAX);
    struct share shares[MAX_THREADS];
    for (size_t i = 0; i < threads; i++) shares[i] = (struct share){buffers / threads, 0, {i}};
    in_threads(threads, fill, shares, sizeof *shares);
    uint64_t sum = 0;
    for (size_t i = 0; i < threads; i++) sum += shares[i].sum;
    printf("blocks %zu %" PRIu64 " sum %016" PRIx64 "\n", threads, buffers, sum);
    return 0;
}

/*
 * Fragmentation over time: each phase allocates objects of other sizes and frees most of them, but one in twenty stays. The
 * peak and the memory at the end show how much the survivors keep an allocator from returning.
 *
 *     fragments [THREADS [PHASES]]
 *
 * stdout: one line with a checksum, the same for every libc and allocator.
 */
#include "../workload.h"

enum { OBJECTS = 20000, SURVIVOR = 20 };

struct share {
    uint64_t phases, sum;
    struct numbers numbers;
};

static void *age(void *argument) {
    struct share *share = argument;
    size_t capacity = (size_t)share->phases * OBJECTS, survivors = 0;
    struct block **kept = malloc((capacity / SURVIVOR + share->phases + 1) * sizeof *kept);
    struct block **passing = malloc(OBJECTS * sizeof *passing);
    if (kept == NULL || passing == NULL) fail("malloc");
    for (uint64_t phase = 0; phase < share->phases; phase++) {
        /* 32 bytes to 2 KiB, and back. */
        uint64_t step = phase % 12 < 6 ? phase % 6 : 6 - phase % 6;
        size_t least = (size_t)16 << step;
        for (size_t i = 0; i < OBJECTS; i++) {
            passing[i] = make_block(draw_between(&share->numbers, least, 2 * least), (uint32_t)phase);
        }
        for (size_t i = 0; i < OBJECTS; i++) {
            if (i % SURVIVOR == 0) {
                kept[survivors++] = passing[i];
            } else {
                share->sum += end_block(passing[i]);
            }
        }
    }
    while (survivors > 0) share->sum += end_block(kept[--survivors]);
    free(passing);
    free(kept);
    return NULL;
}

int main(int argc, char **argv) {
    size_t threads = (size_t)argument(argc, argv, 1, 1, 1, MAX_THREADS);
    uint64_t phases = argument(argc, argv, 2, 240, 1, 100000);
    struct share shares[MAX_THREADS];
    for (size_t i = 0; i < threads; i++) shares[i] = (struct share){(phases + threads - 1) / threads, 0, {i}};
    in_threads(threads, age, shares, sizeof *shares);
    uint64_t sum = 0;
    for (size_t i = 0; i < threads; i++) sum += shares[i].sum;
    printf("fragments %zu %" PRIu64 " sum %016" PRIx64 "\n", threads, phases, sum);
    return 0;
}

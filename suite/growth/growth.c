/*
 * Vectors that grow: each starts with 16 bytes and grows by half with each realloc until it has a megabyte. Several grow
 * side by side, so that a block seldom has free space behind it.
 *
 *     growth [THREADS [VECTORS]]
 *
 * stdout: one line with a checksum, the same for every libc and allocator.
 */
#include "../workload.h"

enum { SIDE_BY_SIDE = 8, FIRST = 16, LAST = 1 << 20 };

struct share {
    uint64_t groups, sum;
    struct numbers numbers;
};

struct vector {
    unsigned char *bytes;
    size_t used, room;
};

static void append(struct vector *vector, size_t count, unsigned char byte) {
    if (vector->used + count > vector->room) {
        size_t room = vector->room + vector->room / 2;
        if (room < vector->used + count) room = vector->used + count;
        unsigned char *bytes = realloc(vector->bytes, room);
        if (bytes == NULL) fail("realloc");
        vector->bytes = bytes;
        vector->room = room;
    }
    memset(vector->bytes + vector->used, byte, count);
    vector->used += count;
}

static void *grow(void *argument) {
    struct share *share = argument;
    for (uint64_t group = 0; group < share->groups; group++) {
        struct vector vectors[SIDE_BY_SIDE] = {{0}};
        for (size_t i = 0; i < SIDE_BY_SIDE; i++) {
            vectors[i] = (struct vector){malloc(FIRST), 0, FIRST};
            if (vectors[i].bytes == NULL) fail("malloc");
        }
        size_t unfinished = SIDE_BY_SIDE;
        while (unfinished > 0) {
            size_t at = draw_between(&share->numbers, 0, SIDE_BY_SIDE - 1);
            while (vectors[at].used >= LAST) at = (at + 1) % SIDE_BY_SIDE;
            struct vector *vector = &vectors[at];
            size_t count = draw_between(&share->numbers, 1, vector->used / 8 + 32);
            append(vector, count, (unsigned char)count);
            unfinished -= vector->used >= LAST;
        }
        for (size_t i = 0; i < SIDE_BY_SIDE; i++) {
            share->sum += mix(vectors[i].used ^ vectors[i].bytes[0] ^ vectors[i].bytes[vectors[i].used - 1]);
            free(vectors[i].bytes);
        }
    }
    return NULL;
}

int main(int argc, char **argv) {
    size_t threads = (size_t)argument(argc, argv, 1, 1, 1, MAX_THREADS);
    uint64_t vectors = argument(argc, argv, 2, 1600, SIDE_BY_SIDE, UINT32_MAX);
    struct share shares[MAX_THREADS];
    for (size_t i = 0; i < threads; i++) {
        shares[i] = (struct share){vectors / SIDE_BY_SIDE / threads, 0, {i}};
    }
    in_threads(threads, grow, shares, sizeof *shares);
    uint64_t sum = 0;
    for (size_t i = 0; i < threads; i++) sum += shares[i].sum;
    printf("growth %zu %" PRIu64 " sum %016" PRIx64 "\n", threads, vectors, sum);
    return 0;
}

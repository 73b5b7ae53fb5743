/*
 * Maps whose keys are boxes of 256 bytes, one map for each thread, grown from empty. A tenth of the keys is copied, taken
 * out and freed; in the end each map is freed, slot by slot: so its boxes come back in the order of their hashes, which
 * is no order at all, and the last few of them free nearly all slabs of the allocator at once.
 *
 *     boxed [THREADS [KEYS [ROUNDS]]]
 *
 * stdout: one line with a checksum, the same for every libc and allocator.
 */
#include "../workload.h"

enum { WORDS = 32, TENTH = 10 };

struct box {
    uint64_t words[WORDS];
};

/* Open addressing with linear probing; a slot without a box is empty. */
struct map {
    struct box **slots;
    size_t capacity, count;
};

struct share {
    uint64_t first, keys, rounds, sum;
};

static void *allocate(size_t size) {
    void *block = malloc(size);
    if (block == NULL) fail("malloc");
    return block;
}

static struct box *make_box(uint64_t key) {
    struct box *box = allocate(sizeof *box);
    for (size_t i = 0; i < WORDS; i++) box->words[i] = key + i;
    return box;
}

static size_t place_of(const struct map *map, uint64_t key) {
    size_t at = mix(key) & (map->capacity - 1);
    while (map->slots[at] != NULL && map->slots[at]->words[0] != key) at = (at + 1) & (map->capacity - 1);
    return at;
}

static void grow(struct map *map) {
    struct map grown = {NULL, map->capacity ? 2 * map->capacity : 8, map->count};
    grown.slots = calloc(grown.capacity, sizeof *grown.slots);
    if (grown.slots == NULL) fail("calloc");
    for (size_t i = 0; i < map->capacity; i++)
        if (map->slots[i] != NULL) grown.slots[place_of(&grown, map->slots[i]->words[0])] = map->slots[i];
    free(map->slots);
    *map = grown;
}

static void insert(struct map *map, struct box *box) {
    if ((map->count + 1) * 4 > map->capacity * 3) grow(map);
    map->slots[place_of(map, box->words[0])] = box;
    map->count++;
}

/* Takes a key out, and moves what follows it up, so that every key is found from its place. */
static struct box *take_out(struct map *map, uint64_t key) {
    size_t mask = map->capacity - 1, hole = place_of(map, key);
    struct box *taken = map->slots[hole];
    if (taken == NULL) {
        errno = ENOENT;
        fail("a key is lost");
    }
    for (size_t at = (hole + 1) & mask; map->slots[at] != NULL; at = (at + 1) & mask) {
        size_t home = mix(map->slots[at]->words[0]) & mask;
        if (((at - home) & mask) < ((at - hole) & mask)) continue;
        map->slots[hole] = map->slots[at];
        hole = at;
    }
    map->slots[hole] = NULL;
    map->count--;
    return taken;
}

static void *work(void *argument) {
    struct share *share = argument;
    for (uint64_t round = 0; round < share->rounds; round++) {
        struct map map = {NULL, 0, 0};
        uint64_t end = share->first + share->keys;
        for (uint64_t key = share->first; key < end; key++) insert(&map, make_box(key));
        for (uint64_t key = share->first; key < end; key++) {
            if (key % TENTH != 0) continue;
            struct box *copy = allocate(sizeof *copy), *taken = take_out(&map, key);
            *copy = *taken;
            free(taken);
            share->sum += mix(copy->words[0] ^ copy->words[WORDS - 1]);
            free(copy);
        }
        for (size_t i = 0; i < map.capacity; i++) {
            struct box *box = map.slots[i];
            if (box == NULL) continue;
            share->sum += mix(box->words[0] + box->words[WORDS - 1]);
            free(box);
        }
        free(map.slots);
    }
    return NULL;
}

int main(int argc, char **argv) {
    size_t threads = (size_t)argument(argc, argv, 1, 1, 1, MAX_THREADS);
    uint64_t keys = argument(argc, argv, 2, 800000, 1, UINT32_MAX);
    uint64_t rounds = argument(argc, argv, 3, 1, 1, UINT32_MAX);
    struct share shares[MAX_THREADS];
    for (size_t i = 0; i < threads; i++) {
        uint64_t first = keys * i / threads, end = keys * (i + 1) / threads;
        shares[i] = (struct share){first, end - first, rounds, 0};
    }
    in_threads(threads, work, shares, sizeof *shares);
    uint64_t sum = 0;
    for (size_t i = 0; i < threads; i++) sum += shares[i].sum;
    printf("boxed %zu %" PRIu64 " sum %016" PRIx64 "\n", threads, keys, sum);
    return 0;
}

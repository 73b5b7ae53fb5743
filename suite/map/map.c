/*
 * A hash map whose keys are heap-allocated arrays of 32 integers. Every lookup builds a fresh key on the heap, hashes it,
 * compares it with the stored one, and frees it, as a Swift program does with a dictionary of type [[Int32]: Value].
 *
 *     map [--times] [THREADS [KEYS [LOOKUPS [KEPT]]]]
 *
 * With KEPT 1 each thread reuses one key of its own: the same lookups without an allocation in the loop.
 *
 * stdout: one line with checksums, the same whatever THREADS is. stderr, with --times: seconds of each phase.
 * Plain C11 and POSIX threads, so that one source serves every libc.
 */
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { KEY_INTS = 32, KEY_BYTES = KEY_INTS * sizeof(int32_t), MAX_THREADS = 1024 };

struct value {
    uint64_t weight;
    char label[24];
};

struct slot {
    int32_t *key; /* NULL: empty */
    struct value *value;
};

/* Open addressing with linear probing and no stored hashes: a probe reads the key itself, as Swift's dictionary does. */
struct map {
    struct slot *slots;
    uint64_t capacity; /* a power of two */
    uint64_t count;
};

struct share {
    const struct map *map;
    uint64_t keys, first, end; /* lookups [first, end) */
    int kept;                  /* one key for all of them */
    uint64_t sum, hits, misses;
};

static void fail(const char *what) {
    fprintf(stderr, "map: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void *allocate(size_t size) {
    void *block = malloc(size);
    if (block == NULL) fail("malloc");
    return block;
}

static uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static int32_t *fill_key(int32_t *key, uint64_t number) {
    for (int i = 0; i < KEY_INTS; i++) key[i] = (int32_t)number;
    return key;
}

static int32_t *make_key(uint64_t number) {
    return fill_key(allocate(KEY_BYTES), number);
}

/* FNV-1a over whole integers, then a finisher that mixes the high bits into the low ones, which choose the slot. */
static uint64_t hash_key(const int32_t *key) {
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (int i = 0; i < KEY_INTS; i++) hash = (hash ^ (uint32_t)key[i]) * UINT64_C(0x100000001b3);
    return mix(hash);
}

static struct value *make_value(uint64_t number) {
    struct value *value = allocate(sizeof *value);
    value->weight = mix(number);
    snprintf(value->label, sizeof value->label, "%" PRIu64, number);
    return value;
}

static struct slot *find_slot(const struct map *map, const int32_t *key) {
    uint64_t mask = map->capacity - 1;
    uint64_t at = hash_key(key) & mask;
    while (map->slots[at].key != NULL && memcmp(map->slots[at].key, key, KEY_BYTES) != 0) at = (at + 1) & mask;
    return &map->slots[at];
}

static void reserve(struct map *map, uint64_t capacity) {
    struct map grown = {calloc(capacity, sizeof(struct slot)), capacity, map->count};
    if (grown.slots == NULL) fail("calloc");
    for (uint64_t i = 0; i < map->capacity; i++)
        if (map->slots[i].key != NULL) *find_slot(&grown, map->slots[i].key) = map->slots[i];
    free(map->slots);
    *map = grown;
}

/* Takes ownership of both blocks. The keys of this program are distinct. */
static void insert(struct map *map, int32_t *key, struct value *value) {
    if ((map->count + 1) * 4 > map->capacity * 3) reserve(map, map->capacity * 2);
    *find_slot(map, key) = (struct slot){key, value};
    map->count++;
}

static void *look_up_share(void *argument) {
    struct share *share = argument;
    /* One number in nine is not in the map: misses build and free a key too. */
    uint64_t numbers = share->keys + share->keys / 8;
    int32_t *kept = share->kept ? allocate(KEY_BYTES) : NULL;
    for (uint64_t i = share->first; i < share->end; i++) {
        uint64_t wanted = mix(i) % numbers;
        int32_t *key = kept != NULL ? fill_key(kept, wanted) : make_key(wanted);
        const struct slot *slot = find_slot(share->map, key);
        if (slot->key != NULL) {
            share->sum += slot->value->weight + (unsigned char)slot->value->label[0];
            share->hits++;
        } else {
            share->misses++;
        }
        if (kept == NULL) free(key);
    }
    free(kept);
    return NULL;
}

static double seconds(void) {
    struct timespec now;
    if (clock_gettime(CLOCK_MONOTONIC, &now) != 0) fail("clock_gettime");
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static _Noreturn void usage(void) {
    fprintf(stderr, "usage: map [--times] [THREADS [KEYS [LOOKUPS [KEPT]]]]\n");
    exit(2);
}

static uint64_t number(const char *text, uint64_t least, uint64_t most) {
    char *end;
    errno = 0;
    uint64_t value = strtoull(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || text[0] == '-' || value < least || value > most) {
        fprintf(stderr, "map: `%s` is not a number from %" PRIu64 " to %" PRIu64 "\n", text, least, most);
        usage();
    }
    return value;
}

int main(int argc, char **argv) {
    int times = argc > 1 && strcmp(argv[1], "--times") == 0;
    argc -= times;
    argv += times;
    if (argc > 5) usage();
    uint64_t threads = argc > 1 ? number(argv[1], 1, MAX_THREADS) : 1;
    uint64_t keys = argc > 2 ? number(argv[2], 1, INT32_MAX / 2) : 20000;
    uint64_t lookups = argc > 3 ? number(argv[3], 1, INT64_MAX / MAX_THREADS) : 10000000;
    int kept = argc > 4 && number(argv[4], 0, 1) == 1;

    double started = seconds();
    struct map map = {NULL, 0, 0};
    reserve(&map, 16);
    for (uint64_t i = 0; i < keys; i++) insert(&map, make_key(i), make_value(i));

    double built = seconds();
    struct share shares[MAX_THREADS];
    pthread_t ids[MAX_THREADS];
    for (uint64_t t = 0; t < threads; t++) {
        shares[t] = (struct share){&map, keys, lookups * t / threads, lookups * (t + 1) / threads, kept, 0, 0, 0};
        if ((errno = pthread_create(&ids[t], NULL, look_up_share, &shares[t])) != 0) fail("pthread_create");
    }
    uint64_t sum = 0, hits = 0, misses = 0;
    for (uint64_t t = 0; t < threads; t++) {
        if ((errno = pthread_join(ids[t], NULL)) != 0) fail("pthread_join");
        sum += shares[t].sum;
        hits += shares[t].hits;
        misses += shares[t].misses;
    }

    double looked_up = seconds();
    for (uint64_t i = 0; i < map.capacity; i++) {
        free(map.slots[i].key);
        free(map.slots[i].value);
    }
    free(map.slots);

    double freed = seconds();
    printf("sum %016" PRIx64 " keys %" PRIu64 " hits %" PRIu64 " misses %" PRIu64 "\n", sum, map.count, hits, misses);
    if (times)
        fprintf(stderr, "build %.6f lookups %.6f free %.6f\n", built - started, looked_up - built, freed - looked_up);
    return fflush(stdout) == 0 ? 0 : 1;
}

/*
 * Patterns of malloc and free, for `cargo xtask bench scaling`.
 *
 *     scaling PATTERN THREADS PAIRS WARM [TIMES]
 *
 * Each thread makes WARM rounds, waits for the others, makes a few more, and then PAIRS rounds between two markers: a
 * system call that does not exist. stdout: a checksum. stderr, with TIMES 1: seconds between the markers.
 */
#define _GNU_SOURCE
#include "../../suite/workload.h"

#include <sched.h>
#include <time.h>
#include <unistd.h>

long syscall(long, ...);

enum { MARKER = 0x616c6c, STEP = 1, BEGIN = 2, END = 3 };
enum { HELD = 200, KEYS = 512, KEY_INTS = 32, BATCH = 16, WINDOW = 16, RING = 64, SPINS = 100 };

struct slot {
    _Alignas(128) void *volatile held;
};

struct worker {
    _Alignas(128) struct numbers numbers;
    size_t number;
    uint64_t sum, round;
    struct block *shelf[HELD];
    double begin, end;
};

static struct worker workers[MAX_THREADS];
static struct slot slots[MAX_THREADS];
static struct { _Alignas(128) struct block *volatile ring[RING]; } rings[MAX_THREADS];
static int32_t *keys[KEYS];
static size_t threads;
static uint64_t pairs, warm;
static int times;
static pthread_barrier_t barrier;
static void (*rounds)(struct worker *, uint64_t);
static void (*ends)(struct worker *);

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Waits a moment for a different thread, and lets it run if there are more threads than processors. */
static void wait_a_moment(uint64_t *spins) {
    __asm__ volatile("pause");
    if (++*spins % SPINS == 0) sched_yield();
}

/* A key of 32 integers for each lookup, as in a map of boxed keys. */
static uint64_t hash(const int32_t *key) {
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (int i = 0; i < KEY_INTS; i += 4) hash = (hash ^ (uint32_t)key[i]) * UINT64_C(0x100000001b3);
    return mix(hash);
}

static int32_t *make_key(uint64_t number) {
    int32_t *key = malloc(KEY_INTS * sizeof *key);
    if (key == NULL) fail("malloc");
    for (int i = 0; i < KEY_INTS; i++) key[i] = (int32_t)number;
    return key;
}

static void look_up(struct worker *worker, uint64_t count) {
    for (uint64_t i = 0; i < count; i++) {
        int32_t *key = make_key(draw(&worker->numbers) % KEYS);
        const int32_t *found = keys[key[0]];
        worker->sum += hash(key) ^ (uint64_t)(found[3] == key[3]);
        free(key);
    }
}

/* Replaces blocks at random. After the warm-up, each thread has the blocks of its neighbour. */
static void replace(struct worker *worker, uint64_t count) {
    struct block **shelf = workers[(worker->number + (worker->round++ != 0)) % threads].shelf;
    for (uint64_t i = 0; i < count; i++) {
        size_t at = draw_between(&worker->numbers, 0, HELD - 1);
        if (shelf[at] != NULL) worker->sum += end_block(shelf[at]);
        shelf[at] = make_block(draw_between(&worker->numbers, 16, 512), (uint32_t)i);
    }
}

static void end_shelf(struct worker *worker) {
    for (size_t i = 0; i < HELD; i++)
        if (worker->shelf[i] != NULL) worker->sum += end_block(worker->shelf[i]);
}

/* Even threads allocate, odd ones free. A last thread without a partner does both. */
static void pass(struct worker *worker, uint64_t count) {
    struct block *volatile *ring = rings[worker->number / 2].ring;
    int is_alone = worker->number == threads - 1 && worker->number % 2 == 0;
    uint64_t spins = 0;
    for (uint64_t i = 0; i < count; i++) {
        struct block *volatile *place = &ring[worker->round++ % RING];
        if (worker->number % 2 == 0) {
            struct block *block = make_block(draw_between(&worker->numbers, 16, 512), (uint32_t)i);
            while (__atomic_load_n(place, __ATOMIC_ACQUIRE) != NULL) wait_a_moment(&spins);
            __atomic_store_n(place, block, __ATOMIC_RELEASE);
        }
        if (worker->number % 2 == 1 || is_alone) {
            struct block *block;
            while ((block = __atomic_load_n(place, __ATOMIC_ACQUIRE)) == NULL) wait_a_moment(&spins);
            __atomic_store_n(place, NULL, __ATOMIC_RELEASE);
            worker->sum += end_block(block);
        }
    }
}

/* Each thread frees batches that its neighbour has allocated. */
static void exchange(struct worker *worker, uint64_t count) {
    struct slot *to = &slots[(worker->number + 1) % threads], *from = &slots[worker->number];
    uint64_t spins = 0;
    for (uint64_t i = 0; i < count; i += BATCH) {
        struct block **batch = malloc(BATCH * sizeof *batch);
        if (batch == NULL) fail("malloc");
        for (size_t k = 0; k < BATCH; k++) batch[k] = make_block(draw_between(&worker->numbers, 16, 256), (uint32_t)i);
        while (__atomic_load_n(&to->held, __ATOMIC_ACQUIRE) != NULL) wait_a_moment(&spins);
        __atomic_store_n(&to->held, batch, __ATOMIC_RELEASE);
        while ((batch = __atomic_load_n(&from->held, __ATOMIC_ACQUIRE)) == NULL) wait_a_moment(&spins);
        __atomic_store_n(&from->held, NULL, __ATOMIC_RELEASE);
        for (size_t k = 0; k < BATCH; k++) worker->sum += end_block(batch[k]);
        free(batch);
    }
}

/* Records of a data set: some strings, and a vector that grows. A window of them lives. */
struct record {
    struct block *strings[3];
    unsigned char *vector;
};

static void drop(struct worker *worker, struct record *record) {
    for (size_t k = 0; k < 3; k++) worker->sum += end_block(record->strings[k]);
    worker->sum += record->vector[0];
    free(record->vector);
    free(record);
}

static void parse(struct worker *worker, uint64_t count) {
    struct record *window[WINDOW] = {NULL};
    for (uint64_t i = 0; i < count; i += 5) {
        struct record *record = malloc(sizeof *record);
        if (record == NULL) fail("malloc");
        for (size_t k = 0; k < 3; k++) {
            record->strings[k] = make_block(draw_between(&worker->numbers, 8, 80), (uint32_t)i);
        }
        size_t most = (size_t)64 << draw_between(&worker->numbers, 0, 4);
        record->vector = NULL;
        for (size_t size = 32; size <= most; size *= 2) {
            record->vector = realloc(record->vector, size);
            if (record->vector == NULL) fail("realloc");
            record->vector[size / 2] = record->vector[0] = (unsigned char)i;
        }
        struct record **place = &window[i / 5 % WINDOW];
        if (*place != NULL) drop(worker, *place);
        *place = record;
    }
    for (size_t i = 0; i < WINDOW; i++)
        if (window[i] != NULL) drop(worker, window[i]);
}

static void nothing(struct worker *worker) { (void)worker; }

static const struct {
    const char *name;
    void (*rounds)(struct worker *, uint64_t);
    void (*ends)(struct worker *);
} patterns[] = {
    {"map", look_up, nothing},     {"larson", replace, end_shelf}, {"pipeline", pass, nothing},
    {"exchange", exchange, nothing}, {"records", parse, nothing},
};

static void *work(void *argument) {
    struct worker *worker = argument;
    rounds(worker, warm);
    pthread_barrier_wait(&barrier);
    if (worker->number == 0) syscall(MARKER, STEP, threads);
    pthread_barrier_wait(&barrier);
    rounds(worker, pairs / 4);
    syscall(MARKER, BEGIN, 0);
    if (times) worker->begin = seconds();
    rounds(worker, pairs);
    if (times) worker->end = seconds();
    syscall(MARKER, END, 0);
    pthread_barrier_wait(&barrier);
    ends(worker);
    return NULL;
}

int main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "";
    threads = (size_t)argument(argc, argv, 2, 1, 1, MAX_THREADS);
    pairs = argument(argc, argv, 3, 1000, 4, UINT32_MAX);
    warm = argument(argc, argv, 4, 1000, 0, UINT32_MAX);
    times = (int)argument(argc, argv, 5, 0, 0, 1);
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        if (strcmp(name, patterns[i].name) == 0) {
            rounds = patterns[i].rounds;
            ends = patterns[i].ends;
        }
    }
    if (rounds == NULL) {
        fprintf(stderr, "error: no pattern `%s`\n", name);
        return 2;
    }
    for (size_t i = 0; i < KEYS; i++) keys[i] = make_key(i);
    for (size_t i = 0; i < threads; i++) {
        workers[i].number = i;
        workers[i].numbers.state = i;
    }
    errno = pthread_barrier_init(&barrier, NULL, (unsigned)threads);
    if (errno != 0) fail("pthread_barrier_init");
    in_threads(threads, work, workers, sizeof *workers);
    uint64_t sum = 0;
    double begin = workers[0].begin, end = 0;
    for (size_t i = 0; i < threads; i++) {
        sum += workers[i].sum;
        if (workers[i].begin < begin) begin = workers[i].begin;
        if (workers[i].end > end) end = workers[i].end;
    }
    for (size_t i = 0; i < KEYS; i++) free(keys[i]);
    printf("%s %zu %" PRIu64 " sum %016" PRIx64 "\n", name, threads, pairs, sum);
    if (times) fprintf(stderr, "seconds %.6f\n", end - begin);
    return 0;
}

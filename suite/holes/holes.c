/*
 * The memory of a process that has freed most of its blocks, but not all on any page: threads allocate small blocks, free
 * 99 of 100, which ones at random, and then do little.
 *
 *     holes [BLOCKS [THREADS [SECONDS]]]
 *
 * stdout: bytes resident at the start, when full, when freed, and after SECONDS in which each thread makes a hundred calls
 * every ten milliseconds; the bytes of the blocks that are left; and the floor: what was resident at the start, and the
 * pages that those blocks lie on. The threads still exist then. Plain C11 and POSIX threads, so that one source serves every libc.
 */
#define _DEFAULT_SOURCE
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { MAX_THREADS = 64, LEAST = 16, SIZES = 520, LEFT_IN = 100, PAIRS = 50, PAUSE_MS = 10 };

/* A block that is left. */
struct left {
    struct left *next;
    size_t size;
};

static size_t blocks, pauses, page;
static struct left *left[MAX_THREADS];
static pthread_barrier_t step;

static void fail(const char *what) {
    fprintf(stderr, "holes: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* Returns the second number of /proc/self/statm, in bytes. It does not use stdio, which allocates. */
static size_t resident(void) {
    char text[128];
    int file = open("/proc/self/statm", O_RDONLY);
    ssize_t length = file < 0 ? -1 : read(file, text, sizeof text - 1);
    if (length <= 0) fail("/proc/self/statm");
    close(file);
    text[length] = 0;
    char *second = strchr(text, ' ');
    return second ? strtoul(second, NULL, 10) * page : 0;
}

/* Memory of our own, which is none of the allocator's and goes when it is no longer needed. */
static void *map(size_t size) {
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) fail("mmap");
    return memory;
}

static uint32_t random_below(uint64_t *state, uint32_t bound) {
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*state >> 33) % bound;
}

static void *block(uint64_t *state, size_t *size) {
    *size = LEAST + random_below(state, SIZES);
    void *allocated = malloc(*size);
    if (allocated == NULL) fail("malloc");
    memset(allocated, 1, *size);
    return allocated;
}

static void *work(void *argument) {
    size_t thread = (size_t)(uintptr_t)argument, size;
    uint64_t state = thread + 1;
    struct left **all = map(blocks * sizeof *all);
    for (size_t i = 0; i < blocks; i++) {
        all[i] = block(&state, &size);
        all[i]->size = size;
    }
    pthread_barrier_wait(&step);
    pthread_barrier_wait(&step); /* main has read the figure */
    for (size_t i = 0; i < blocks; i++) {
        if (random_below(&state, LEFT_IN) == 0) {
            all[i]->next = left[thread];
            left[thread] = all[i];
        } else {
            free(all[i]);
        }
    }
    munmap(all, blocks * sizeof *all);
    pthread_barrier_wait(&step);
    pthread_barrier_wait(&step);
    for (size_t pause = 0; pause < pauses; pause++) {
        void *some[PAIRS];
        for (size_t i = 0; i < PAIRS; i++) some[i] = block(&state, &size);
        for (size_t i = 0; i < PAIRS; i++) free(some[i]);
        nanosleep(&(struct timespec){0, PAUSE_MS * 1000000L}, NULL);
    }
    pthread_barrier_wait(&step);
    pthread_barrier_wait(&step);
    return NULL;
}

static int by_number(const void *a, const void *b) {
    uintptr_t first = *(const uintptr_t *)a, second = *(const uintptr_t *)b;
    return (first > second) - (first < second);
}

/* Returns the bytes of the pages that the blocks lie on, and in `bytes` those of the blocks. */
static size_t pages_of_blocks(size_t threads, size_t *bytes) {
    size_t most = threads * blocks * 2, count = 0, different = 0;
    uintptr_t *pages = map(most * sizeof *pages);
    *bytes = 0;
    for (size_t t = 0; t < threads; t++) {
        for (struct left *at = left[t]; at != NULL; at = at->next) {
            pages[count++] = (uintptr_t)at / page;
            pages[count++] = ((uintptr_t)at + at->size - 1) / page;
            *bytes += at->size;
        }
    }
    qsort(pages, count, sizeof *pages, by_number);
    for (size_t i = 0; i < count; i++) different += i == 0 || pages[i] != pages[i - 1];
    munmap(pages, most * sizeof *pages);
    return different * page;
}

static size_t number(const char *text, size_t most) {
    char *end;
    unsigned long long value = strtoull(text, &end, 10);
    if (end == text || *end != '\0' || value < 1 || value > most) {
        fprintf(stderr, "usage: holes [BLOCKS [THREADS [SECONDS]]]\n");
        exit(2);
    }
    return (size_t)value;
}

int main(int argc, char **argv) {
    blocks = argc > 1 ? number(argv[1], 100000000) : 250000;
    size_t threads = argc > 2 ? number(argv[2], MAX_THREADS) : 4;
    pauses = (argc > 3 ? number(argv[3], 3600) : 2) * 1000 / PAUSE_MS;
    page = (size_t)sysconf(_SC_PAGESIZE);
    pthread_t ids[MAX_THREADS];
    pthread_barrier_init(&step, NULL, (unsigned)threads + 1);
    size_t started = resident();
    for (size_t t = 0; t < threads; t++)
        if ((errno = pthread_create(&ids[t], NULL, work, (void *)t)) != 0) fail("pthread_create");
    pthread_barrier_wait(&step);
    size_t full = resident();
    pthread_barrier_wait(&step);
    pthread_barrier_wait(&step);
    size_t freed = resident();
    pthread_barrier_wait(&step);
    pthread_barrier_wait(&step);
    size_t later = resident(), bytes, lain_on = pages_of_blocks(threads, &bytes);
    pthread_barrier_wait(&step);
    for (size_t t = 0; t < threads; t++) pthread_join(ids[t], NULL);
    printf("start %zu full %zu freed %zu later %zu left %zu floor %zu\n", started, full, freed, later, bytes,
           started + lain_on);
    return fflush(stdout) == 0 ? 0 : 1;
}

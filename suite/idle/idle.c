/*
 * The memory of an idle process: threads fill memory with small blocks, free all of them, and wait.
 *
 *     idle [MEBIBYTES [THREADS [SECONDS]]]
 *
 * stdout: bytes resident at the start, when full, and after a second without a call of the allocator; with SECONDS, also
 * when that many have passed. The threads that allocated still exist then. Plain C11 and POSIX threads, so that one source serves every libc.
 */
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MAX_THREADS = 64 };

static size_t bytes_each;
static pthread_barrier_t full, emptied, over;

static void fail(const char *what) {
    fprintf(stderr, "idle: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* Returns the second number of /proc/self/statm, in bytes. It does not use stdio, which allocates. */
static long resident(void) {
    char text[128];
    int file = open("/proc/self/statm", O_RDONLY);
    ssize_t length = file < 0 ? -1 : read(file, text, sizeof text - 1);
    if (length <= 0) fail("/proc/self/statm");
    close(file);
    text[length] = 0;
    char *second = strchr(text, ' ');
    return second ? strtol(second, NULL, 10) * sysconf(_SC_PAGESIZE) : -1;
}

/* Blocks of 16 to 1,024 bytes in a list, so that the list itself needs no memory. */
static void *work(void *argument) {
    uint64_t state = (uint64_t)(uintptr_t)argument + 1;
    void **list = NULL;
    for (size_t held = 0; held < bytes_each;) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        size_t size = 16 + (size_t)(state >> 33) % 1009;
        void **block = malloc(size);
        if (block == NULL) fail("malloc");
        memset(block, 1, size);
        *block = list;
        list = block;
        held += size;
    }
    pthread_barrier_wait(&full);
    pthread_barrier_wait(&full); /* main has read the figure */
    while (list != NULL) {
        void **next = *list;
        free(list);
        list = next;
    }
    pthread_barrier_wait(&emptied);
    pthread_barrier_wait(&over);
    return NULL;
}

static size_t number(const char *text, size_t most) {
    char *end;
    unsigned long long value = strtoull(text, &end, 10);
    if (end == text || *end != '\0' || value < 1 || value > most) {
        fprintf(stderr, "usage: idle [MEBIBYTES [THREADS [SECONDS]]]\n");
        exit(2);
    }
    return (size_t)value;
}

int main(int argc, char **argv) {
    size_t mebibytes = argc > 1 ? number(argv[1], 65536) : 256;
    size_t threads = argc > 2 ? number(argv[2], MAX_THREADS) : 4;
    size_t seconds = argc > 3 ? number(argv[3], 3600) : 1;
    bytes_each = mebibytes * 1024 * 1024 / threads;
    long started = resident();
    pthread_t ids[MAX_THREADS];
    pthread_barrier_init(&full, NULL, (unsigned)threads + 1);
    pthread_barrier_init(&emptied, NULL, (unsigned)threads + 1);
    pthread_barrier_init(&over, NULL, (unsigned)threads + 1);
    for (size_t t = 0; t < threads; t++)
        if ((errno = pthread_create(&ids[t], NULL, work, (void *)t)) != 0) fail("pthread_create");
    pthread_barrier_wait(&full);
    long filled = resident();
    pthread_barrier_wait(&full);
    pthread_barrier_wait(&emptied);
    nanosleep(&(struct timespec){1, 0}, NULL);
    long idle = resident(), later = idle;
    if (seconds > 1) {
        nanosleep(&(struct timespec){(time_t)seconds - 1, 0}, NULL);
        later = resident();
    }
    pthread_barrier_wait(&over);
    for (size_t t = 0; t < threads; t++) pthread_join(ids[t], NULL);
    printf("start %ld full %ld idle %ld", started, filled, idle);
    if (seconds > 1) printf(" later %ld", later);
    putchar('\n');
    return fflush(stdout) == 0 ? 0 : 1;
}

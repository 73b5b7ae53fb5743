/*
 * zstd at work: each thread compresses a file in pieces and decompresses them, with a context for each piece, as programs
 * do that compress one message after the other.
 *
 *     compress THREADS ROUNDS FILE
 */
#include "../workload.h"
#include "zstd.h"

enum { PIECE = 64 * 1024 };

static unsigned char *text;
static size_t length;

struct job {
    uint64_t rounds, sum;
};

static size_t checked(size_t result) {
    if (ZSTD_isError(result)) {
        fprintf(stderr, "error: %s\n", ZSTD_getErrorName(result));
        exit(1);
    }
    return result;
}

static void *work(void *argument) {
    struct job *job = argument;
    for (uint64_t round = 0; round < job->rounds; round++) {
        for (size_t at = 0; at < length; at += PIECE) {
            size_t size = length - at < PIECE ? length - at : PIECE, bound = ZSTD_compressBound(size);
            unsigned char *packed = malloc(bound), *unpacked = malloc(size);
            if (packed == NULL || unpacked == NULL) fail("malloc");
            int level = 1 + (int)(at / PIECE % 3);
            ZSTD_CCtx *packer = ZSTD_createCCtx();
            size_t got = checked(ZSTD_compressCCtx(packer, packed, bound, text + at, size, level));
            ZSTD_freeCCtx(packer);
            ZSTD_DCtx *unpacker = ZSTD_createDCtx();
            if (checked(ZSTD_decompressDCtx(unpacker, unpacked, size, packed, got)) != size ||
                memcmp(unpacked, text + at, size) != 0) {
                errno = EIO;
                fail("a piece changed");
            }
            ZSTD_freeDCtx(unpacker);
            job->sum = mix(job->sum + got);
            free(packed);
            free(unpacked);
        }
    }
    return NULL;
}

int main(int argc, char **argv) {
    size_t threads = (size_t)argument(argc, argv, 1, 1, 1, MAX_THREADS);
    uint64_t rounds = argument(argc, argv, 2, 1, 1, 1000), sum = 0;
    FILE *file = argc > 3 ? fopen(argv[3], "rb") : NULL;
    if (file == NULL || fseek(file, 0, SEEK_END) != 0) fail("the file");
    length = (size_t)ftell(file);
    rewind(file);
    text = malloc(length);
    if (text == NULL || fread(text, 1, length, file) != length) fail("the file");
    fclose(file);
    static struct job jobs[MAX_THREADS];
    for (size_t i = 0; i < threads; i++) jobs[i].rounds = rounds;
    in_threads(threads, work, jobs, sizeof *jobs);
    for (size_t i = 0; i < threads; i++) sum = mix(sum + jobs[i].sum);
    free(text);
    printf("compress %zu %" PRIu64 " sum %" PRIu64 "\n", threads, rounds, sum);
    return 0;
}

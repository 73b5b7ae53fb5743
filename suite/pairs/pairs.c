/*
 * malloc and free, and as little else as possible. If one more instruction in each call can be measured, it shows here.
 *
 *     pairs [PAIRS]
 *
 * stdout: one line with a checksum, the same for every libc.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { LIVE = 64 };

int main(int argc, char **argv) {
    unsigned long pairs = argc > 1 ? strtoul(argv[1], NULL, 10) : 20000000;
    unsigned char *volatile blocks[LIVE] = {NULL};
    uint64_t sum = 0;
    for (unsigned long i = 0; i < pairs; i++) {
        unsigned char *block = blocks[i % LIVE];
        if (block != NULL) {
            sum += block[0];
            free(block);
        }
        block = malloc(16 + (i * 7) % 240);
        if (block == NULL) return 1;
        block[0] = (unsigned char)i;
        blocks[i % LIVE] = block;
    }
    for (int i = 0; i < LIVE; i++) free(blocks[i]);
    printf("sum %llu\n", (unsigned long long)sum);
    return 0;
}

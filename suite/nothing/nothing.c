/*
 * A program that does almost nothing: one block, so that the allocator starts. What it takes is what every program takes.
 */
#include <stdlib.h>

int main(void) {
    char *volatile block = malloc(100);
    int failed = block == NULL;
    free(block);
    return failed;
}

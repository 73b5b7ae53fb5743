/*
 * Small objects: trees are built and taken down, over and over, while a few long-lived ones stay, as compilers and
 * interpreters do. Nodes of 24 to 64 bytes, hardly any work between malloc and free.
 *
 *     small [THREADS [TREES]]
 *
 * stdout: one line with a checksum, the same for every libc and allocator.
 */
#include "../workload.h"

enum { NODES = 200, KEPT = 64 };

struct node {
    struct node *less, *more;
    uint64_t key;
};

struct share {
    uint64_t trees, sum;
    struct numbers numbers;
};

static struct node *plant(struct numbers *numbers) {
    struct node *root = NULL;
    for (int i = 0; i < NODES; i++) {
        uint64_t key = draw(numbers);
        struct node **place = &root;
        while (*place != NULL) place = key < (*place)->key ? &(*place)->less : &(*place)->more;
        *place = malloc(sizeof **place + key % 5 * 8);
        if (*place == NULL) fail("malloc");
        **place = (struct node){NULL, NULL, key};
    }
    return root;
}

static uint64_t fell(struct node *node) {
    if (node == NULL) return 0;
    uint64_t sum = mix(node->key) + fell(node->less) + fell(node->more);
    free(node);
    return sum;
}

static void *work(void *argument) {
    struct share *share = argument;
    struct node *kept[KEPT] = {NULL};
    for (uint64_t i = 0; i < share->trees; i++) {
        struct node *tree = plant(&share->numbers);
        size_t at = draw_between(&share->numbers, 0, KEPT - 1);
        /* One in eight stays. */
        if (draw(&share->numbers) % 8 == 0) {
            share->sum += fell(kept[at]);
            kept[at] = tree;
        } else {
            share->sum += fell(tree);
        }
    }
    for (size_t at = 0; at < KEPT; at++) share->sum += fell(kept[at]);
    return NULL;
}

int main(int argc, char **argv) {
    size_t threads = (size_t)argument(argc, argv, 1, 1, 1, MAX_THREADS);
    uint64_t trees = argument(argc, argv, 2, 100000, 1, UINT32_MAX);
    struct share shares[MAX_THREADS];
    for (size_t i = 0; i < threads; i++) shares[i] = (struct share){trees / threads, 0, {i}};
    in_threads(threads, work, shares, sizeof *shares);
    uint64_t sum = 0;
    for (size_t i = 0; i < threads; i++) sum += shares[i].sum;
    printf("small %zu %" PRIu64 " sum %016" PRIx64 "\n", threads, trees, sum);
    return 0;
}

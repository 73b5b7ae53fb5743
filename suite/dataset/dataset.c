/*
 * Data sets that are read, grouped and sorted in parallel, modelled on alloc-perf-test. First all sets are generated as text
 * (its gen-data), then threads take one after another and process it (its test).
 *
 *     dataset [THREADS [SETS [SIZE]]]
 *
 * Each set has SIZE lines of a key and a few words. Processing cuts them into fields, each a block of its own, groups the lines
 * by key in a hash table, grows a list for each group, sorts the groups, and joins each into one text, which the main thread
 * frees. All blocks but the texts are short-lived: many sizes, many at a time, freed in another order than allocated.
 *
 * stdout: one line with a checksum, the same for every number of threads, libc and allocator.
 */
#include "../workload.h"

enum { KEYS = 512, WORDS = 6 };

struct record {
    char *key, *words[WORDS];
};

struct group {
    char *key;
    struct record **records;
    size_t count, room;
};

static char **sets;
static char **joined;
static size_t set_count, set_size, taken;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *allocate(size_t size) {
    void *block = malloc(size);
    if (block == NULL) fail("malloc");
    return block;
}

static void *grow(void *block, size_t size) {
    block = realloc(block, size);
    if (block == NULL) fail("realloc");
    return block;
}

static char *generate(size_t number) {
    struct numbers numbers = {number};
    size_t room = 4096, length = 0;
    char *text = allocate(room);
    for (size_t line = 0; line < set_size; line++) {
        if (room - length < 512) text = grow(text, room *= 2);
        length += (size_t)sprintf(text + length, "key%zu", draw_between(&numbers, 0, KEYS - 1));
        for (int word = 0; word < WORDS; word++) {
            text[length++] = ' ';
            for (size_t left = draw_between(&numbers, 3, 60); left > 0; left--) {
                text[length++] = (char)('a' + draw(&numbers) % 26);
            }
        }
        text[length++] = '\n';
    }
    text[length] = 0;
    return text;
}

/* Returns the field that begins at `*at`, as a block of its own. Sets `*at` behind the blank or line end after it. */
static char *field(const char **at) {
    size_t length = strcspn(*at, " \n");
    char *copy = allocate(length + 1);
    memcpy(copy, *at, length);
    copy[length] = 0;
    *at += length + 1;
    return copy;
}

static struct group *find(struct group **table, size_t *room, size_t *count, const char *key) {
    uint64_t hash = 0;
    for (const char *letter = key; *letter; letter++) hash = mix(hash ^ (unsigned char)*letter);
    for (size_t at = (size_t)hash;; at++) {
        struct group *group = &(*table)[at & (*room - 1)];
        if (group->key == NULL) {
            (*count)++;
            group->key = allocate(strlen(key) + 1);
            strcpy(group->key, key);
            return group;
        }
        if (strcmp(group->key, key) == 0) return group;
    }
}

static int by_key(const void *one, const void *other) {
    const struct group *a = one, *b = other;
    if (a->key == NULL || b->key == NULL) return (a->key == NULL) - (b->key == NULL);
    return strcmp(a->key, b->key);
}

static char *process(const char *text) {
    size_t room = 1024, groups = 0;
    struct group *table = calloc(room, sizeof *table);
    if (table == NULL) fail("calloc");
    while (*text) {
        struct record *record = allocate(sizeof *record);
        record->key = field(&text);
        for (int word = 0; word < WORDS; word++) record->words[word] = field(&text);
        struct group *group = find(&table, &room, &groups, record->key);
        if (group->count == group->room) {
            group->room = group->room ? group->room * 2 : 4;
            group->records = grow(group->records, group->room * sizeof *group->records);
        }
        group->records[group->count++] = record;
    }
    qsort(table, room, sizeof *table, by_key);
    size_t length = 0, space = 1024;
    char *result = allocate(space);
    for (size_t at = 0; at < room && table[at].key; at++) {
        struct group *group = &table[at];
        for (size_t i = 0; i < group->count; i++) {
            struct record *record = group->records[i];
            size_t word = strlen(record->words[i % WORDS]);
            if (space - length < word + 1) result = grow(result, space = space * 2 + word);
            memcpy(result + length, record->words[i % WORDS], word);
            length += word;
            for (int j = 0; j < WORDS; j++) free(record->words[j]);
            free(record->key);
            free(record);
        }
        free(group->records);
        free(group->key);
    }
    free(table);
    result[length] = 0;
    return result;
}

static void *work(void *argument) {
    (void)argument;
    for (;;) {
        pthread_mutex_lock(&lock);
        size_t mine = taken++;
        pthread_mutex_unlock(&lock);
        if (mine >= set_count) return NULL;
        joined[mine] = process(sets[mine]);
    }
}

int main(int argc, char **argv) {
    size_t threads = (size_t)argument(argc, argv, 1, 1, 1, MAX_THREADS);
    set_count = (size_t)argument(argc, argv, 2, 8, 1, 1 << 20);
    set_size = (size_t)argument(argc, argv, 3, 20000, 1, 1 << 24);
    sets = allocate(set_count * sizeof *sets);
    joined = allocate(set_count * sizeof *joined);
    for (size_t i = 0; i < set_count; i++) sets[i] = generate(i);
    char dummies[MAX_THREADS];
    in_threads(threads, work, dummies, 1);
    uint64_t sum = 0;
    for (size_t i = 0; i < set_count; i++) {
        for (const char *letter = joined[i]; *letter; letter++) sum = sum * 31 + (unsigned char)*letter;
        sum = mix(sum ^ i);
        free(joined[i]);
        free(sets[i]);
    }
    free(joined);
    free(sets);
    printf("dataset %zu %zu sum %016" PRIx64 "\n", set_count, set_size, sum);
    return 0;
}

#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Blocks come from an arena and are never reused. Each block's size is stored before it.
static _Alignas(16) char arena[1 << 22];
static size_t used;

void *malloc(size_t size) {
	size = (size + 31) & ~(size_t)15;
	if (size > sizeof arena - used) return 0;
	char *block = arena + used;
	used += size;
	*(size_t *)block = size - 16;
	return block + 16;
}

static int is_ours(const void *block) { return (const char *)block >= arena && (const char *)block < arena + sizeof arena; }

void free(void *block) {
	if (block && !is_ours(block)) puts("free was given a block that malloc did not hand out"), abort();
}

void *realloc(void *block, size_t size) {
	void *moved = malloc(size);
	if (block && !is_ours(block)) abort();
	if (moved && block) {
		size_t before = ((size_t *)block)[-2];
		memcpy(moved, block, before < size ? before : size);
	}
	return moved;
}

int main(void) {
	void *cleared = calloc(10, 10), *array = reallocarray(0, 7, 7);
	char *text = strdup("text"), *line = 0;
	if (!is_ours(cleared) || !is_ours(array) || !is_ours(text)) return 1;
	if (asprintf(&line, "%s", text) != 4 || !is_ours(line)) return 2;
	// The program's free cannot free one of the donor's aligned blocks, so aligned_alloc must fail.
	errno = 0;
	if (aligned_alloc(64, 64) || errno != ENOMEM || memalign(64, 64) || valloc(1)) return 3;
	void *aligned = &aligned;
	if (posix_memalign(&aligned, 64, 64) != ENOMEM || aligned != &aligned) return 4;
	free(cleared), free(array), free(text), free(line);
	puts("ok");
}

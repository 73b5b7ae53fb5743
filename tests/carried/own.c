// A program with its own allocator, which musl's newlocale and atexit do not use.
#include <locale.h>
#include <stdlib.h>
#include <string.h>

static char arena[1 << 20];
static size_t used;

void *malloc(size_t n) {
	used += (n + 31) & -(size_t)16;
	return used > sizeof arena ? 0 : arena + used - ((n + 15) & -(size_t)16);
}

void free(void *p) {
	(void)p;
}

void *calloc(size_t count, size_t size) {
	void *p = malloc(count * size);
	return p ? memset(p, 0, count * size) : 0;
}

void *realloc(void *p, size_t n) {
	void *q = malloc(n);
	if (p && q)
		memmove(q, p, n);
	return q;
}

static void nothing(void) {}

int main(void) {
	for (int i = 0; i < 40; i++)
		atexit(nothing);
	freelocale(newlocale(LC_ALL_MASK, "C.UTF-8", 0));
	return malloc(10) == 0;
}

/* A text that is put together without libc. It is written at once, so that lines of several processes do not mix. */
#ifndef GRAFT_PAGE_H
#define GRAFT_PAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Inlined, these functions would take several KB in every program. */
#define GRAFT_SMALL static __attribute__((noinline, cold))

struct graft_page {
	char *text;
	size_t room, length;
};

/* A donor in a linked program has no memcmp. */
GRAFT_SMALL bool graft_is_same(const void *one, const void *other, size_t size)
{
	const unsigned char *left = one, *right = other;
	while (size && *left == *right)
		left++, right++, size--;
	return !size;
}

GRAFT_SMALL void graft_put_text(struct graft_page *page, const char *text)
{
	while (*text && page->length < page->room)
		page->text[page->length++] = *text++;
}

GRAFT_SMALL void graft_put_number(struct graft_page *page, uint64_t number)
{
	char digits[20];
	int count = 0;
	do
		digits[count++] = (char)('0' + number % 10);
	while (number /= 10);
	while (count && page->length < page->room)
		page->text[page->length++] = digits[--count];
}

#endif

/* The malloc family of Windows' C library, each function with the others: a block of one is freed by a different
 * one. */
#include <direct.h>
#include <errno.h>
#include <malloc.h>
#include <mbstring.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include "check.h"

static int is_filled(const char *block, int byte, size_t size)
{
	for (size_t at = 0; at < size; at++)
		if (block[at] != (char)byte)
			return 0;
	return 1;
}

/* Sizes of all kinds: small ones, some of a page and more, and some that get a mapping of their own. */
static const size_t sizes[] = {0, 1, 8, 15, 16, 17, 100, 1000, 4096, 70000, 1 << 20, 40 << 20};

static void blocks(void)
{
	for (size_t at = 0; at < sizeof sizes / sizeof *sizes; at++) {
		size_t size = sizes[at];
		char *block = malloc(size);
		CHECK(block && (uintptr_t)block % 16 == 0);
		CHECK(_msize(block) >= size);
		memset(block, 'a', size);
		/* In place, or not at all. */
		CHECK(_expand(block, size) == block);
		CHECK(!_expand(block, size + ((size_t)1 << 40)));
		block = realloc(block, size + 5000);
		CHECK(block && is_filled(block, 'a', size));
		CHECK(!realloc(block, 0));
		char *zeroed = calloc(size, 3);
		CHECK(zeroed && is_filled(zeroed, 0, 3 * size));
		free(zeroed);
	}
	free(0);
	/* Compilers take it for granted that there is memory, unless they have to look at the block. */
	void *volatile none;
	errno = 0;
	none = malloc(SIZE_MAX - 100);
	CHECK(!none);
	CHECK(errno == ENOMEM);
	errno = 0;
	none = calloc(SIZE_MAX / 2, 3);
	CHECK(!none);
	CHECK(errno == ENOMEM);
	errno = 0;
	CHECK(_msize(0) == (size_t)-1);
	CHECK(errno == EINVAL);
}

static void zeroed_growth(void)
{
	for (size_t size = 1; size < 3000; size += 7) {
		char *block = _recalloc(0, size, 1);
		CHECK(block && is_filled(block, 0, size));
		memset(block, 'b', size);
		block = _recalloc(block, size / 2 + 1, 1);
		CHECK(block && is_filled(block, 'b', size / 2 + 1));
		block = _recalloc(block, size, 3);
		CHECK(block && is_filled(block, 'b', size / 2 + 1));
		CHECK(is_filled(block + size / 2 + 1, 0, 3 * size - size / 2 - 1));
		free(block);
	}
	errno = 0;
	CHECK(!_recalloc(0, SIZE_MAX / 2, 3));
	CHECK(errno == ENOMEM);
}

static void aligned(void)
{
	for (size_t alignment = 1; alignment <= 1 << 16; alignment *= 2) {
		char *block = _aligned_malloc(100, alignment);
		CHECK(block && (uintptr_t)block % alignment == 0);
		CHECK(_aligned_msize(block, alignment, 0) >= 100);
		memset(block, 'c', 100);
		block = _aligned_realloc(block, 3000, alignment);
		CHECK(block && (uintptr_t)block % alignment == 0 && is_filled(block, 'c', 100));
		_aligned_free(block);
		block = _aligned_recalloc(0, 50, 2, alignment);
		CHECK(block && (uintptr_t)block % alignment == 0 && is_filled(block, 0, 100));
		_aligned_free(block);
		block = _aligned_offset_malloc(200, alignment, 40);
		CHECK(block && (uintptr_t)(block + 40) % alignment == 0);
		memset(block, 'd', 200);
		block = _aligned_offset_realloc(block, 5000, alignment, 40);
		CHECK(block && (uintptr_t)(block + 40) % alignment == 0 && is_filled(block, 'd', 200));
		_aligned_free(block);
		block = _aligned_offset_recalloc(0, 10, 20, alignment, 40);
		CHECK(block && (uintptr_t)(block + 40) % alignment == 0 && is_filled(block, 0, 200));
		_aligned_free(block);
	}
	_aligned_free(0);
	errno = 0;
	CHECK(!_aligned_malloc(100, 24));
	CHECK(errno == EINVAL);
}

static void returned(void)
{
	char *text = _strdup("text");
	CHECK(!strcmp(text, "text"));
	free(text);
	text = strdup("");
	CHECK(text && !*text);
	free(text);
	wchar_t *wide = _wcsdup(L"wide");
	CHECK(!wcscmp(wide, L"wide"));
	free(realloc(wide, 1000));
	unsigned char *bytes = _mbsdup((const unsigned char *)"bytes");
	CHECK(!strcmp((char *)bytes, "bytes"));
	free(bytes);

	char buffer[1000];
	text = _getcwd(0, 0);
	CHECK(text && _getcwd(buffer, sizeof buffer) == buffer && !strcmp(text, buffer));
	free(text);
	text = getcwd(0, 500);
	CHECK(text && !strcmp(text, buffer) && _msize(text) >= 500);
	free(text);
	errno = 0;
	CHECK(!_getcwd(buffer, 1));
	CHECK(errno == ERANGE);
	wide = _wgetcwd(0, 0);
	CHECK(wide && wcslen(wide) == strlen(text = _getcwd(0, 0)));
	free(wide);
	free(text);
	text = _getdcwd(0, 0, 10);
	CHECK(text && strlen(text) > 1);
	free(text);
	wide = _wgetdcwd(0, 0, 10);
	CHECK(wide && wcslen(wide) > 1);
	free(wide);
	text = _fullpath(0, "file", 0);
	CHECK(text && _fullpath(buffer, "file", sizeof buffer) == buffer && !strcmp(text, buffer));
	free(text);
	wide = _wfullpath(0, L"file", 0);
	CHECK(wide && wcslen(wide) == strlen(buffer));
	free(wide);
	text = _tempnam(".", "one");
	CHECK(text && strstr(text, "one"));
	free(text);
	text = tempnam(".", "two");
	CHECK(text && strstr(text, "two"));
	free(text);
	wide = _wtempnam(L".", L"one");
	CHECK(wide && wcsstr(wide, L"one"));
	free(wide);

	size_t length = 0;
	CHECK(!_putenv("ALLOGRAFT_TEST=of the test"));
	CHECK(!_dupenv_s(&text, &length, "ALLOGRAFT_TEST"));
	CHECK(!strcmp(text, "of the test") && length == sizeof "of the test");
	free(text);
	CHECK(!_wdupenv_s(&wide, &length, L"ALLOGRAFT_TEST"));
	CHECK(!wcscmp(wide, L"of the test"));
	free(wide);
	CHECK(!_dupenv_s(&text, &length, "ALLOGRAFT_NONE"));
	CHECK(!text && !length);
	CHECK(_dupenv_s(0, 0, "ALLOGRAFT_NONE") == EINVAL);
}

int main(void)
{
	blocks();
	zeroed_growth();
	aligned();
	returned();
	puts("family: all right");
	return 0;
}

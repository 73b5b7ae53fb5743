#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <locale.h>
#include <wchar.h>

/* Calls through libc: printf and qsort copy, getenv and strstr search, strdup does both. */
static int order(const void *left, const void *right) { return strcmp(left, right); }

int main(int count, char **words) {
	(void)words;
	char names[4][40] = {"a name that is rather long, and last: z", "mild", "a name that is rather long, and first: a", "bold"};
	qsort(names, 4, sizeof names[0], order);
	if (strncmp(names[0], "a name that is rather long, and first: a", 39) || strcmp(names[3], "mild")) return 1;
	char text[400];
	snprintf(text, sizeof text, "%.39s|%s|%100d", names[0], names[3], 7);
	char *copy = strdup(text), *end = strchrnul(copy, '7');
	if (end != copy + strlen(text) - 1 || memrchr(copy, '|', strlen(copy)) != strrchr(text, '|') - text + copy) return 2;
	setenv("ALLOGRAFT_CASE", copy, 1);
	if (!getenv("ALLOGRAFT_CASE") || strcmp(getenv("ALLOGRAFT_CASE"), text)) return 3;
	memmove(copy + 1, copy, strlen(copy) - 1);
	if (memcmp(copy + 1, text, strlen(text) - 1)) return 4;
	if (stpcpy(copy, "short") != copy + 5 || strlen(strcat(copy, " and a bit longer")) != 22) return 5;
	/* zig has these in a library of its own, in one object with a strong strlen, strcmp and strncmp. */
	if (strcasecmp(copy, "SHORT AND A BIT LONGER") || abs(-count) != count) return 6;
	/* strtok_r and strsep call strspn, strcspn; with a locale, comparisons are what they are without. */
	char list[] = " ,one;two, ;three", *rest, *word = strtok_r(list, " ,;", &rest);
	for (const char *const *each = (const char *const[]){"one", "two", "three", 0}; *each; each++) {
		if (!word || strcasecmp(word, *each)) return 7;
		word = strtok_r(0, " ,;", &rest);
	}
	char fields[] = "a=b&c", *at = fields;
	if (word || strcmp(strsep(&at, "&="), "a") || strcmp(strsep(&at, "&="), "b") || strcmp(strsep(&at, "&="), "c") || at) return 8;
	locale_t locale = newlocale(LC_ALL_MASK, "C", 0);
	if (strncasecmp_l("Straw", "sTRAY", 4, locale) || strcasecmp_l("straw", "STRAY", locale) >= 0) return 9;
	if (strcasestr("a Needle in hay", "needLE") == 0 || strpbrk(fields, "xyz")) return 10;
	/* wprintf and wcstombs measure wide strings. */
	wchar_t wide[40];
	if (swprintf(wide, 40, L"%ls-%d", L"wide", 42) != 7 || wcslen(wide) != 7 || wcscmp(wide, L"wide-42")) return 11;
	if (wmemchr(wide, L'-', 7) != wide + 4 || wcschr(wide, L'!') || memccpy(list, "to!", '!', 9) != list + 3) return 12;
	free(copy);
	puts("ok");
	return 0;
}

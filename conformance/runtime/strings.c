// strlen and its like: the libc.a of zig 0.15 leaves them to zig's own runtime. Weak, so that a libc's own win.
#include <stddef.h>

#define WEAK __attribute__((weak))

WEAK size_t strlen(const char *text) {
	const char *end = text;
	while (*end) end++;
	return (size_t)(end - text);
}

WEAK int strcmp(const char *left, const char *right) {
	while (*left && *left == *right) left++, right++;
	return (unsigned char)*left - (unsigned char)*right;
}

WEAK int strncmp(const char *left, const char *right, size_t count) {
	for (; count && *left && *left == *right; count--) left++, right++;
	return count ? (unsigned char)*left - (unsigned char)*right : 0;
}

static int lower(char letter) {
	unsigned char value = (unsigned char)letter;
	return value - 'A' < 26u ? value | 32 : value;
}

WEAK int strcasecmp(const char *left, const char *right) {
	while (*left && lower(*left) == lower(*right)) left++, right++;
	return lower(*left) - lower(*right);
}

WEAK int strncasecmp(const char *left, const char *right, size_t count) {
	for (; count && *left && lower(*left) == lower(*right); count--) left++, right++;
	return count ? lower(*left) - lower(*right) : 0;
}

WEAK int __strcasecmp_l(const char *left, const char *right, void *locale) {
	(void)locale;
	return strcasecmp(left, right);
}

WEAK int __strncasecmp_l(const char *left, const char *right, size_t count, void *locale) {
	(void)locale;
	return strncasecmp(left, right, count);
}

WEAK int strcasecmp_l(const char *left, const char *right, void *locale) {
	(void)locale;
	return strcasecmp(left, right);
}

WEAK int strncasecmp_l(const char *left, const char *right, size_t count, void *locale) {
	(void)locale;
	return strncasecmp(left, right, count);
}

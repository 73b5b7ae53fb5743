#include <string.h>
#include <wchar.h>

char *copy(const char *text) { return strdup(text); }
char *copy_part(const char *text, size_t length) { return strndup(text, length); }
wchar_t *copy_wide(const wchar_t *text) { return wcsdup(text); }

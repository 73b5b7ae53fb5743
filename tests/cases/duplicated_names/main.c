#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

char *copy(const char *);
char *copy_part(const char *, size_t);
wchar_t *copy_wide(const wchar_t *);

int main(void) {
	char *block = malloc(100), *whole = copy("grafted"), *part = copy_part("grafted", 5);
	wchar_t *wide = copy_wide(L"grafted");
	if (!block || strcmp(whole, "grafted") || strcmp(part, "graft") || wcscmp(wide, L"grafted")) return 1;
	block = realloc(block, 1000), free(block), free(whole), free(part), free(wide);
	puts("ok");
}

/* A program with a donor, and a DLL without one. */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

__declspec(dllimport) char *library_text(const char *);
__declspec(dllimport) void library_free(char *);

int main(void)
{
	for (int at = 0; at < 1000; at++) {
		char *text = library_text("of the library");
		CHECK(text && !strcmp(text, "of the library"));
		char *own = strdup(text);
		library_free(text);
		CHECK(!strcmp(own, "of the library"));
		free(own);
	}
	puts("boundary: all right");
	return 0;
}

/* A DLL with the C library's own heap: what it allocates it frees itself, as DLLs of Windows have to. */
#include <stdlib.h>
#include <string.h>

__declspec(dllexport) char *library_text(const char *text)
{
	char *copy = malloc(strlen(text) + 1);
	return copy ? strcpy(copy, text) : 0;
}

__declspec(dllexport) void library_free(char *text)
{
	free(text);
}

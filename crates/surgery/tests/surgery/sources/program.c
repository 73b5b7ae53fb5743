/* Uses the malloc family and libc functions that allocate, and has symbols that a donor's helpers are called by. */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <wchar.h>

long counter = 7;
int secret(int x) { return x + 100; }
int helper(void) { return 3; }

int main(void)
{
	char *text = strdup("text");
	wchar_t *wide = wcsdup(L"wide");
	void *aligned = 0;
	if (posix_memalign(&aligned, 256, 10) || (uintptr_t)aligned % 256 || strcmp(text, "text") || wcscmp(wide, L"wide"))
		return 1;
	text = realloc(text, 1000);
	if (strcmp(text, "text") || malloc_usable_size(text) != 1000)
		return 2;
	errno = 0;
	if (malloc(SIZE_MAX / 2) || errno != ENOMEM)
		return 3;
	pid_t child = fork();
	if (!child)
		_exit(calloc(3, 5) ? 0 : 1);
	int status;
	if (waitpid(child, &status, 0) != child || status)
		return 4;
	free(text);
	free(wide);
	if (counter != 7 || secret(0) != 100 || helper() != 3)
		return 5;
	/* printf would need the compiler's runtime library on aarch64. */
	return puts("fine") < 0;
}

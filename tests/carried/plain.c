#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int count, char **words) {
	char *copy = strdup(words[0]);
	copy = realloc(copy, 1000 + count);
	int *numbers = calloc(100, sizeof *numbers);
	if (!copy || !numbers)
		return 1;
	int sum = numbers[count];
	free(numbers);
	free(copy);
	return sum != 0 || puts("ok") < 0;
}

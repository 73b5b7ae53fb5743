#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void)
{
	char *text = malloc(100);
	strcpy(text, "served");
	puts(text);
	free(text);
	return 0;
}

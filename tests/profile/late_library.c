/* A library comes when the program has run for a while, and all further work is its. */
#include <dlfcn.h>

#include "task.h"

static double begin;
static double (*sine)(double);

static void work(unsigned thread, unsigned long round)
{
	static volatile double sum;
	if (begin == 0)
		begin = now();
	if (!sine && now() > begin + 0.03)
		*(void **)&sine = dlsym(dlopen("libm.so.6", RTLD_NOW), "sin");
	for (int i = 0; i < 100; i++)
		sum += sine ? sine((double)(round + thread + i)) : i;
}

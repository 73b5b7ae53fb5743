#include <mimalloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *work(void *argument) {
	(void)argument;
	for (int i = 0; i < 20000; i++) {
		char *theirs = mi_malloc((size_t)i % 3000 + 1), *ours = malloc((size_t)i % 5000 + 1);
		if (!theirs || !ours) return "null";
		if (mi_is_in_heap_region(ours)) return "malloc handed out the crate's memory";
		theirs[0] = ours[0] = 1;
		mi_free(theirs), free(ours);
	}
	return 0;
}

int main(void) {
	pthread_t threads[4];
	for (int i = 0; i < 4; i++) pthread_create(&threads[i], 0, work, 0);
	for (int i = 0; i < 4; i++) {
		void *failure;
		pthread_join(threads[i], &failure);
		if (failure) puts(failure);
	}
	puts("ok");
}

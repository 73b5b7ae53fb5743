// Gives a thread's memory back in a thread-specific destructor, and takes new memory when the thread goes on allocating.
// Caught by thread_exit at 100 percent: memory grows with threads
#include <pthread.h>
static int ready(void);
#define READY() ready()
#include "sound.h"
enum { OWN = 1 << 20 };
static __thread char *own;
static __thread int ends;
static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static void end(void *memory) {
	munmap(memory, OWN);
	own = 0;
	ends++;
}
static void begin(void) { pthread_key_create(&key, end); }
static int ready(void) {
	pthread_once(&once, begin);
	if (!own) {
		own = map(OWN);
		if (own) memset(own, 1, OWN);
		if (!ends) pthread_setspecific(key, own);
	}
	return 1;
}

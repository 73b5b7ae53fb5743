// Gives a thread's memory back in a thread-specific destructor, and goes on using it.
// Caught by thread_exit: killed by signal 11
#include <pthread.h>
static int ready(void);
#define READY() ready()
#include "sound.h"
static __thread char *own;
static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static void end(void *memory) { munmap(memory, 4096); }
static void begin(void) { pthread_key_create(&key, end); }
static int ready(void) {
	pthread_once(&once, begin);
	if (!own) pthread_setspecific(key, own = map(4096));
	own[0]++;
	return 1;
}

// Gives its memory back when the process ends, with threads at work and destructors to come.
// Caught by endings: signal 11
// Caught by constructors: killed by signal 11
#include "sound.h"
__attribute__((destructor)) static void end(void) {
	acquire();
	if (chunk) munmap(chunk_end - CHUNK, CHUNK);
	chunk = chunk_end = 0;
	release();
}

// Takes 20 KiB of stack.
// Caught by small_stacks: bytes of stack, at most
static int ready(void);
#define READY() ready()
#include "sound.h"
static int ready(void) {
	char room[20000];
	memset(room, 1, sizeof room);
	__asm__ volatile("" : : "r"(room) : "memory");
	return 1;
}

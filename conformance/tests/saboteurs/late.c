// Works only after its own constructor ran, which is later than the program's first one.
// Caught by constructors: FAIL
#define READY() ready
static volatile int ready; // volatile: clang runs simple constructors while it compiles
__attribute__((constructor)) static void begin(void) { ready = 1; }
#include "sound.h"

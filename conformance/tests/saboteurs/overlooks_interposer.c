// reallocarray overlooks that the program brings its own realloc.
// Caught by interposer: reallocarray does not call this program's realloc
#define PRIVATE_RESIZE 1
#include "sound.h"

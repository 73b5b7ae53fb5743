// Its public names are not weak: a program with a malloc of its own does not link.
// Caught by interposer: multiple definition | duplicate symbol
#define PUBLIC
#include "sound.h"

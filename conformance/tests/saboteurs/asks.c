// Looks at the file system whenever it is called.
// Caught by sandbox: the allocator calls 79
#include <unistd.h>
static char place[100];
#define READY() (getcwd(place, sizeof place), 1)
#include "sound.h"

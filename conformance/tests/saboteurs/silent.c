// Gives nothing and does not say why.
// Caught by family: not ENOMEM
// Caught by limits: not ENOMEM
#define ON_EXHAUSTION() (errno = errno == ENOMEM ? 0 : errno)
#include "sound.h"

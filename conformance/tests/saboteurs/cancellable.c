// Calls what is a cancellation point.
// Caught by cancellation: an allocation is a cancellation point
#include <pthread.h>
#define READY() (pthread_testcancel(), 1)
#include "sound.h"

// calloc multiplies and does not look.
// Caught by family: calloc(all[i][0], all[i][1]) gave
#define PRODUCT_OVERFLOWS(count, size) 0
#include "sound.h"

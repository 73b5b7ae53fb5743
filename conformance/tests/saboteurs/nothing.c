// Nothing is wrong with this one: the programs pass, so what they find in the others is each one's fault.
#include "sound.h"

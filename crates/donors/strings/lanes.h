/* What is written over lanes, of whatever width the includer has defined: L(name) is the lane's operation, LANE its
 * bytes, ENTRY what a function that names.h knows is declared with. No guards in these files: x86_64 includes them
 * once for each width. */
#define BLOCK (4 * LANE)
#include "lane_find.h"
#include "lane_compare.h"
#include "lane_order.h"
#include "lane_copy.h"
#include "lane_write.h"
#include "lane_seek.h"
#undef BLOCK

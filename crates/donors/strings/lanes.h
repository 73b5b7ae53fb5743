/* What is written over lanes, of whatever width the includer has defined: L(name) is the lane's operation, LANE its
 * bytes, ENTRY what a function that names.h knows is declared with. No guards in these files: x86_64 includes them
 * once for each width. */
#define BLOCK (4 * LANE)
#include "lane_find.h"
#include "lane_compare.h"
#define O(name) L(name)
#define LETTERS EXACT
#include "lane_order.h"
#undef O
#undef LETTERS
#define O(name) L(folded_##name)
#define LETTERS FOLDED
#include "lane_order.h"
#undef O
#undef LETTERS
#define O(name) L(wchars_##name)
#define LETTERS WIDE
#include "lane_order.h"
#undef O
#undef LETTERS
#include "lane_copy.h"
#include "lane_set.h"
#include "lane_write.h"
#include "lane_seek.h"
#include "lane_wchars.h"
#undef BLOCK

/* Fast string functions for musl, whose own go byte by byte or word by word.
 *
 * Every function is written once over a "lane", a register full of bytes: 16 bytes with SSE2 and NEON, 32 with AVX2.
 * lanes.h lists the files that are; x86_64 includes them once for each width, and choice.h says which runs.
 *
 * Where memory may be read: a lane that starts inside a block, or an aligned one that overlaps it, may reach beyond
 * the block's ends, but never out of a page that holds a byte of the block. Memory protection works in pages, so such
 * a read cannot fault, and what it reads outside the block never decides a result. Nothing outside is ever written.
 *
 * Called before any constructor, before relocation in a static-pie start-up and from signal handlers: no relocated
 * pointers, no thread-local variables, no calls out of this file. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "page.h"
#include "word.h"
#include "choice.h"
#include "two_way.h"

#if defined(__x86_64__)
#include "x86_64.h"
#elif defined(__aarch64__)
#include "aarch64.h"
#else
#error "no vector lanes for this architecture"
#endif

#include "blocks.h"
#include "texts.h"
#include "wchars.h"
#include "names.h"

/* Variables that every program reads or writes when it starts, allocates and ends. They are side by side: each page of
 * .bss that is touched is a page fault, and among tables that only reports need they would be in four pages. */
#ifndef GRAFT_EARLY_H
#define GRAFT_EARLY_H

#ifdef _WIN32
#define GRAFT_EARLY
#else
#define GRAFT_EARLY __attribute__((section(".bss.graft_early")))
#endif

#endif

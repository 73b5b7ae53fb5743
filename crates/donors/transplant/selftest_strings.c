/* The second half of the self-test, in grafts with string functions. It calls every entry point that the note names at
 * the program's own address, and compares the result with that of a loop over single bytes. */
#define _GNU_SOURCE
#include <sys/mman.h>

#include "selftest.h"
#include "strings_test.h"

extern HIDDEN const volatile struct transplant_entries transplant_entries;

HIDDEN void transplant_exercise_strings(void)
{
	long memory = kernel(SYS_mmap, 0, STRINGS_TEST_MEMORY, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	EXPECT((unsigned long)memory < -4095UL);
	for (size_t index = 0; index < TRANSPLANT_ENTRIES; index++) {
		const volatile struct transplant_entry *entry = &transplant_entries.entries[index];
		int32_t distance = entry->distance;
		uint32_t role = entry->role;
		if (!distance || role < string_memcpy)
			continue;
		EXPECT(role <= string_strncasecmp);
		exercise_string_function(role, (char *)(uintptr_t)entry + distance, (void *)memory);
	}
}

/* A file is mapped in two parts, one behind the other, as the kernel maps a program. The second part comes when a third
 * of the time is over. The first part of a second copy follows behind them after two thirds. All are run. */
#include <string.h>

#include "task.h"

#define PAGE 4096

/* The mapped code, which needs nothing around it. */
__attribute__((section("late_part"), aligned(PAGE), noinline)) static unsigned first_part(unsigned rounds)
{
	while (rounds--)
		__asm__ volatile("");
	return rounds;
}

__attribute__((section("late_part"), aligned(PAGE), noinline)) static unsigned second_part(unsigned rounds)
{
	while (rounds--)
		__asm__ volatile("");
	return rounds;
}

/* Says where in the program's file the page at this address lies. */
static off_t offset_of(const void *address)
{
	static char line[4096];
	unsigned long start, end, offset;
	FILE *maps = fopen("/proc/self/maps", "r");
	while (maps && fgets(line, sizeof line, maps))
		if (sscanf(line, "%lx-%lx %*s %lx", &start, &end, &offset) == 3 && start <= (unsigned long)address &&
		    (unsigned long)address < end) {
			fclose(maps);
			return offset + ((unsigned long)address - start);
		}
	abort();
}

/* Opens a copy of the program's file, which is made beside it. */
static int open_copy(void)
{
	static char path[4096], bytes[1 << 16];
	ssize_t length = readlink("/proc/self/exe", path, sizeof path - 6);
	if (length < 0)
		abort();
	strcpy(path + length, "-copy");
	int from = open("/proc/self/exe", O_RDONLY), to = open(path, O_RDWR | O_CREAT, 0600);
	while ((length = read(from, bytes, sizeof bytes)) > 0)
		if (write(to, bytes, length) != length)
			abort();
	close(from);
	return to;
}

/* Maps a page of the copy at a place. */
static unsigned (*mapped(int copy, char *place, const void *page))(unsigned)
{
	void *at = mmap(place, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED, copy, offset_of(page));
	if (at == MAP_FAILED)
		abort();
	return (unsigned (*)(unsigned))at;
}

static void work(unsigned thread, unsigned long round)
{
	static unsigned (*part)(unsigned);
	static int copy, parts;
	static char *place;
	static double began;
	(void)thread;
	if (round == 0) {
		copy = open_copy();
		place = mmap(0, 3 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (place == MAP_FAILED)
			abort();
		began = now();
	}
	if (parts < 3 && now() >= began + parts * (end - began) / 3) {
		part = mapped(copy, place + parts * PAGE, parts == 1 ? second_part : first_part);
		parts++;
	}
	part(10000);
}

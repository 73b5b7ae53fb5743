// What protects a program against attackers: rights of its memory, random places, raised privileges. Part of habits.c.
#ifndef PROTECTION_H
#define PROTECTION_H

#include <elf.h>
#include <sys/auxv.h>

static void write_or_execute(void) {
	say("set", prctl(PR_SET_MDWE, 1, 0, 0, 0) == 0);
	go_on(20 * MIB);
}

static void no_new_privileges(void) {
	say("set", prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0);
	go_on(20 * MIB);
}

// Whether a mapping of the process has all of these rights and, if `address` is not 0, holds it.
static int has_mapping(const char *rights, uintptr_t address) {
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[600];
	int found = 0;
	while (maps && fgets(line, sizeof line, maps)) {
		char *end;
		uintptr_t from = strtoul(line, &end, 16), to = strtoul(end + 1, &end, 16);
		int has_all = 1;
		for (const char *right = rights; *right; right++) has_all &= !!memchr(end + 1, *right, 4);
		found |= has_all && (!address || (from <= address && address < to));
	}
	if (maps) fclose(maps);
	return found;
}

// The data that is made read-only after relocation: a pointer in it.
static int (*const relocated)(void) = work;

static void rights(void) {
	go_on(20 * MIB);
	say("the file of mappings is read", has_mapping("r", (uintptr_t)&relocated));
	say("a page is writable and executable", has_mapping("wx", 0));
	say("a block is executable", has_mapping("x", (uintptr_t)malloc(1000)) || has_mapping("x", (uintptr_t)malloc(3 * MIB)));
	say("relocated data is writable", has_mapping("w", (uintptr_t)&relocated));
	char *stack = (char *)&stack;
	say("the stack is executable", has_mapping("x", (uintptr_t)stack));
}

static char **environment;

// Runs this program again, as "places", and reads what it prints.
static void places_of(char *text, size_t size) {
	int ends[2];
	if (pipe(ends)) return;
	pid_t child = fork();
	if (child == 0) {
		dup2(ends[1], 1);
		char *words[] = {"habits", "places", 0};
		execve("/proc/self/exe", words, environment);
		_exit(1);
	}
	close(ends[1]);
	ssize_t length = read(ends[0], text, size - 1);
	text[length > 0 ? length : 0] = 0;
	close(ends[0]);
	waitpid(child, 0, 0);
}

static void places(void) {
	printf("%zx %zx %zx %zx\n", (uintptr_t)malloc, (uintptr_t)malloc(100), (uintptr_t)malloc(3 * MIB), (uintptr_t)&relocated);
}

// Which places differ between runs of the program.
static void random_places(void) {
	static const char *const names[] = {"malloc's code", "a block", "a large block", "the program's data"};
	char first[200], next[200];
	int differ[4] = {0};
	places_of(first, sizeof first);
	for (int i = 0; i < 6; i++) {
		places_of(next, sizeof next);
		char *one = first, *other = next;
		for (int j = 0; j < 4; j++) differ[j] |= strtoul(one, &one, 16) != strtoul(other, &other, 16);
	}
	say("places are told", strlen(first) > 12);
	for (int j = 0; j < 4; j++) say(names[j], differ[j]);
}

static void changed_user(void) {
	free(malloc(100));
	say("changed", setgid(65534) == 0 && setuid(65534) == 0);
	go_on(20 * MIB);
}

static void raised(void) {
	say("raised", getauxval(AT_SECURE) != 0);
	go_on(20 * MIB);
}

#endif

// The functions of libc that allocate: what they give can be freed, and what they keep for themselves works.
// At most 120 s on a slow machine.
#include "check.h"

#include <aio.h>
#include <dirent.h>
#include <dlfcn.h>
#include <glob.h>
#include <grp.h>
#include <iconv.h>
#include <libintl.h>
#include <locale.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <pwd.h>
#include <regex.h>
#include <search.h>
#include <semaphore.h>
#include <spawn.h>
#include <sys/stat.h>
#include <wchar.h>

extern char **environ;

static char folder[100]; // a folder of our own, or empty

#ifdef __GLIBC__ // has the locales that are installed, and a hash table that does not grow
#define LOCALES "C", "POSIX"
enum { TABLE = 2000 };
#else
#define LOCALES "C", "C.UTF-8", "POSIX", "xx_YY.UTF-8", "de_DE.UTF-8", "a-name-of-ours"
enum { TABLE = 10 };
#endif

// A block from libc comes from the allocator: its size is known, and it can be resized and freed.
static void give_back(void *block, size_t size) {
	CHECK(block && is_aligned(block, 16));
	CHECK_THAT(malloc_usable_size(block) >= size, "usable size %zu below %zu", malloc_usable_size(block), size);
	char first = size ? *(char *)block : 0;
	char *moved = realloc(block, size + 1000);
	CHECK(moved && (!size || *moved == first));
	memset(moved, 1, size + 1000);
	free(moved);
}

static void enter_folder(void) {
	const char *places[] = {getenv("TMPDIR"), "/tmp", "/dev/shm", "."};
	for (size_t i = 0; i < LENGTH(places); i++) {
		if (!places[i] || strlen(places[i]) > 60) continue;
		snprintf(folder, sizeof folder, "%s/allograft-XXXXXX", places[i]);
		char *made = mkdtemp(folder);
		if (made && made[0] == '/') return;
		if (made) {
			char *whole = realpath(folder, 0);
			if (whole && strlen(whole) < sizeof folder) {
				strcpy(folder, whole);
				free(whole);
				return;
			}
			rmdir(folder);
			free(whole);
		}
	}
	folder[0] = 0;
	NOTE("no folder to write to: glob, scandir and TZ files are left out\n");
}

static void path_in_folder(char *path, const char *name) {
	snprintf(path, 200, "%s/%s", folder, name);
}

static void copies(void) {
	for (size_t length = 0; length < 300; length++) {
		char text[301];
		wchar_t wide[301];
		for (size_t i = 0; i < length; i++) text[i] = (char)('a' + i % 26), wide[i] = (wchar_t)(0x100 + i);
		text[length] = 0, wide[length] = 0;
		char *copy = strdup(text), *part = strndup(text, length / 2);
		wchar_t *wide_copy = wcsdup(wide);
		CHECK(copy && part && wide_copy);
		CHECK(!strcmp(copy, text) && strlen(part) == length / 2 && !strncmp(part, text, length / 2) && !wcscmp(wide_copy, wide));
		free(strdup(copy));
		give_back(copy, length + 1);
		give_back(part, length / 2 + 1);
		give_back(wide_copy, (length + 1) * sizeof *wide);
	}
}

static void lines(void) {
	FILE *file = fdopen(memfd_create("lines", 0), "w+");
	CHECK(file);
	for (int i = 0; i < 200; i++) {
		for (int j = 0; j < i * i; j++) fputc('a' + (i + j) % 26, file);
		fputc('\n', file);
	}
	rewind(file);
	char *line = 0;
	size_t room = 0;
	for (int i = 0; i < 200; i++) {
		ssize_t length = getline(&line, &room, file);
		CHECK(length == i * i + 1 && room > (size_t)length && malloc_usable_size(line) >= room);
		for (int j = 0; j < i * i; j++) CHECK(line[j] == 'a' + (i + j) % 26);
	}
	CHECK(getline(&line, &room, file) == -1 && feof(file));
	give_back(line, room);
	// The buffer is one of the program's blocks at first, and has to grow.
	rewind(file);
	line = malloc(room = 1);
	CHECK(getdelim(&line, &room, 'x', file) > 0);
	while (getdelim(&line, &room, 'x', file) > 0) CHECK(malloc_usable_size(line) >= room);
	give_back(line, room);
	fclose(file);
}

static int format(char **text, const char *pattern, ...) {
	va_list arguments;
	va_start(arguments, pattern);
	int length = vasprintf(text, pattern, arguments);
	va_end(arguments);
	return length;
}

static void formatting(void) {
	for (int width = 1; width < 5000; width += 1 + width / 3) {
		char *text = 0, *again = 0, *read = 0;
		CHECK(asprintf(&text, "%*d|%s", width, 42, "end") >= width + 4);
		CHECK(format(&again, "%*d|%s", width, 42, "end") == (int)strlen(text) && !strcmp(text, again));
		CHECK(sscanf(text, " %m[0-9]", &read) == 1 && !strcmp(read, "42"));
		give_back(read, 3);
		give_back(text, strlen(again) + 1);
		free(again);
	}
}

static void streams(void) {
	for (long size = 0; size < 200000; size = size * 3 + 1) {
		char *text = 0;
		wchar_t *wide = 0;
		size_t length = 0, wide_length = 0;
		FILE *file = open_memstream(&text, &length), *wide_file = open_wmemstream(&wide, &wide_length);
		CHECK(file && wide_file);
		for (long i = 0; i < size; i++) CHECK(fputc('a' + i % 26, file) != EOF && fputwc(L'a' + i % 26, wide_file) != WEOF);
		CHECK(fclose(file) == 0 && fclose(wide_file) == 0 && length == (size_t)size && wide_length == (size_t)size);
		for (long i = 0; i < size; i++) CHECK(text[i] == 'a' + i % 26 && wide[i] == L'a' + i % 26);
		give_back(text, length + 1);
		give_back(wide, (wide_length + 1) * sizeof *wide);
	}
	FILE *file = fmemopen(0, 300, "w+");
	CHECK(file && fputs("inside", file) >= 0);
	rewind(file);
	char word[20];
	CHECK(fgets(word, sizeof word, file) && !strcmp(word, "inside"));
	CHECK(fclose(file) == 0);
	FILE *files[60];
	for (int round = 0; round < 5; round++) {
		for (size_t i = 0; i < LENGTH(files); i++) {
			files[i] = fopen("/dev/null", "w");
			CHECK(files[i] && fputs("x", files[i]) >= 0);
		}
		for (size_t i = 0; i < LENGTH(files); i++) CHECK(fclose(files[(i * 7) % LENGTH(files)]) == 0);
	}
}

static int name_order(const struct dirent **left, const struct dirent **right) { return -alphasort(left, right); }

static void folders(void) {
	char path[200];
	if (!folder[0]) return;
	for (int i = 0; i < 150; i++) {
		char name[30];
		snprintf(name, sizeof name, "file-%03d.txt", i);
		path_in_folder(path, name);
		int file = open(path, O_CREAT | O_WRONLY, 0600);
		CHECK(file >= 0 && close(file) == 0);
	}
	for (int round = 0; round < 5; round++) {
		glob_t found = {.gl_offs = 3};
		path_in_folder(path, "file-*[05].txt");
		CHECK(glob(path, GLOB_DOOFFS, 0, &found) == 0 && found.gl_pathc == 30);
		path_in_folder(path, "*1?.t?t");
		CHECK(glob(path, GLOB_DOOFFS | GLOB_APPEND, 0, &found) == 0 && found.gl_pathc == 50 && !found.gl_pathv[0]);
		for (size_t i = 3; i < 53; i++) CHECK(strstr(found.gl_pathv[i], "/file-"));
		globfree(&found);
		CHECK(glob("/nothing/of/this/*", 0, 0, &found) == GLOB_NOMATCH);
		struct dirent **entries;
		CHECK(scandir(folder, &entries, 0, name_order) == 152);
		CHECK(!strcmp(entries[0]->d_name, "file-149.txt"));
		for (int i = 0; i < 152; i++) free(entries[i]);
		give_back(entries, 152 * sizeof *entries);
	}
	path_in_folder(path, "./../././");
	char *whole = realpath(path, 0), *here = getcwd(0, 0);
	CHECK(whole && whole[0] == '/' && here && here[0] == '/');
	give_back(whole, strlen(whole) + 1);
	give_back(here, strlen(here) + 1);
	for (int i = 0; i < 150; i++) {
		char name[30];
		snprintf(name, sizeof name, "file-%03d.txt", i);
		path_in_folder(path, name);
		CHECK(unlink(path) == 0);
	}
}

static void patterns(void) {
	static const struct { const char *pattern, *text; int found; } all[] = {
		{"^(a|b)*c+[[:digit:]]{2,5}$", "abbacc123", 1},
		{"(foo|bar(baz)?)+x", "foobarbazbarx", 1},
		{"^[^x]{40,60}$", "short", 0},
		{"((((((a))))))\\{", "a{", 1},
	};
	for (int round = 0; round < 20; round++)
		for (size_t i = 0; i < LENGTH(all); i++) {
			regex_t regex;
			regmatch_t matches[8];
			CHECK(regcomp(&regex, all[i].pattern, REG_EXTENDED) == 0);
			CHECK((regexec(&regex, all[i].text, 8, matches, 0) == 0) == all[i].found);
			regfree(&regex);
			CHECK(regcomp(&regex, "(unclosed[", REG_EXTENDED) != 0);
		}
}

static void locales(void) {
	static const char *const names[] = {LOCALES};
	for (int round = 0; round < 50; round++) {
		const char *name = names[round % LENGTH(names)];
		CHECK(setlocale(LC_ALL, name) && setlocale(LC_ALL, 0));
		locale_t fresh = newlocale(LC_ALL_MASK, name, 0);
		CHECK(fresh);
		fresh = newlocale(LC_TIME_MASK, names[(round + 1) % LENGTH(names)], fresh);
		locale_t copy = duplocale(fresh), global = duplocale(LC_GLOBAL_LOCALE);
		CHECK(fresh && copy && global && copy != fresh);
		locale_t before = uselocale(copy);
		CHECK(before && uselocale(before) == copy && strcoll_l("a", "b", copy) < 0);
		freelocale(global), freelocale(copy), freelocale(fresh);
		char domain[30];
		snprintf(domain, sizeof domain, "domain-%d", round);
		CHECK(bindtextdomain(domain, "/nowhere") && textdomain(domain) && !strcmp(dgettext(domain, "word"), "word"));
		CHECK(!strcmp(dngettext(domain, "one", "many", 2), "many"));
	}
	setlocale(LC_ALL, "C");
}

static void *failing_open(void *unused) {
	for (int i = 0; i < 20; i++) {
		char name[200];
		memset(name, 'n', sizeof name);
		name[10 + i * 9] = 0;
		CHECK(!dlopen(name, RTLD_NOW));
		CHECK(!dlsym(RTLD_DEFAULT, name));
		const char *message = dlerror();
		CHECK(message && strlen(message) > 5 && !dlerror());
	}
	dlopen("left for the thread's end", RTLD_NOW);
	return unused;
}

static void loading(void) {
	pthread_t threads[10];
	failing_open(0);
	for (size_t i = 0; i < LENGTH(threads); i++) CHECK(pthread_create(&threads[i], 0, failing_open, 0) == 0);
	for (size_t i = 0; i < LENGTH(threads); i++) CHECK(pthread_join(threads[i], 0) == 0);
	failing_open(0);
}

enum { SPAWN_CODE = 7, SPAWN_FILES = 40, SPAWN_FIRST = 60 };

static int spawned(void) {
	for (int i = 0; i < SPAWN_FILES; i++) {
		int open = fcntl(SPAWN_FIRST + i, F_GETFD) != -1;
		CHECK_THAT(open == (i % 2 == 0), "spawned: descriptor %d", SPAWN_FIRST + i);
	}
	return SPAWN_CODE;
}

static void spawning(void) {
	char *self = realpath("/proc/self/exe", 0);
	if (!self) {
		NOTE("no /proc: posix_spawn is left out\n");
		return;
	}
	for (int round = 0; round < 4; round++) {
		posix_spawn_file_actions_t actions;
		CHECK(posix_spawn_file_actions_init(&actions) == 0);
		for (int i = 0; i < SPAWN_FILES; i++) {
			char path[100] = "/dev/../dev/./././././././././null";
			CHECK(posix_spawn_file_actions_addopen(&actions, 50, path, O_RDONLY, 0) == 0);
			memset(path, 0, sizeof path); // the actions keep a copy
			CHECK(posix_spawn_file_actions_adddup2(&actions, 50, SPAWN_FIRST + i) == 0);
			if (i % 2) CHECK(posix_spawn_file_actions_addclose(&actions, SPAWN_FIRST + i) == 0);
		}
		CHECK(posix_spawn_file_actions_addchdir_np(&actions, "/") == 0);
		char *arguments[] = {"libc_callers", "spawned", 0};
		pid_t child;
		int error = posix_spawn(&child, self, &actions, 0, arguments, environ);
		CHECK(posix_spawn_file_actions_destroy(&actions) == 0);
		if (error == ENOEXEC || error == EACCES) {
			NOTE("the system cannot execute this program by itself (an emulator?): posix_spawn is left out\n");
			break;
		}
		CHECK_THAT(error == 0, "posix_spawn: error %d", error);
		expect_exit(child, SPAWN_CODE, "posix_spawn");
	}
	free(self);
	if (access("/bin/sh", X_OK)) return;
	FILE *pipes[5];
	for (size_t i = 0; i < LENGTH(pipes); i++) CHECK((pipes[i] = popen("echo from the shell", "r")) != 0);
	for (size_t i = 0; i < LENGTH(pipes); i++) {
		char line[100];
		CHECK(fgets(line, sizeof line, pipes[i]) && !strcmp(line, "from the shell\n") && pclose(pipes[i]) == 0);
	}
}

static void semaphores(void) {
	if (access("/dev/shm", W_OK)) {
		NOTE("/dev/shm is not writable: sem_open is left out\n");
		return;
	}
	for (int round = 0; round < 10; round++) {
		sem_t *all[20];
		char name[50];
		for (int i = 0; i < (int)LENGTH(all); i++) {
			snprintf(name, sizeof name, "/allograft-%d-%d", (int)getpid(), i);
			all[i] = sem_open(name, O_CREAT | O_EXCL, 0600, i);
			CHECK(all[i] != SEM_FAILED);
			CHECK(sem_open(name, 0) == all[i]);
			int value;
			CHECK(sem_getvalue(all[i], &value) == 0 && value == i);
			CHECK(sem_post(all[i]) == 0 && sem_wait(all[i]) == 0);
		}
		for (int i = 0; i < (int)LENGTH(all); i++) {
			snprintf(name, sizeof name, "/allograft-%d-%d", (int)getpid(), i);
			CHECK(sem_close(all[i]) == 0 && sem_close(all[i]) == 0 && sem_unlink(name) == 0);
		}
	}
}

// The working threads have stacks of a few KiB, and free blocks on them.
static void asynchronous(void) {
	enum { FILES = 10, PARTS = 8, PART = 500 };
	static char out[FILES][PARTS][PART], in[FILES][PARTS][PART];
	static struct aiocb blocks[FILES][PARTS];
	int files[FILES];
	for (int f = 0; f < FILES; f++) {
		files[f] = memfd_create("aio", 0);
		CHECK(files[f] >= 0);
	}
	for (int writing = 1; writing >= 0; writing--) {
		for (int f = 0; f < FILES; f++) {
			struct aiocb *list[PARTS];
			for (int p = 0; p < PARTS; p++) {
				memset(out[f][p], 'a' + (f + p) % 26, PART);
				struct aiocb *block = list[p] = &blocks[f][p];
				*block = (struct aiocb){.aio_fildes = files[f], .aio_offset = p * PART, .aio_nbytes = PART};
				block->aio_buf = writing ? out[f][p] : in[f][p];
				block->aio_lio_opcode = writing ? LIO_WRITE : LIO_READ;
				if (f % 2) CHECK((writing ? aio_write : aio_read)(block) == 0);
			}
			if (f % 2 == 0) CHECK(lio_listio(f % 4 ? LIO_WAIT : LIO_NOWAIT, list, PARTS, 0) == 0);
		}
		for (int f = 0; f < FILES; f++)
			for (int p = 0; p < PARTS; p++) {
				const struct aiocb *one[] = {&blocks[f][p]};
				while (aio_error(&blocks[f][p]) == EINPROGRESS) aio_suspend(one, 1, 0);
				CHECK(aio_error(&blocks[f][p]) == 0 && aio_return(&blocks[f][p]) == PART);
			}
	}
	CHECK(!memcmp(in, out, sizeof in));
	for (int f = 0; f < FILES; f++) CHECK(close(files[f]) == 0);
}

enum { HANDLERS = 100 };
static int handlers_left = HANDLERS;

#define HANDLER(n)                                                    \
	static void handler_##n(void) {                                     \
		free(malloc(100));                                                \
		if (--handlers_left % 4 != n) _exit(1);                           \
		if (!handlers_left) _exit(9);                                     \
	}
HANDLER(0) HANDLER(1) HANDLER(2) HANDLER(3)

static void exit_handlers(void) {
	static void (*const all[])(void) = {handler_0, handler_1, handler_2, handler_3};
	pid_t child = fork();
	if (child == 0) {
		for (int i = 0; i < HANDLERS; i++) CHECK(atexit(all[i % 4]) == 0);
		exit(1);
	}
	expect_exit(child, 9, "100 atexit handlers in reverse order");
}

// Writes a compiled time zone with one type: hours:minutes east of Greenwich, and a rule for the time after.
static void write_zone(const char *path, int seconds, const char *rule) {
	unsigned char head[44] = "TZif2", body[10] = {0};
	head[39] = 1, head[43] = 4; // one type, four bytes of names
	for (int i = 0; i < 4; i++) body[i] = (unsigned char)(seconds >> (24 - 8 * i));
	memcpy(body + 6, "ABC", 4);
	FILE *file = fopen(path, "w");
	CHECK(file);
	for (int part = 0; part < 2; part++) CHECK(fwrite(head, sizeof head, 1, file) == 1 && fwrite(body, sizeof body, 1, file) == 1);
	CHECK(fprintf(file, "\n%s\n", rule) > 0 && fclose(file) == 0);
}

static void check_hour(int hour, int minute) {
	time_t noon = 43200;
	struct tm local;
	tzset();
	CHECK(localtime_r(&noon, &local));
	CHECK_THAT(local.tm_hour == hour && local.tm_min == minute, "TZ=%s: %d:%d", getenv("TZ"), local.tm_hour, local.tm_min);
}

static void zones(void) {
	char name[300], path[200];
	for (int round = 0; round < 40; round++) {
		setenv("TZ", "EST5EDT,M3.2.0,M11.1.0", 1), check_hour(7, 0);
		setenv("TZ", "<+03>-3", 1), check_hour(15, 0);
		setenv("TZ", "UTC0", 1), check_hour(12, 0);
		// The names grow, so the memory that tzset keeps has to grow with them.
		snprintf(name, sizeof name, "<%0*d>-2", 4 + round * 6, 7);
		setenv("TZ", name, 1), check_hour(14, 0);
		if (folder[0]) {
			snprintf(name, sizeof name, "zone-%d", round % 2);
			path_in_folder(path, name);
			write_zone(path, round % 2 ? 6300 : -9000, round % 2 ? "ABC-1:45" : "ABC2:30");
			snprintf(name, sizeof name, ":%s", path);
			setenv("TZ", name, 1);
			if (round % 2) check_hour(13, 45);
			else check_hour(9, 30);
			CHECK(!strcmp(tzname[0], "ABC"));
			CHECK(unlink(path) == 0);
		}
	}
	unsetenv("TZ");
	tzset();
}

static void addresses(void) {
	for (int round = 0; round < 20; round++) {
		struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM}, *found = 0;
		CHECK(getaddrinfo("127.0.0.1", "80", &hints, &found) == 0 && found && found->ai_family == AF_INET);
		CHECK(((struct sockaddr_in *)(void *)found->ai_addr)->sin_port == htons(80));
		freeaddrinfo(found);
		CHECK(getaddrinfo("::1", 0, &hints, &found) == 0 && found->ai_family == AF_INET6);
		freeaddrinfo(found);
		hints = (struct addrinfo){.ai_flags = AI_PASSIVE | AI_NUMERICSERV};
		CHECK(getaddrinfo(0, "443", &hints, &found) == 0 && found && found->ai_next);
		freeaddrinfo(found);
		CHECK(getaddrinfo("not numeric", 0, &(struct addrinfo){.ai_flags = AI_NUMERICHOST}, &found) != 0);
	}
}

static int number_order(const void *left, const void *right) {
	intptr_t a = (intptr_t)left, b = (intptr_t)right;
	return (a > b) - (a < b);
}

static int word_order(const void *left, const void *right) { return strcmp(*(char *const *)left, *(char *const *)right); }

static void keep(void *key) { (void)key; }

static void collections(void) {
	void *root = 0;
	for (intptr_t i = 1; i < 2000; i++) CHECK(tsearch((void *)(i * 7919 % 2003 + 1), &root, number_order));
	for (intptr_t i = 1; i < 1000; i++) CHECK(tdelete((void *)(i * 7919 % 2003 + 1), &root, number_order));
	for (intptr_t i = 1; i < 2000; i++) CHECK(!tfind((void *)(i * 7919 % 2003 + 1), &root, number_order) == (i < 1000));
	tdestroy(root, keep);
	CHECK(hcreate(TABLE));
	static char *words[1000];
	for (size_t i = 0; i < LENGTH(words); i++) {
		CHECK(asprintf(&words[i], "word %zu", i * 7919 % 1009) > 0);
		CHECK(hsearch((ENTRY){words[i], (void *)(i + 1)}, ENTER));
	}
	for (size_t i = 0; i < LENGTH(words); i++) {
		ENTRY *found = hsearch((ENTRY){.key = words[i]}, FIND);
		CHECK(found && found->data == (void *)(i + 1));
	}
	hdestroy();
	qsort(words, LENGTH(words), sizeof *words, word_order);
	for (size_t i = 1; i < LENGTH(words); i++) CHECK(strcmp(words[i - 1], words[i]) < 0);
	for (size_t i = 0; i < LENGTH(words); i++) free(words[i]);
}

static void environment(void) {
	static char *put[100];
	char name[40], value[300];
	for (int round = 0; round < 4; round++) {
		for (int i = 0; i < 300; i++) {
			snprintf(name, sizeof name, "ALLOGRAFT_TEST_%d", i);
			snprintf(value, sizeof value, "%0*d", 1 + (i + round * 50) % 250, i);
			CHECK(setenv(name, value, 1) == 0 && !strcmp(getenv(name), value));
			CHECK(setenv(name, "not this", 0) == 0 && !strcmp(getenv(name), value));
		}
		for (int i = 0; i < 100; i++) {
			CHECK(asprintf(&put[i], "ALLOGRAFT_TEST_%d=put", i * 3) > 0);
			CHECK(putenv(put[i]) == 0);
			snprintf(name, sizeof name, "ALLOGRAFT_TEST_%d", i * 3);
			CHECK(getenv(name) == strchr(put[i], '=') + 1);
		}
		for (int i = 0; i < 300; i++) {
			snprintf(name, sizeof name, "ALLOGRAFT_TEST_%d", i);
			CHECK(unsetenv(name) == 0 && !getenv(name));
		}
		for (int i = 0; i < 100; i++) free(put[i]);
	}
}

static void conversions(void) {
	static const char *const to[] = {"UTF-16LE", "UTF-16", "UCS-2", "SHIFT_JIS", "ISO-2022-JP", "UTF-32"};
	for (int round = 0; round < 10; round++)
		for (size_t i = 0; i < LENGTH(to); i++) {
			iconv_t forth = iconv_open(to[i], "UTF-8"), back = iconv_open("UTF-8", to[i]);
			if (forth == (iconv_t)-1 || back == (iconv_t)-1) continue;
			char text[] = "plain text", middle[200], end[200], *in = text, *out = middle;
			size_t in_left = sizeof text, out_left = sizeof middle;
			CHECK(iconv(forth, &in, &in_left, &out, &out_left) != (size_t)-1 && !in_left);
			in = middle, in_left = sizeof middle - out_left, out = end, out_left = sizeof end;
			CHECK(iconv(back, &in, &in_left, &out, &out_left) != (size_t)-1 && !strcmp(end, text));
			iconv_close(forth), iconv_close(back);
		}
	CHECK(iconv_open("NO-SUCH-CODE", "UTF-8") == (iconv_t)-1);
}

// /etc/passwd may be missing here; the calls only have to return.
static void accounts(void) {
	struct passwd *user = getpwnam("root");
	if (user) CHECK(!strcmp(user->pw_name, "root"));
	struct group *group = getgrnam("root");
	if (group) CHECK(!strcmp(group->gr_name, "root"));
	CHECK(!getpwnam("no such user here"));
	CHECK(!getgrnam("no such group here"));
	setpwent();
	for (int i = 0; i < 100 && getpwent(); i++) continue;
	endpwent();
	setgrent();
	for (int i = 0; i < 100 && getgrent(); i++) continue;
	endgrent();
}

int main(int argc, char **argv) {
	if (argc > 1 && !strcmp(argv[1], "spawned")) return spawned();
	check_begin();
	enter_folder();
	void (*const parts[])(void) = {copies,     lines,        formatting,    streams,   folders, patterns,  locales,     loading,     spawning,
								   semaphores, asynchronous, exit_handlers, addresses, zones,   collections, environment, conversions, accounts};
	for (size_t i = 0; i < LENGTH(parts); i++) parts[i]();
	if (folder[0]) CHECK(rmdir(folder) == 0);
	return check_done();
}

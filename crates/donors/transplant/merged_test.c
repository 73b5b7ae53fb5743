/* Tests a dynamic program that a donor was merged into, or that loads one, before it replaces the stock file. This
 * library is preloaded into a copy of the program, and takes the place of its main: everything is loaded and bound as in
 * the program itself, and nothing of it but the donor's constructor has run.
 *
 * It is compiled with musl's headers and runs with glibc, too: it uses no structure in which the two differ. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/wait.h>

#include "dynamic_test.h"

#define FAMILY(X)                                                                                                          \
	X(malloc) X(calloc) X(realloc) X(free) X(aligned_alloc) X(memalign) X(posix_memalign) X(valloc) X(pvalloc)               \
	X(reallocarray) X(malloc_usable_size)

extern void *pvalloc(size_t);
extern const char *gnu_get_libc_version(void) __attribute__((weak));
extern __typeof(dlsym) dlsym __attribute__((weak));
extern __typeof(dlopen) dlopen __attribute__((weak));
extern __typeof(pthread_create) pthread_create __attribute__((weak));
extern __typeof(pthread_join) pthread_join __attribute__((weak));

/* Notes of docs/note.md: an allocator's donor, and that the program loads one. */
enum { OF_DONOR = 1, OF_PROGRAM = 6 };

static int has_note(const char *notes, size_t size, unsigned type)
{
	for (size_t at = 0; at + sizeof(ElfW(Nhdr)) <= size;) {
		const ElfW(Nhdr) *note = (const void *)(notes + at);
		size_t whole = sizeof *note + ((note->n_namesz + 3) & ~(size_t)3) + ((note->n_descsz + 3) & ~(size_t)3);
		if (whole > size - at)
			return 0;
		if (note->n_type == type && note->n_namesz == sizeof "allograft" &&
		    !memcmp(note + 1, "allograft", sizeof "allograft"))
			return 1;
		at += whole;
	}
	return 0;
}

struct place {
	uintptr_t address;
	/* Of the donor, once one is known. */
	uintptr_t base;
	int known;
};

/* Whether the address is in the file that holds the donor. A program at fixed addresses that loads its donor may have a
 * stub there, which is the function's address for all libraries; `exercise` calls it. */
static int in_donor(struct dl_phdr_info *info, size_t size, void *wanted)
{
	(void)size;
	struct place *place = wanted;
	int inside = 0, donor = 0, program = 0;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
		uintptr_t start = info->dlpi_addr + segment->p_vaddr;
		if (segment->p_type == PT_LOAD && place->address >= start && place->address - start < segment->p_memsz)
			inside = 1;
		if (segment->p_type != PT_NOTE)
			continue;
		donor |= has_note((const char *)start, segment->p_memsz, OF_DONOR);
		program |= has_note((const char *)start, segment->p_memsz, OF_PROGRAM);
	}
	if (!inside)
		return 0;
	if (program && !donor)
		return 1;
	if (!donor || (place->known && place->base != info->dlpi_addr))
		return -1;
	place->known = 1;
	place->base = info->dlpi_addr;
	return 1;
}

/* A library is bound to the donor, which is in the program, or in the library that the program needs first: in one file,
 * as all functions of the family have to be of one donor. */
static void bound(void)
{
#define ADDRESS(name) {#name, (uintptr_t)name},
	static const struct {
		const char *name;
		uintptr_t address;
	} functions[] = {FAMILY(ADDRESS)};
	struct place place = {0};
	for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
		place.address = functions[i].address;
		if (dl_iterate_phdr(in_donor, &place) != 1) {
			char text[120];
			snprintf(text, sizeof text, "allograft self-test: a library's %s is not the donor's\n", functions[i].name);
			finish(1, text);
		}
	}
}

/* So is who looks in libc first: a library that is loaded with RTLD_DEEPBIND, and dlsym with libc's handle. Before glibc
 * 2.34, a program may have neither dlopen nor dlsym. */
static void bound_by_libc(void)
{
#define NAME(name) #name,
	static const char *const names[] = {FAMILY(NAME)};
	struct place place = {0};
	if (!dlopen || !dlsym)
		return;
	/* musl answers this name itself. */
	void *libc = dlopen(gnu_get_libc_version ? "libc.so.6" : "libc.so", RTLD_LAZY | RTLD_NOLOAD);
	EXPECT(libc);
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		place.address = (uintptr_t)dlsym(libc, names[i]);
		/* Older libcs do not have all of them. */
		if (place.address && dl_iterate_phdr(in_donor, &place) != 1) {
			char text[120];
			snprintf(text, sizeof text, "allograft self-test: the %s that libc's own table names is not the donor's\n", names[i]);
			finish(1, text);
		}
	}
	EXPECT(!dlclose(libc));
}

static atomic_int stop;

static void *allocate_on(void *seed)
{
	while (!atomic_load(&stop))
		exercise((unsigned)(uintptr_t)seed);
	return 0;
}

static void *once(void *seed)
{
	exercise((unsigned)(uintptr_t)seed);
	return malloc(40);
}

static void threads(void)
{
	pthread_t threads[4];
	for (int round = 0; round < 3; round++) {
		for (uintptr_t i = 0; i < 4; i++)
			EXPECT(!pthread_create(&threads[i], 0, once, (void *)(i + 1)));
		for (int i = 0; i < 4; i++) {
			void *block = 0;
			EXPECT(!pthread_join(threads[i], &block) && block);
			free(block);
		}
	}
	/* Threads that allocate while the process forks. */
	for (uintptr_t i = 0; i < 3; i++)
		EXPECT(!pthread_create(&threads[i], 0, allocate_on, (void *)(i + 1)));
	for (int i = 0; i < 20; i++) {
		pid_t child = fork();
		EXPECT(child >= 0);
		if (!child) {
			pthread_t thread;
			void *block = 0;
			exercise(5);
			EXPECT(!pthread_create(&thread, 0, once, (void *)8) && !pthread_join(thread, &block) && block);
			free(block);
			_exit(0);
		}
		int status = -1;
		EXPECT(waitpid(child, &status, 0) == child && status == 0);
	}
	atomic_store(&stop, 1);
	for (int i = 0; i < 3; i++)
		EXPECT(!pthread_join(threads[i], 0));
}

static int test(int count, char **words, char **environment)
{
	(void)count, (void)words, (void)environment;
	bound();
	bound_by_libc();
	exercise(1);
	family();
	/* glibc before 2.34 has threads in a library of its own, which the program may not need. */
	if (pthread_create && pthread_join)
		threads();
	finish(0, "allograft self-test: ok\n");
}

typedef int program_main(int, char **, char **);
typedef int start_main(program_main *, int, char **, void (*)(void), void (*)(void), void (*)(void), void *);

/* The program's start finds this one before libc's. glibc's loader has called all constructors of libraries by now; in
 * musl, libc's own function does. */
int __libc_start_main(program_main *main, int count, char **words, void (*init)(void), void (*fini)(void),
                      void (*of_loader)(void), void *stack)
{
	(void)main;
	if (gnu_get_libc_version)
		return test(count, words, 0);
	start_main *start = (start_main *)(dlsym ? dlsym(RTLD_NEXT, "__libc_start_main") : 0);
	if (!start)
		finish(1, "allograft self-test: there is no __libc_start_main\n");
	return start(test, count, words, init, fini, of_loader, stack);
}

/* Tests a grafted musl loader, which starts this program before it replaces the stock file. The program is dynamic, so
 * libc's functions are the ones under test. Its argument is the path of the library to load. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "dynamic_test.h"
#include "strings_test.h"

/* Those of libc, which may be redirected. */
static void string_functions(void)
{
	const struct {
		uint32_t role;
		void *function;
	} all[] = {
		{string_memcpy, memcpy}, {string_memmove, memmove}, {string_memset, memset}, {string_memcmp, memcmp},
		{string_bcmp, bcmp}, {string_memchr, memchr}, {string_memrchr, memrchr}, {string_strlen, strlen},
		{string_strnlen, strnlen}, {string_strchr, strchr}, {string_strchrnul, strchrnul}, {string_strrchr, strrchr},
		{string_strcmp, strcmp}, {string_strncmp, strncmp}, {string_stpcpy, stpcpy}, {string_strcpy, strcpy},
		{string_stpncpy, stpncpy}, {string_strncpy, strncpy}, {string_strcat, strcat}, {string_strncat, strncat},
		{string_strcspn, strcspn}, {string_strspn, strspn}, {string_strcasecmp, strcasecmp},
		{string_strncasecmp, strncasecmp},
	};
	void *memory = malloc(STRINGS_TEST_MEMORY);
	EXPECT(memory);
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		exercise_string_function(all[i].role, all[i].function, memory);
	free(memory);
}

/* All keys are the program's, and their destructors run. */

static pthread_key_t keys[PTHREAD_KEYS_MAX];
static atomic_int destroyed;

static void destroy(void *block)
{
	free(block);
	atomic_fetch_add(&destroyed, 1);
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
	for (int i = 0; i < PTHREAD_KEYS_MAX; i++)
		EXPECT(!pthread_setspecific(keys[i], malloc(24)));
	exercise((unsigned)(uintptr_t)seed);
	return malloc(40);
}

static char *(*block_of_library)(int);

static void *loaded(void *seed)
{
	for (int i = 0; i < 20; i++) {
		char *block = block_of_library((int)(uintptr_t)seed);
		EXPECT(block && !strcmp(block, "initial"));
		free(block);
	}
	exercise((unsigned)(uintptr_t)seed);
	return 0;
}

int main(int count, char **arguments)
{
	EXPECT(count == 2);
	exercise(1);
	family();
	string_functions();
	pthread_t threads[4];
	for (int i = 0; i < PTHREAD_KEYS_MAX; i++)
		EXPECT(!pthread_key_create(&keys[i], destroy));
	for (int round = 0; round < 3; round++) {
		for (uintptr_t i = 0; i < 4; i++)
			EXPECT(!pthread_create(&threads[i], 0, once, (void *)(i + 1)));
		for (int i = 0; i < 4; i++) {
			void *block = 0;
			EXPECT(!pthread_join(threads[i], &block) && block);
			free(block);
		}
	}
	EXPECT(atomic_load(&destroyed) == 3 * 4 * PTHREAD_KEYS_MAX);

	/* A stack of the program's own, on which a thread's values lie as well. */
	size_t size = 256 * 1024;
	char *stack = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	EXPECT(stack != MAP_FAILED);
	memset(stack, 0xa5, size);
	pthread_attr_t attributes;
	EXPECT(!pthread_attr_init(&attributes) && !pthread_attr_setstack(&attributes, stack, size));
	void *block = 0;
	EXPECT(!pthread_create(&threads[0], &attributes, once, (void *)9) && !pthread_join(threads[0], &block) && block);
	free(block);

	/* Threads that are there while a library with thread-local storage is loaded, and while the process forks. */
	for (uintptr_t i = 0; i < 3; i++)
		EXPECT(!pthread_create(&threads[i], 0, allocate_on, (void *)(i + 1)));
	void *library = dlopen(arguments[1], RTLD_NOW);
	if (!library) {
		fprintf(stderr, "allograft self-test: %s\n", dlerror());
		return 1;
	}
	block_of_library = (char *(*)(int))dlsym(library, "loader_library_block");
	EXPECT(block_of_library);
	loaded((void *)5);
	for (int i = 0; i < 20; i++) {
		pid_t child = fork();
		EXPECT(child >= 0);
		if (!child) {
			pthread_t thread;
			loaded((void *)5);
			EXPECT(!pthread_create(&thread, 0, loaded, (void *)8) && !pthread_join(thread, 0));
			_exit(0);
		}
		int status = -1;
		EXPECT(waitpid(child, &status, 0) == child && status == 0);
	}
	EXPECT(!pthread_create(&threads[3], 0, loaded, (void *)7) && !pthread_join(threads[3], 0));
	atomic_store(&stop, 1);
	for (int i = 0; i < 3; i++)
		EXPECT(!pthread_join(threads[i], 0));
	EXPECT(!dlclose(library));
	finish(0, "allograft self-test: ok\n");
}

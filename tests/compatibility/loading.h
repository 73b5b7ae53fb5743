// Habits of programs that load libraries. Part of habits.c.
#ifndef LOADING_H
#define LOADING_H

static void load(int flags) {
	const char *path = getenv("HABITS_LIBRARY");
	void *library = path ? dlopen(path, flags) : 0;
	if (!library) {
		printf("no library: %s\n", dlerror());
		return;
	}
	char *(*make)(void) = (char *(*)(void))dlsym(library, "make");
	void (*take)(char *) = (void (*)(char *))dlsym(library, "take");
	char *made = make();
	say("made", made && strcmp(made, "made") == 0);
	free(made);
	take(strdup("given"));
	say("closed", dlclose(library) == 0);
	say("work", work());
}

static void load_lazily(void) { load(RTLD_LAZY); }
static void load_now(void) { load(RTLD_NOW | RTLD_LOCAL); }
static void load_globally(void) { load(RTLD_NOW | RTLD_GLOBAL); }
static void load_for_good(void) { load(RTLD_NOW | RTLD_NODELETE); }
static void load_in_thread_body(void) { load(RTLD_NOW); }
static void *load_here(void *unused) {
	load_in_thread_body();
	return unused;
}
static void load_in_thread(void) {
	pthread_t thread;
	pthread_create(&thread, 0, load_here, 0);
	pthread_join(thread, 0);
}
static void thread_storage(void) {
	void *library = dlopen(getenv("HABITS_LIBRARY"), RTLD_NOW);
	int (*count)(void) = library ? (int (*)(void))dlsym(library, "count") : 0;
	printf("%d\n", count ? count() + count() : -1);
	say("a thread", works_in_thread(256 << 10));
}
#ifdef RTLD_DEEPBIND
static void load_deeply(void) { load(RTLD_NOW | RTLD_DEEPBIND); }
#endif
#ifdef LM_ID_NEWLM
static void load_apart(void) {
	void *library = dlmopen(LM_ID_NEWLM, getenv("HABITS_LIBRARY"), RTLD_NOW);
	int (*alone)(void) = library ? (int (*)(void))dlsym(library, "alone") : 0;
	printf("%d\n", alone ? alone() : -1);
	say("work", work());
}
#endif

#endif

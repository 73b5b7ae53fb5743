/* The functions and options that every release of mimalloc has as a donor. Included after upstream's files. */
/* mimalloc asks for the environment when it first looks at an option: the moment to put in what was chosen at graft
 * time, as defaults that a variable still overrides. */
static char ***donor_environment(void)
{
	static _Atomic bool applied;
	static char **environment;
	if (!atomic_exchange(&applied, true)) {
#define DONOR_OPTION_KEY(name, value, least, greatest, key) key,
		static const mi_option_t keys[] = {GRAFT_OPTIONS(DONOR_OPTION_KEY)};
		for (int i = 0; i < graft_option_count; i++) {
			if (keys[i] != _mi_option_last && graft_options.entries[i].flags & GRAFT_OPTION_SET)
				mi_option_set_default(keys[i], (long)graft_options.entries[i].value);
		}
	}
	environment = graft_environment();
	return &environment;
}

/* The allocator's own memory. With allow_thp=0 the kernel must not use huge pages for it. */
static void *donor_mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
	void *mapping = graft_mmap(address, length, protection, flags, fd, offset);
	if (mapping != MAP_FAILED && !mi_option_is_enabled(mi_option_allow_thp))
		graft_madvise(mapping, length, MADV_NOHUGEPAGE);
	return mapping;
}

static inline void *donor_malloc(size_t n)
{
	return mi_malloc(n);
}

static inline void *donor_zalloc(size_t n)
{
	return mi_zalloc(n);
}

static inline void *donor_realloc(void *block, size_t n)
{
	void *moved = mi_realloc(block, n);
	return __builtin_expect(moved != 0, 1) ? moved : graft_no_memory();
}

static inline void *donor_aligned(size_t alignment, size_t n)
{
	void *block = mi_malloc_aligned(n, alignment);
	return __builtin_expect(block != 0, 1) ? block : graft_no_memory();
}

static inline void donor_free(void *block)
{
	mi_free(block);
}

static inline size_t donor_usable(const void *block)
{
	return mi_usable_size(block);
}

static void donor_start(void)
{
	_mi_auto_process_init();
	/* Counts NUMA nodes now, which looks for files. A program that forbids itself such calls before its first malloc
	 * would be killed. */
	_mi_os_numa_node_count();
}

#define GRAFT_HAS_TRIM
static void donor_trim(void)
{
	graft_gate_enter();
	mi_collect(true);
	graft_gate_leave();
}

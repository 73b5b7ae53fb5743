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

#if !MI_SECURE
/* Upstream asks the kernel in each thread that allocates. The keys and cookies protect nothing here. */
bool _mi_prim_random_buf(void *buffer, size_t size)
{
	for (size_t at = 0; at < size; at += sizeof(uint64_t)) {
		uint64_t random = graft_random();
		memcpy((char *)buffer + at, &random, size - at < sizeof random ? size - at : sizeof random);
	}
	return true;
}
#endif

/* Whether memory may be accessible before it is needed. Upstream maps it without access and gives access by mprotect, which
 * a filter made for stock malloc forbids. If the kernel promises memory strictly (vm.overcommit_memory=2), only memory
 * without access is free; and with checks, access is what they are made of. */
static bool donor_maps_open(void)
{
	return !MI_SECURE && _mi_os_has_overcommit();
}

/* The allocator's own memory. With allow_thp=0 the kernel must not use huge pages for it. */
static void *donor_mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
	if (protection == PROT_NONE && donor_maps_open())
		protection = PROT_READ | PROT_WRITE;
	void *mapping = graft_mmap(address, length, protection, flags, fd, offset);
	if (mapping != MAP_FAILED && !mi_option_is_enabled(mi_option_allow_thp))
		graft_madvise(mapping, length, MADV_NOHUGEPAGE);
	return mapping;
}

static int donor_mprotect(void *address, size_t length, int protection)
{
	if (protection == (PROT_READ | PROT_WRITE) && donor_maps_open())
		return 0;
	return graft_mprotect(address, length, protection);
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
#ifdef DONOR_FIRST_ARENA
	donor_reserve_first();
#endif
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

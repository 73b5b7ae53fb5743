/* The part of the runtime that differs in musl's libc.so, which is also the dynamic loader (docs/loader.md).
 *
 * libc.so gets no thread-local storage from its own loader: ldso/dynlink.c does not look at its PT_TLS. But
 * pthread_create lays out each thread's values of pthread keys by a variable, __pthread_tsd_size, in memory that is
 * zero. A graft raises that variable, and the room behind the values is the donor's. The main thread's values are a
 * static array in libc, with no room behind it: its storage is here.
 *
 * The donor is compiled with -femulated-tls: each access to a thread-local variable calls __emutls_get_address. */
#ifndef TRANSPLANT_LOADER_H
#define TRANSPLANT_LOADER_H

/* At most, for one thread. Bounded by musl's rule for small stacks of the program's own: what pthread_create adds has
 * to be less than 2048 bytes (src/thread/pthread_create.c). */
#define TRANSPLANT_STORAGE 960

/* crates/transplant/src/loader/layout.rs writes this. Addresses are relative to the blob's first byte, until
 * transplant_begin has run. Not volatile, for speed: a variable that other objects can see is not built in. */
struct transplant_loader {
	int64_t values;      /* where a thread keeps the address of its values, from the thread pointer: `tsd` */
	uint64_t size;       /* of 128 values, in bytes */
	uint64_t main;       /* the main thread's values: __pthread_tsd_main */
	uint64_t malloc_slot, malloc; /* the slot through which libc calls malloc, and its own malloc */
	uint64_t aligned_alloc_slot, aligned_alloc;
};
HIDDEN __attribute__((used)) struct transplant_loader transplant_loader
	__attribute__((section(".data.transplant"), aligned(16))) = {0};

/* The compiler's record of a thread-local variable. Its third word is the runtime's: the variable's place in the
 * storage, which the graft fills in. */
struct transplant_variable {
	size_t size, alignment;
	uintptr_t place;
	const void *initial;
};
extern HIDDEN struct transplant_variable transplant_variables_start[], transplant_variables_end[];
static char main_storage[TRANSPLANT_STORAGE] __attribute__((aligned(64)));

/* The storage's first word says whether the variables have their initial values. */
static __attribute__((noinline, cold)) void fill(char *storage)
{
	for (struct transplant_variable *one = transplant_variables_start; one < transplant_variables_end; one++) {
		if (one->initial)
			memcpy(storage + one->place, one->initial, one->size);
	}
	*(long *)storage = 1;
}

HIDDEN __attribute__((used)) void *__emutls_get_address(struct transplant_variable *variable)
{
	char *values = *(char **)((char *)__builtin_thread_pointer() + transplant_loader.values);
	char *storage = values + transplant_loader.size;
	/* Null before the process has a key or a second thread. */
	if (!values || (uintptr_t)values == transplant_loader.main)
		storage = main_storage;
	if (__builtin_expect(!*(long *)storage, 0))
		fill(storage);
	return storage + variable->place;
}

/* The kernel starts here, whatever program the loader is for. Returns the loader's own entry point. */
HIDDEN __attribute__((used)) uintptr_t transplant_begin(long *stack)
{
	volatile struct transplant_parameters *given = &transplant_parameters;
	uintptr_t base = relocate();
	transplant_loader.main += base;
	transplant_loader.malloc_slot += base;
	transplant_loader.malloc += base;
	transplant_loader.aligned_alloc_slot += base;
	transplant_loader.aligned_alloc += base;
	read_stack(stack);
	kernel(SYS_mprotect, (long)(base + given->sealed[0]), (long)given->sealed_size[0], PROT_READ, 0, 0, 0);
	return base + given->entry;
}

/* Whether a program or a library brings a function of its own, which libc's calls through the slot then reach. A slot
 * holds libc's own address before and after the loader has relocated libc for the last time. */
static bool brought(uint64_t slot, uint64_t own)
{
	return *(uint64_t *)slot != own;
}

/* A program may bring malloc, realloc and free only: libc's calloc is then made of that malloc (src/malloc/calloc.c) */
ENTRY void *transplant_calloc(size_t count, size_t size)
{
	STARTED();
	if (__builtin_expect(!brought(transplant_loader.malloc_slot, transplant_loader.malloc), 1))
		return __libc_calloc(count, size);
	size_t n;
	if (__builtin_mul_overflow(count, size, &n)) {
		*__errno_location() = ENOMEM;
		return 0;
	}
	void *(*theirs)(size_t) = *(void *(**)(size_t))transplant_loader.malloc_slot;
	void *block = theirs(n);
	return block ? memset(block, 0, n) : 0;
}

/* Like musl's: in a program with its own malloc and without an aligned_alloc, free would get a foreign block
 * (src/malloc/mallocng/glue.h, DISABLE_ALIGNED_ALLOC). */
ENTRY void *transplant_aligned_alloc(size_t alignment, size_t n)
{
	STARTED();
	if (__builtin_expect(brought(transplant_loader.malloc_slot, transplant_loader.malloc), 0) &&
	    !brought(transplant_loader.aligned_alloc_slot, transplant_loader.aligned_alloc)) {
		*__errno_location() = ENOMEM;
		return 0;
	}
	return aligned_alloc(alignment, n);
}

/* Replaces __malloc_donate, by which the loader gives gaps between segments to mallocng. Nobody would use them. */
ENTRY void transplant_donate(char *start, char *end)
{
	(void)start, (void)end;
}

#endif

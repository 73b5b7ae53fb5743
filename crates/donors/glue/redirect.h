/* From here to restore.h, what an allocator calls of libc is ours: system calls that are counted and leave the program's
 * errno alone, mutexes behind the fork gate, a key that is the last, an environment that is closed to setuid programs.
 * The donor defines `donor_environment`. */
#undef errno
#define errno graft_private_errno
#define environ (*donor_environment())
#define fputs(text, file) graft_fputs(text)
/* sleep(0) is how mimalloc yields; musl's is a cancellation point. */
#define sleep(seconds) sched_yield()
#define mmap graft_mmap
#define munmap graft_munmap
#define madvise graft_madvise
#define mprotect graft_mprotect
#define pthread_key_create graft_key_create
#define pthread_mutex_lock graft_mutex_lock
#define pthread_mutex_trylock graft_mutex_trylock
#define pthread_mutex_unlock graft_mutex_unlock

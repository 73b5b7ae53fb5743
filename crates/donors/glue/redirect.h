/* From here to restore.h, the allocator's calls of libc are redirected: to system calls that are counted and leave the
 * program's errno alone, to mutexes behind the fork gate, to a thread key that is the last one, and to an environment
 * that is empty in setuid programs. The donor defines `donor_environment`. */
#undef errno
#define errno graft_private_errno
#define environ (*donor_environment())
#define fputs(text, file) graft_fputs(text)
/* mimalloc yields with sleep(0); musl's is a cancellation point. */
#define sleep(seconds) sched_yield()
#define mmap graft_mmap
#define munmap graft_munmap
#define madvise graft_madvise
#define mprotect graft_mprotect
#define pthread_key_create graft_key_create
#define pthread_mutex_lock graft_mutex_lock
#define pthread_mutex_trylock graft_mutex_trylock
#define pthread_mutex_unlock graft_mutex_unlock

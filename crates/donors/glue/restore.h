/* Ends the redirection of redirect.h. */
#undef fputs
#undef sleep
#undef mmap
#undef munmap
#undef madvise
#undef mprotect
#undef pthread_key_create
#undef pthread_mutex_lock
#undef pthread_mutex_trylock
#undef pthread_mutex_unlock
#undef environ
#undef errno
#define errno (*__errno_location())

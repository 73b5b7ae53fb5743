/* What a compiler's crtbegin.o defines: which module registers a destructor. */
__attribute__((visibility("hidden"))) void *__dso_handle = 0;

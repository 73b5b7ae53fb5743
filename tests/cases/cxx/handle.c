/* A compiler's crtbegin.o defines this. It identifies the module that registers a destructor. */
__attribute__((visibility("hidden"))) void *__dso_handle = 0;

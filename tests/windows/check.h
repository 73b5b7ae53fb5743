/* A condition that has to hold, or the program ends. */
#define CHECK(condition)                                                                                               \
	do                                                                                                                 \
		if (!(condition)) {                                                                                            \
			printf("%s:%d: %s\n", __FILE__, __LINE__, #condition);                                                     \
			fflush(stdout);                                                                                            \
			abort();                                                                                                   \
		}                                                                                                              \
	while (0)

/* Some of libc's other functions, those that a graft does not replace or that call what it replaces: processor time for
 * each call.
 *
 *     libc
 *
 * prints a line for each function: nanoseconds for each call, and the function. The least of some short loops counts. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <ctype.h>
#include <fnmatch.h>
#include <math.h>
#include <pthread.h>
#include <regex.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <wchar.h>

/* A loop takes this long, in seconds, and so many loops are run. */
#define LEAST 0.001
#define LOOPS 7

/* What is computed goes here, so that nothing is left out. */
static volatile uintptr_t sink;
static volatile double sum;
/* Not known to the compiler: it cannot compute anything ahead. */
static volatile double half = 0.5;
static char *volatile number = "1234567890", *volatile fraction = "0.1234567890123", *volatile decimal = "1.2345e10";

static char buffer[4096], line[200], text[1001];
static FILE *out, *in;
static char *got;
static size_t got_size;
static regex_t pattern;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static sem_t semaphore;
static time_t moment = 1700000000;
static struct tm date;
static int numbers[1000];

static void nothing(void) {}
static void *nothing_in_a_thread(void *argument) { return argument; }
static int order(const void *a, const void *b) { return (*(const int *)a > *(const int *)b) - (*(const int *)a < *(const int *)b); }

static void *lock_often(void *argument)
{
	for (long i = *(long *)argument; i > 0; i--) {
		pthread_mutex_lock(&mutex);
		sink++;
		pthread_mutex_unlock(&mutex);
	}
	return 0;
}

static void sort(void)
{
	uint32_t state = 1;
	for (int i = 0; i < 1000; i++)
		numbers[i] = (int)((state = state * 1664525u + 1013904223u) >> 1);
	qsort(numbers, 1000, sizeof *numbers, order);
}

static void split_by_strtok(void)
{
	char *rest;
	memcpy(buffer, text, sizeof text);
	for (char *word = strtok_r(buffer, " ,", &rest); word; word = strtok_r(0, " ,", &rest))
		sink += (uintptr_t)word;
}

static void split_by_strsep(void)
{
	char *rest = buffer;
	memcpy(buffer, text, sizeof text);
	while (rest)
		sink += (uintptr_t)strsep(&rest, " ,");
}

static void jump(void)
{
	jmp_buf place;
	if (!setjmp(place))
		longjmp(place, 1);
}

static void create_and_join(void)
{
	pthread_t thread;
	if (pthread_create(&thread, 0, nothing_in_a_thread, 0))
		exit(2);
	pthread_join(thread, 0);
}

static void contend(long n)
{
	pthread_t thread;
	if (pthread_create(&thread, 0, lock_often, &n))
		exit(2);
	lock_often(&n);
	pthread_join(thread, 0);
}

static void rewound(void)
{
	if (feof(in))
		rewind(in);
}

/* The name that the table has, and what is done. `i` counts. */
#define CASES(X)                                                                                                       \
	X("snprintf %d %s", sink = (uintptr_t)snprintf(buffer, sizeof buffer, "%d %s", (int)i, "words"))                   \
	X("snprintf %.3f", sink = (uintptr_t)snprintf(buffer, sizeof buffer, "%.3f", half + (double)i))                    \
	X("snprintf %g", sink = (uintptr_t)snprintf(buffer, sizeof buffer, "%g", half + (double)i))                        \
	X("sscanf %d %d", { int a, b; sink = (uintptr_t)sscanf("12345 67890", "%d %d", &a, &b); })                         \
	X("strtol, 10 digits", sink = (uintptr_t)strtol(number, 0, 10))                                                    \
	X("strtod 1.2345e10", sum = strtod(decimal, 0))                                                                    \
	X("strtod 0.1234567890123", sum = strtod(fraction, 0))                                                             \
	X("atoi, 10 digits", sink = (uintptr_t)atoi(number))                                                               \
	X("fprintf %d", fprintf(out, "%d\n", (int)i))                                                                      \
	X("fputs, 20 bytes", fputs("twenty bytes of text", out))                                                           \
	X("fwrite, 1000 bytes", sink = fwrite(text, 1, 1000, out))                                                         \
	X("putc", putc('x', out))                                                                                          \
	X("getc", { sink = (uintptr_t)getc(in); rewound(); })                                                              \
	X("fgets, 60 bytes", { sink = (uintptr_t)fgets(line, sizeof line, in); rewound(); })                               \
	X("getline, 60 bytes", { sink = (uintptr_t)getline(&got, &got_size, in); rewound(); })                             \
	X("strtok_r, 1000 bytes", split_by_strtok())                                                                       \
	X("strsep, 1000 bytes", split_by_strsep())                                                                         \
	X("strdup and free, 20 bytes", free(strdup("twenty bytes of text")))                                               \
	X("strcoll, 20 bytes", sink = (uintptr_t)strcoll("twenty bytes of text", "twenty bytes of tea"))                   \
	X("strverscmp", sink = (uintptr_t)strverscmp("name-1.10.2", "name-1.9.20"))                                        \
	X("mbstowcs, 100 bytes", sink = mbstowcs((wchar_t *)(void *)buffer, text + 900, 200))                              \
	X("isalpha, toupper", sink = (uintptr_t)(isalpha((int)(i & 127)) + toupper((int)(i & 127))))                       \
	X("qsort, 1000 ints", sort())                                                                                      \
	X("bsearch, 1000 ints", sink = (uintptr_t)bsearch(&numbers[i % 1000], numbers, 1000, sizeof *numbers, order))      \
	X("regexec, 1000 bytes", sink = (uintptr_t)regexec(&pattern, text, 0, 0, 0))                                       \
	X("fnmatch", sink = (uintptr_t)fnmatch("*.[ch]", "a/name/of/a/file.c", 0))                                         \
	X("inet_pton", sink = (uintptr_t)inet_pton(AF_INET, "192.168.100.200", buffer))                                    \
	X("inet_ntop, IPv6", sink = (uintptr_t)inet_ntop(AF_INET6, "0123456789abcdef", buffer, 64))                        \
	X("clock_gettime", { struct timespec t; sink = (uintptr_t)clock_gettime(CLOCK_MONOTONIC, &t); })                   \
	X("gmtime_r", sink = (uintptr_t)gmtime_r(&moment, &date))                                                          \
	X("localtime_r", sink = (uintptr_t)localtime_r(&moment, &date))                                                    \
	X("mktime", sink = (uintptr_t)mktime(&date))                                                                       \
	X("strftime", sink = strftime(buffer, sizeof buffer, "%Y-%m-%d %H:%M:%S", &date))                                  \
	X("getenv, the 20th", sink = (uintptr_t)getenv("VARIABLE_19"))                                                     \
	X("getpid", sink = (uintptr_t)getpid())                                                                            \
	X("setjmp and longjmp", jump())                                                                                    \
	X("rand", sink = (uintptr_t)rand())                                                                                \
	X("random", sink = (uintptr_t)random())                                                                            \
	X("mutex, lock and unlock", { pthread_mutex_lock(&mutex); pthread_mutex_unlock(&mutex); })                         \
	X("rwlock, read and unlock", { pthread_rwlock_rdlock(&rwlock); pthread_rwlock_unlock(&rwlock); })                  \
	X("semaphore, post and wait", { sem_post(&semaphore); sem_wait(&semaphore); })                                     \
	X("pthread_once, done", pthread_once(&once, nothing))                                                              \
	X("pthread_getspecific", sink = (uintptr_t)pthread_getspecific(key))                                               \
	X("thread, create and join", create_and_join())                                                                    \
	X("exp", sum = exp(half + (double)(i & 7)))                                                                        \
	X("log", sum = log(half + (double)(i & 7)))                                                                        \
	X("pow", sum = pow(half + (double)(i & 7), 1.7))                                                                   \
	X("sin", sum = sin(half + (double)(i & 7)))                                                                        \
	X("fmod", sum = fmod(half + (double)i * 1e3, 0.7))                                                                 \
	X("floor", sum = floor(half + (double)(i & 7)))

/* Runs the case with this number `n` times. */
static void run(size_t number_of_case, long n)
{
	size_t at = 0;
#define LOOP(name, ...)                                                                                                \
	if (at++ == number_of_case) {                                                                                      \
		for (long i = 0; i < n; i++) {                                                                                 \
			__VA_ARGS__;                                                                                               \
		}                                                                                                              \
		return;                                                                                                        \
	}
	CASES(LOOP)
	contend(n);
}

#define NAME(name, ...) name,
static const char *const names[] = { CASES(NAME) "mutex, 2 threads" };
#define CASE_COUNT (sizeof names / sizeof *names)

/* The processor time of all threads, in seconds. */
static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double seconds(size_t number_of_case, long n)
{
	double start = now();
	run(number_of_case, n);
	return now() - start;
}

static void prepare(void)
{
	for (size_t i = 0; i < 1000; i++)
		text[i] = i % 9 == 8 ? i % 2 ? ' ' : ',' : (char)('a' + i % 26);
	for (int i = 0; i < 40; i++) {
		char name[20];
		snprintf(name, sizeof name, "VARIABLE_%d", i);
		setenv(name, "its value", 1);
	}
	out = fopen("/dev/null", "w");
	in = tmpfile();
	if (!out || !in || regcomp(&pattern, "[a-f]+ghi.*xyz,nothing", REG_EXTENDED | REG_NOSUB) || sem_init(&semaphore, 0, 0) ||
	    pthread_key_create(&key, 0)) {
		perror("libc");
		exit(2);
	}
	for (int i = 0; i < 1000; i++)
		fprintf(in, "%.59s\n", text + i % 900);
	rewind(in);
	setenv("TZ", "UTC0", 1);
	tzset();
	gmtime_r(&moment, &date);
}

int main(void)
{
	prepare();
	for (size_t at = 0; at < CASE_COUNT; at++) {
		long n = 1;
		while (seconds(at, n) < LEAST)
			n *= 2;
		double best = 1e9;
		for (int loop = 0; loop < LOOPS; loop++) {
			double took = seconds(at, n);
			best = took < best ? took : best;
		}
		printf("%.2f %s\n", 1e9 * best / (double)n, names[at]);
	}
	return 0;
}

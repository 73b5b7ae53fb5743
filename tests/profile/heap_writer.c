/* Writes a heap profile of its own making, with real addresses of its code, as a donor does: leak() holds 4 MiB, which
 * grow() has it allocate in two places. The argument says how it ends. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char __executable_start[], etext[];

static unsigned long frames[4];

__attribute__((noinline)) static unsigned long here(void)
{
	return (unsigned long)__builtin_return_address(0) - 1;
}

__attribute__((noinline)) static void leak(void)
{
	frames[0] = here();
	frames[1] = here();
}

__attribute__((noinline)) static void grow(void)
{
	leak();
	frames[2] = here();
}

struct message {
	unsigned char bytes[4096];
	size_t length;
};

static void varint(struct message *message, unsigned long number)
{
	for (; number >= 128; number >>= 7)
		message->bytes[message->length++] = number | 128;
	message->bytes[message->length++] = number;
}

static void number(struct message *message, int field, unsigned long value)
{
	varint(message, field << 3);
	varint(message, value);
}

static void bytes(struct message *message, int field, const void *from, size_t length)
{
	varint(message, field << 3 | 2);
	varint(message, length);
	memcpy(message->bytes + message->length, from, length);
	message->length += length;
}

static void nested(struct message *message, int field, struct message *part)
{
	bytes(message, field, part->bytes, part->length);
	part->length = 0;
}

static const char *texts[] = {"", "alloc_objects", "alloc_space", "inuse_objects", "inuse_space", "lifetime", "live",
	"sampled", 0, "allograft: donor=snmalloc", 0, "allograft: seconds=2.5", "allograft: resident_bytes=16777216", 0};

static void sample(struct message *profile, const int *stack, unsigned long blocks)
{
	struct message sample = {.length = 0}, label = {.length = 0};
	for (int i = 0; i < 3; i++)
		number(&sample, 1, 1 + stack[i]);
	for (int i = 0; i < 4; i++)
		number(&sample, 2, i & 1 ? blocks << 14 : blocks);
	number(&label, 1, 5);
	number(&label, 2, 6);
	nested(&sample, 3, &label);
	number(&label, 1, 7);
	number(&label, 3, blocks);
	nested(&sample, 3, &label);
	nested(profile, 2, &sample);
}

static void profile(unsigned long blocks)
{
	static char program[512], process[64], path[512];
	struct message profile = {.length = 0}, part = {.length = 0};
	texts[8] = program;
	texts[10] = process;
	texts[13] = getenv("BUILD_ID") ? getenv("BUILD_ID") : "";
	if (readlink("/proc/self/exe", program, sizeof program - 1) < 0)
		exit(9);
	snprintf(process, sizeof process, "allograft: process=%d", (int)getpid());
	for (int i = 1; i <= 4; i++) {
		number(&part, 1, i);
		nested(&profile, 1, &part);
	}
	sample(&profile, (int[]){0, 2, 3}, blocks * 3 / 4);
	sample(&profile, (int[]){1, 2, 3}, blocks / 4);
	number(&part, 1, 1);
	number(&part, 2, (unsigned long)__executable_start);
	number(&part, 3, (unsigned long)etext);
	number(&part, 5, 8);
	number(&part, 6, 13);
	nested(&profile, 3, &part);
	for (int i = 0; i < 4; i++) {
		number(&part, 1, 1 + i);
		number(&part, 2, 1);
		number(&part, 3, frames[i]);
		nested(&profile, 4, &part);
	}
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
		bytes(&profile, 6, texts[i], strlen(texts[i]));
	number(&profile, 12, 16384);
	for (int i = 9; i <= 12; i++)
		number(&profile, 13, i);
	const char *from = getenv("ALLOGRAFT_HEAP");
	if (!from)
		exit(8);
	/* The last number, so that this one counts beside a donor's own. */
	size_t length = 0;
	for (; *from && from < strrchr(getenv("ALLOGRAFT_HEAP"), ':'); from++) {
		if (!strncmp(from, "%p", 2))
			length += sprintf(path + length, "%d", (int)getpid()), from++;
		else if (!strncmp(from, "%n", 2))
			path[length++] = '9', from++;
		else
			path[length++] = *from;
	}
	int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	if (file < 0 || write(file, profile.bytes, profile.length) != (ssize_t)profile.length)
		exit(7);
	close(file);
}

static void asked(int signal)
{
	(void)signal;
	profile(256);
}

int main(int count, char **words)
{
	const char *word = count > 1 ? words[1] : "";
	char *volatile block = malloc(100);
	free(block);
	grow();
	frames[3] = here();
	if (!strcmp(word, "none"))
		_exit(3);
	if (!strcmp(word, "killed"))
		raise(SIGKILL);
	if (!strcmp(word, "server")) {
		signal(SIGUSR2, asked);
		for (;;)
			pause();
	}
	if (!strcmp(word, "forks")) {
		int child = fork();
		profile(child ? 256 : 512);
		return child ? waitpid(child, 0, 0) != child : 0;
	}
	profile(256);
	return !strcmp(word, "fails") ? 4 : 0;
}

/* The signal that makes a program report its statistics. */
#ifndef GRAFT_INTERRUPT_H
#define GRAFT_INTERRUPT_H

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The kernel's own structure, not libc's. libc's sigaction would become a part of every program, and a program may have
 * its own. */
struct graft_signal_action {
	void (*handler)(int);
	unsigned long flags;
#ifndef __riscv
	void (*restorer)(void);
#endif
	unsigned mask[2];
};

/* On x86_64 the return from a handler is the program's part. Debuggers know it by these bytes. Elsewhere the kernel
 * brings it. */
#ifdef __x86_64__
enum { graft_signal_restorer = 0x04000000 };
extern void graft_return_from_signal(void) __attribute__((visibility("hidden")));
__asm__(".pushsection .text.graft_return_from_signal,\"ax\",@progbits\n"
	".type graft_return_from_signal,@function\n"
	"graft_return_from_signal:\n"
	"\tmovq $15, %rax\n"
	"\tsyscall\n"
	".size graft_return_from_signal, . - graft_return_from_signal\n"
	".popsection");
#endif

/* Returns the number, or 0 if a report cannot be asked for with it: signals of faults, which would occur again; those
 * that cannot be caught; and 32 to 34, which libc needs. */
static int graft_signal_number(const char *name)
{
	static const struct {
		char name[8];
		int number;
	} names[] = {
		{"HUP", SIGHUP}, {"INT", SIGINT}, {"QUIT", SIGQUIT}, {"USR1", SIGUSR1}, {"USR2", SIGUSR2}, {"ALRM", SIGALRM},
		{"TERM", SIGTERM}, {"URG", SIGURG}, {"VTALRM", SIGVTALRM}, {"PROF", SIGPROF}, {"WINCH", SIGWINCH}, {"IO", SIGIO},
		{"PWR", SIGPWR},
	};
	int number = 0;
	if (name[0] == 'S' && name[1] == 'I' && name[2] == 'G')
		name += 3;
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		size_t at = 0;
		while (name[at] && name[at] == names[i].name[at])
			at++;
		if (at && !name[at] && !names[i].name[at])
			return names[i].number;
	}
	for (; *name >= '0' && *name <= '9' && number <= 64; name++)
		number = number * 10 + (*name - '0');
	if (*name || number > 64)
		return 0;
	if (number >= 35)
		return number;
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		if (names[i].number == number)
			return number;
	}
	return 0;
}

/* Installs a handler, which a program's own may replace. It interrupts as little as it can: no other signal comes
 * meanwhile, and calls go on after it. */
static bool graft_take_signal(const char *name, void (*handler)(int))
{
	int number = graft_signal_number(name), saved = errno;
	struct graft_signal_action action = {.handler = handler, .flags = SA_RESTART | SA_ONSTACK, .mask = {~0u, ~0u}};
#ifdef __x86_64__
	action.flags |= graft_signal_restorer;
	action.restorer = graft_return_from_signal;
#endif
	bool taken = number && !syscall(SYS_rt_sigaction, number, &action, (void *)0, sizeof action.mask);
	errno = saved;
	return taken;
}

#endif

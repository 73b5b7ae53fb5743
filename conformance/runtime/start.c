// The entry of a static program (crt1.o), for hosts that come without one. As musl's crt/crt1.c and arch/*/crt_arch.h do it.
// The constructors' `_init` and `_fini` need no crti.o: every musl since 1.1.16 carries weak ones and calls them itself.

int main(int, char **, char **);
int __libc_start_main(int (*)(int, char **, char **), int, char **, void (*)(void), void (*)(void), void (*)(void));

#if defined(__x86_64__)
__asm__(
	".text\n"
	".global _start\n"
	".type _start, %function\n"
	"_start:\n"
	"	xor %ebp, %ebp\n"
	"	mov %rsp, %rdi\n"
	"	and $-16, %rsp\n"
	"	call _start_c\n"
	"	hlt\n"
	".size _start, .-_start\n");
#elif defined(__aarch64__)
__asm__(
	".text\n"
	".global _start\n"
	".type _start, %function\n"
	"_start:\n"
	"	mov x29, #0\n"
	"	mov x30, #0\n"
	"	mov x0, sp\n"
	"	and sp, x0, #-16\n"
	"	b _start_c\n"
	".size _start, .-_start\n");
#elif defined(__riscv) && __riscv_xlen == 64
__asm__(
	".section .sdata, \"aw\"\n" // makes linkers define __global_pointer$
	".text\n"
	".weak __global_pointer$\n"
	".hidden __global_pointer$\n"
	".global _start\n"
	".type _start, %function\n"
	"_start:\n"
	"	.option push\n"
	"	.option norelax\n"
	"	lla gp, __global_pointer$\n"
	"	.option pop\n"
	"	mv a0, sp\n"
	"	andi sp, sp, -16\n"
	"	tail _start_c\n"
	".size _start, .-_start\n");
#elif defined(__i386__)
__asm__(
	".text\n"
	".global _start\n"
	".type _start, %function\n"
	"_start:\n"
	"	xor %ebp, %ebp\n"
	"	mov %esp, %eax\n"
	"	and $-16, %esp\n"
	"	sub $12, %esp\n"
	"	push %eax\n"
	"	call _start_c\n"
	"	hlt\n"
	".size _start, .-_start\n");
#elif defined(__arm__)
__asm__(
	".text\n"
	".arm\n"
	".global _start\n"
	".type _start, %function\n"
	"_start:\n"
	"	mov fp, #0\n"
	"	mov lr, #0\n"
	"	mov r0, sp\n"
	"	and ip, r0, #-16\n"
	"	mov sp, ip\n"
	"	b _start_c\n"
	".size _start, .-_start\n");
#else
#error "no entry for this architecture"
#endif

// `stack` is the kernel's: the number of arguments, the arguments, a null pointer, the environment.
__attribute__((used, visibility("hidden"))) void _start_c(long *stack) {
	__libc_start_main(main, (int)stack[0], (char **)(stack + 1), 0, 0, 0);
}

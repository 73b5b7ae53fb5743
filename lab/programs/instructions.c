/*
 * Instructions on many operands, without a libc. In the tests of `cargo xtask bench scaling`, the model and the processor
 * execute them, and both are compared.
 */
enum { MARKER = 0x616c6c, STEP = 1, BEGIN = 2, END = 3, EXIT = 231 };

static const unsigned long values[] = {0, 1, 0x80, 0x7fff, 0x80000000, 0xffffffff, 0x8000000000000000, 0x123456789abcdef0};
static unsigned long memory[16] __attribute__((aligned(64)));

void free(void *block)
{
	(void)block;
}

static void call(long number, long first, long second)
{
	__asm__ volatile("syscall" : "+a"(number) : "D"(first), "S"(second) : "rcx", "r11", "memory");
}

#define SIZES(name) \
	name " %%cl, %%al\n" name " %%cx, %%ax\n" name " %%ecx, %%eax\n" name " %%rcx, %%rax\n" name " %%cl, (%%rbx)\n" \
	name " %%rcx, (%%rbx)\n" name " 8(%%rbx), %%rax\n" name "q $-5, (%%rbx)\n" name " $100, %%ah\n"
#define ONE(name) name " %%al\n" name " %%ax\n" name " %%eax\n" name " %%rax\n" name "q (%%rbx)\n"
#define SHIFTS(name) name " $3, %%al\n" name " $9, %%ax\n" name " %%cl, %%eax\n" name " %%cl, %%rax\n" name "q $1, (%%rbx)\n"
#define BITS(name) name " $5, %%eax\n" name " %%rcx, %%rax\n" name "q $63, (%%rbx)\n"

static void execute(unsigned long a, unsigned long b)
{
	unsigned long count = b;
	memory[0] = a;
	memory[1] = b;
	memory[2] = ~a;
	__asm__ volatile(
		SIZES("add") SIZES("adc") SIZES("sub") SIZES("sbb") SIZES("and") SIZES("or") SIZES("xor") SIZES("cmp")
		"test %%ecx, %%eax\ntest %%rcx, (%%rbx)\n" ONE("inc") ONE("dec") ONE("neg") ONE("not")
		"mov %%rdx, %%rcx\n" SHIFTS("shl") SHIFTS("shr") SHIFTS("sar") SHIFTS("rol") SHIFTS("ror")
		BITS("bt") BITS("bts") BITS("btr") BITS("btc") "lock btsq $7, (%%rbx)\n"
		"imul %%ecx, %%eax\nimul %%rcx, %%rax\nimul $-77, %%rcx, %%rax\nmul %%rcx\nimul %%rcx\nmul %%ecx\n"
		"xor %%edx, %%edx\nmov $7, %%esi\ndiv %%rsi\nxor %%edx, %%edx\ndiv %%esi\n"
		"movzbl %%cl, %%eax\nmovsbq %%cl, %%rax\nmovslq %%ecx, %%rax\nmovswl (%%rbx), %%eax\nmovzwl 2(%%rbx), %%eax\n"
		"cwtl\ncltq\ncltd\ncqto\nbswap %%rax\nbswap %%ecx\nlea 5(%%rbx,%%rcx,4), %%rax\nlea -1(%%rax), %%ecx\n"
		"or $1, %%rax\nbsf %%rax, %%rcx\nbsr %%eax, %%ecx\nrep bsf %%rcx, %%rax\n"
		"cmp %%rcx, %%rax\nsetb %%al\nsetg %%ah\nsetle 9(%%rbx)\ncmovne %%rcx, %%rax\ncmovs %%ecx, %%eax\ncmova (%%rbx), %%rax\n"
		"xchg %%rcx, %%rax\nxchg %%cl, (%%rbx)\nxchg %%rax, 8(%%rbx)\nlock xadd %%rcx, (%%rbx)\nxadd %%ecx, %%eax\n"
		"lock cmpxchg %%rcx, (%%rbx)\nmov (%%rbx), %%rax\nlock cmpxchg %%rcx, (%%rbx)\nlock cmpxchg %%cl, 8(%%rbx)\n"
		"shld $5, %%rcx, %%rax\nshrd $5, %%ecx, %%eax\nmov $0x55, %%ah\nmov %%ah, %%cl\n"
		"movq %%rax, %%xmm1\nmovd %%ecx, %%xmm2\nmovdqu (%%rbx), %%xmm3\nmovdqa %%xmm3, 16(%%rbx)\nmovups %%xmm1, 32(%%rbx)\n"
		"pshufd $0x1b, %%xmm3, %%xmm4\npunpcklqdq %%xmm1, %%xmm4\npxor %%xmm4, %%xmm2\npor %%xmm3, %%xmm2\n"
		"movhps 8(%%rbx), %%xmm2\nmovhps %%xmm2, 40(%%rbx)\nmovlps %%xmm2, 48(%%rbx)\nmovq %%xmm2, %%rcx\nmovq 8(%%rbx), %%xmm5\n"
		"mov %%rbx, %%rdi\nlea 32(%%rbx), %%rsi\nmov $3, %%ecx\ncld\nrep movsq\nmov $5, %%ecx\nrep stosb\nstosq\n"
		: "+a"(a), "+c"(b), "+d"(count)
		: "b"(memory)
		: "rsi", "rdi", "cc", "memory", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5");
}

void _start(void)
{
	call(MARKER, STEP, 1);
	call(MARKER, BEGIN, 0);
	for (unsigned i = 0; i < sizeof values / sizeof *values; i++)
		for (unsigned k = 0; k < sizeof values / sizeof *values; k++)
			execute(values[i], values[k]);
	call(MARKER, END, 0);
	call(EXIT, 0, 0);
}

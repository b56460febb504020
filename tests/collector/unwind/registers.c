/* Works in functions whose unwinding rules need registers other than rsp and rbp, until it is killed: `registers SCENARIO`. */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noipa))

/* Calls its argument with a stack pointer of its own, and finds back by a callee-saved register, as the dynamic linker's
 * function for lazy binding does by rbx. */
#define BY(name, number) \
	__asm__(".text\n.type by_" #name ", @function\nby_" #name ":\n.cfi_startproc\n" \
		"	push %" #name "\n	.cfi_def_cfa_offset 16\n	.cfi_offset " #number ", -16\n" \
		"	mov %rsp, %" #name "\n	.cfi_def_cfa_register " #number "\n" \
		"	and $-64, %rsp\n	sub $256, %rsp\n	call *%rdi\n" \
		"	mov %" #name ", %rsp\n	.cfi_def_cfa_register 7\n" \
		"	pop %" #name "\n	.cfi_def_cfa_offset 8\n	.cfi_restore " #number "\n" \
		"	ret\n.cfi_endproc\n.size by_" #name ", . - by_" #name "\n"); \
	void by_##name(void (*)(void));
BY(rbx, 3)
BY(r12, 12)
BY(r13, 13)
BY(r14, 14)
BY(r15, 15)

/* Keeps its return address in a register, as vfork does. */
__asm__(".text\n.type in_rdx, @function\nin_rdx:\n.cfi_startproc\n"
	"	pop %rdx\n	.cfi_def_cfa_offset 0\n	.cfi_register 16, 1\n"
	"	mov $20000000, %eax\n1:	dec %eax\n	jnz 1b\n"
	"	push %rdx\n	.cfi_def_cfa_offset 8\n	.cfi_offset 16, -8\n"
	"	ret\n.cfi_endproc\n.size in_rdx, . - in_rdx\n");
void in_rdx(void);

/* Is busy behind its frame pointer, before it saves a register. */
__asm__(".text\n.type pushes_late, @function\npushes_late:\n.cfi_startproc\n"
	"	push %rbp\n	.cfi_def_cfa_offset 16\n	.cfi_offset 6, -16\n"
	"	mov %rsp, %rbp\n	.cfi_def_cfa_register 6\n"
	"	mov $20000000, %eax\n1:	dec %eax\n	jnz 1b\n"
	"	push %rbx\n	.cfi_offset 3, -24\n"
	"	xor %ebx, %ebx\n	pop %rbx\n	leave\n	.cfi_def_cfa 7, 8\n"
	"	ret\n.cfi_endproc\n.size pushes_late, . - pushes_late\n");
void pushes_late(void);

volatile uint64_t work;

NOINLINE void spin(void)
{
	for (uint64_t i = 0; i < 20000000; i++)
		work += i;
}

/* Uses all callee-saved registers, so that it saves them for its caller. */
#define BUSY() __asm__ volatile("" ::: "rbx", "r12", "r13", "r14", "r15", "memory")
#define THEN(name, next) \
	NOINLINE void name(void) \
	{ \
		BUSY(); \
		next; \
		work += 1; \
		BUSY(); \
	}
THEN(innermost, spin())
THEN(fourth, by_r15(innermost))
THEN(third, by_r14(fourth))
THEN(second, by_r13(third))
THEN(first, by_r12(second))

NOINLINE void handler(int number)
{
	(void)number;
	innermost();
	work += 1;
}
THEN(interrupted, raise(SIGUSR1))

NOINLINE void starts(void)
{
	pid_t child = vfork();

	if (!child)
		_exit(0);
	waitpid(child, 0, 0);
	work += 1;
}

NOINLINE void probed_inside(void)
{
	spin();
	work += 1;
}

NOINLINE void probed(void)
{
	probed_inside();
	work += 1;
}

NOINLINE void beside(void)
{
	probed();
	work += 1;
}

int main(int count, char **words)
{
	const char *scenario = count > 1 ? words[1] : "";
	char line[10];

	signal(SIGUSR1, handler);
	puts("ready");
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		return 1;
	for (;;) {
		if (!strcmp(scenario, "carried"))
			by_rbx(first);
		else if (!strcmp(scenario, "signal"))
			by_rbx(interrupted);
		else if (!strcmp(scenario, "pushes"))
			by_rbx(pushes_late);
		else if (!strcmp(scenario, "return"))
			in_rdx();
		else if (!strcmp(scenario, "vfork"))
			starts();
		else if (!strcmp(scenario, "probed"))
			beside();
		else
			return 2;
	}
}

/* Works in assembly without unwinding information, until it is killed: `assembly SCENARIO`. */
#include <stdio.h>
#include <string.h>

__asm__(".text\n"
	".globl asm_spin, with_frame, without_frame\n"
	".type asm_spin, @function\n"
	".type with_frame, @function\n"
	".type without_frame, @function\n"
	"asm_spin:\n" /* a leaf that needs no frame */
	"	mov $20000000, %eax\n"
	"1:	dec %eax\n"
	"	jnz 1b\n"
	"	ret\n"
	".size asm_spin, . - asm_spin\n"
	"with_frame:\n"
	"	push %rbp\n"
	"	mov %rsp, %rbp\n"
	"	sub $48, %rsp\n"
	"	call *%rdi\n"
	"	leave\n"
	"	ret\n"
	".size with_frame, . - with_frame\n"
	"without_frame:\n" /* its frame pointer leads to what is no frame */
	"	push %rbp\n"
	"	sub $64, %rsp\n"
	"	lea 16(%rsp), %rbp\n"
	"	lea 32(%rsp), %rax\n"
	"	mov %rax, (%rbp)\n"
	"	lea asm_spin(%rip), %rax\n" /* code, but nothing is called before it */
	"	mov %rax, 8(%rbp)\n"
	"2:	dec %eax\n"
	"	jmp 2b\n"
	".size without_frame, . - without_frame\n");
void asm_spin(void);
void with_frame(void (*)(void));
void without_frame(void);

__attribute__((noinline)) void callback(void)
{
	for (;;)
		asm_spin();
}

int main(int count, char **arguments)
{
	puts("ready");
	fflush(stdout);
	getchar();
	if (count > 1 && !strcmp(arguments[1], "frames"))
		with_frame(callback);
	else
		without_frame();
	return 0;
}

/* Works on a stack of its own, as greenlet does, until it is killed. Above that stack, there is what leads nowhere. */
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#define NOINLINE __attribute__((noinline, noclone))

volatile uint64_t work;

extern "C" NOINLINE void spin()
{
	for (uint64_t i = 0; i < 20000000; i++)
		work += i;
}

struct _greenlet;
struct _object;

namespace greenlet {
struct UserGreenlet {
	void inner_bootstrap(_greenlet *, _object *);
};

NOINLINE void UserGreenlet::inner_bootstrap(_greenlet *, _object *)
{
	for (;;)
		spin();
}
}

/* Calls a function on another stack. The switch of stacks is as greenlet's slp_switch has it. */
extern "C" void begin_at(void *stack, void (*function)());
__asm__(".text\n.globl begin_at, moved, back\n.type begin_at, @function\nbegin_at:\n.cfi_startproc\n"
	"	sub $8, %rsp\n	.cfi_def_cfa_offset 16\n"
	"	mov %rdi, %rax\n	sub %rsp, %rax\n"
	"	add %rax, %rsp\n"
	"moved:	add %rax, %rbp\n	call *nothing(%rip)\n"
	"back:	call *%rsi\n	hlt\n.cfi_endproc\n.size begin_at, . - begin_at\n");

extern "C" {
void do_nothing() {}
void (*nothing)() = do_nothing;

NOINLINE void in_greenlet()
{
	greenlet::UserGreenlet().inner_bootstrap(nullptr, nullptr);
	work += 1;
}
}

int main()
{
	static uint64_t stack[8192];
	char line[10];

	puts("ready");
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		return 1;
	for (uint64_t &word : stack)
		word = 8;
	begin_at(stack + 4096, in_greenlet);
}

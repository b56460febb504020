/* Works in spin(), called in one of many ways, until it is killed: `chain SCENARIO [PLUGIN]`. Says when it is ready, and waits for a line. */
#define _GNU_SOURCE
#include <alloca.h>
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#ifdef __clang__
#define NOINLINE __attribute__((noinline))
#else
#define NOINLINE __attribute__((noinline, noclone, noipa))
#endif

volatile uint64_t work;

NOINLINE void spin(void)
{
	for (uint64_t i = 0; i < 20000000; i++)
		work += i;
}

/* After the call, so that none is a tail call. */
#define AFTER() (work += 1)

#define LEVEL(n, next) \
	NOINLINE void level_##n(int size) \
	{ \
		volatile char room[16 + n]; \
		room[0] = (char)size; \
		next; \
		work += (uint64_t)room[0]; \
		AFTER(); \
	}
LEVEL(60, spin())
#define DOWN(n, m) LEVEL(n, level_##m(size + 1))
DOWN(59, 60) DOWN(58, 59) DOWN(57, 58) DOWN(56, 57) DOWN(55, 56) DOWN(54, 55) DOWN(53, 54) DOWN(52, 53) DOWN(51, 52)
DOWN(50, 51) DOWN(49, 50) DOWN(48, 49) DOWN(47, 48) DOWN(46, 47) DOWN(45, 46) DOWN(44, 45) DOWN(43, 44) DOWN(42, 43)
DOWN(41, 42) DOWN(40, 41) DOWN(39, 40) DOWN(38, 39) DOWN(37, 38) DOWN(36, 37) DOWN(35, 36) DOWN(34, 35) DOWN(33, 34)
DOWN(32, 33) DOWN(31, 32) DOWN(30, 31) DOWN(29, 30) DOWN(28, 29) DOWN(27, 28) DOWN(26, 27) DOWN(25, 26) DOWN(24, 25)
DOWN(23, 24) DOWN(22, 23) DOWN(21, 22) DOWN(20, 21) DOWN(19, 20) DOWN(18, 19) DOWN(17, 18) DOWN(16, 17) DOWN(15, 16)
DOWN(14, 15) DOWN(13, 14) DOWN(12, 13) DOWN(11, 12) DOWN(10, 11) DOWN(9, 10) DOWN(8, 9) DOWN(7, 8) DOWN(6, 7)
DOWN(5, 6) DOWN(4, 5) DOWN(3, 4) DOWN(2, 3) DOWN(1, 2)

NOINLINE void recurse(int depth)
{
	volatile int here = depth;

	if (depth)
		recurse(depth - 1);
	else
		spin();
	work += (uint64_t)here;
	AFTER();
}

/* A frame whose size the compiler does not know: it needs a frame register. */
NOINLINE void with_alloca(int size)
{
	volatile char *room = alloca((size_t)size * 100 + 100);

	room[0] = 1;
	spin();
	work += (uint64_t)room[0];
	AFTER();
}

/* A frame whose stack pointer is aligned anew: the CFA is an expression. */
NOINLINE void with_alignment(int size)
{
	volatile _Alignas(64) char room[256];
	volatile char *more = alloca((size_t)size * 10 + 10);

	room[0] = more[0] = 1;
	spin();
	work += (uint64_t)room[0] + (uint64_t)more[0];
	AFTER();
}

NOINLINE int compare(const void *one, const void *other)
{
	spin();
	AFTER();
	return *(const int *)one - *(const int *)other;
}

NOINLINE void through_libc(void)
{
	int numbers[] = {2, 1};

	qsort(numbers, 2, sizeof(numbers[0]), compare);
	AFTER();
}

NOINLINE void handler(int number)
{
	(void)number;
	spin();
	AFTER();
}

NOINLINE void interrupted(void)
{
	raise(SIGUSR1);
	AFTER();
}

/* What handlers may return to, which is not the C library's. Its first byte is that of a function. */
#ifdef __x86_64__
asm(".type restore_itself, @function\nrestore_itself:\n mov $15, %eax\n syscall\n.size restore_itself, . - restore_itself");
#else
asm(".type restore_itself, %function\nrestore_itself:\n mov x8, #139\n svc #0\n.size restore_itself, . - restore_itself");
#endif
extern char restore_itself[];

static void handle_without_libc(void)
{
	struct {
		void (*handler)(int);
		unsigned long flags;
		void *restorer;
		unsigned long mask;
	} action = {handler, 0x04000000 /* SA_RESTORER */, restore_itself, 0};

	syscall(SYS_rt_sigaction, SIGUSR1, &action, 0, 8);
}

static sigjmp_buf before_the_call;

NOINLINE void goes_on(int number)
{
	handler(number);
	siglongjmp(before_the_call, 1);
}

NOINLINE void calls_nothing(void (*volatile function)(void))
{
	if (!sigsetjmp(before_the_call, 1))
		function();
	AFTER();
}

NOINLINE void *in_thread(void *nothing)
{
	for (;;)
		level_41(1);
	return nothing;
}

NOINLINE void call_plugin(void (*function)(void (*)(void)))
{
	function(spin);
	AFTER();
}

NOINLINE void ask_the_time(void)
{
	struct timespec now;

	for (int i = 0; i < 1000000; i++)
		clock_gettime(CLOCK_MONOTONIC, &now);
	AFTER();
}

NOINLINE void ask_the_kernel(void)
{
	char some[1024];
	FILE *file = fopen("/dev/zero", "r");

	for (int i = 0; i < 100000; i++)
		work += fread(some, 1, sizeof(some), file);
	fclose(file);
	AFTER();
}

int main(int count, char **words)
{
	const char *scenario = count > 1 ? words[1] : "chain";
	char line[10];
	void (*plugin)(void (*)(void)) = 0;
	pthread_t thread;
	struct sigaction action = {.sa_handler = handler};
	char stack[65536];
	stack_t alternate = {.ss_sp = stack, .ss_size = sizeof(stack)};

	sigaltstack(&alternate, 0);
	if (!strcmp(scenario, "alternate"))
		action.sa_flags = SA_ONSTACK;
	sigaction(SIGUSR1, &action, 0);
	if (!strcmp(scenario, "restorer"))
		handle_without_libc();
	if (!strcmp(scenario, "null call")) {
		action.sa_handler = goes_on;
		sigaction(SIGSEGV, &action, 0);
	}
#ifndef STATIC
	if (!strcmp(scenario, "plugin"))
		plugin = (void (*)(void (*)(void)))dlsym(dlopen(words[2], RTLD_NOW), "plugin");
#endif
	puts("ready");
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		return 1;
	if (!strcmp(scenario, "threads")) {
		pthread_create(&thread, 0, in_thread, 0);
		pthread_join(thread, 0);
	}
	for (;;) {
		if (!strcmp(scenario, "chain"))
			level_1(0);
		else if (!strcmp(scenario, "recursion"))
			recurse(40);
		else if (!strcmp(scenario, "alloca"))
			with_alloca(count);
		else if (!strcmp(scenario, "alignment"))
			with_alignment(count);
		else if (!strcmp(scenario, "libc"))
			through_libc();
		else if (!strcmp(scenario, "signal") || !strcmp(scenario, "alternate") || !strcmp(scenario, "restorer"))
			interrupted();
		else if (!strcmp(scenario, "null call"))
			calls_nothing(0);
		else if (!strcmp(scenario, "vdso"))
			ask_the_time();
		else if (!strcmp(scenario, "kernel"))
			ask_the_kernel();
		else if (plugin)
			call_plugin(plugin);
		else
			return 2;
	}
}

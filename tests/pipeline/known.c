/* Spends 75 % of its CPU in three_quarters and 25 % in one_quarter, until it is ended. */
#include <time.h>

static volatile unsigned long sink;

__attribute__((noinline)) static void work(unsigned long rounds)
{
	for (unsigned long i = 0; i < rounds; i++)
		sink = sink * 31 + i;
	__asm__ volatile(""); /* no tail call: the caller's frame stays */
}

__attribute__((noinline)) void three_quarters(void)
{
	work(300000);
	__asm__ volatile("");
}

__attribute__((noinline)) void one_quarter(void)
{
	work(100000);
	__asm__ volatile("");
}

int main(void)
{
	for (;;) {
		three_quarters();
		one_quarter();
	}
}

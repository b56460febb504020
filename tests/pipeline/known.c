/* Spends 75 % of its CPU in three_quarters and 25 % in one_quarter, until it is ended. `work` is inlined into both.
 * With an argument it works a fifth of the time or so. */
#include <unistd.h>

static volatile unsigned long sink;

static inline __attribute__((always_inline)) void work(unsigned long rounds)
{
	for (unsigned long i = 0; i < rounds; i++)
		sink = sink * 31 + i;
}

__attribute__((noinline)) void three_quarters(void)
{
	work(300000);
}

__attribute__((noinline)) void one_quarter(void)
{
	work(100000);
}

int main(int count, char **arguments)
{
	(void)arguments;
	for (;;) {
		for (int i = 0; i < 100; i++) {
			three_quarters();
			one_quarter();
		}
		if (count > 1)
			usleep(400000);
	}
}

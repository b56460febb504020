/* Calls the library of gostacks/ until it is killed. Says when it is ready, and waits for a line. */
#include <stdio.h>

extern void calledBack(int deep);
static volatile unsigned long sink;

__attribute__((noinline)) static void c_first(void)
{
	calledBack(0);
	calledBack(40);
	sink++;
}

int main(void)
{
	char line[8];

	puts("ready");
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		return 1;
	for (;;)
		c_first();
}

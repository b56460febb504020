/* Works for 50 ms of CPU time, in functions whose names are known, and ends. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

static volatile unsigned long work;

__attribute__((noinline)) static int compare(const void *one, const void *other)
{
	for (int i = 0; i < 100; i++)
		work += i;
	return memcmp(one, other, sizeof(int));
}

__attribute__((noinline)) static void sort_numbers(void)
{
	int numbers[200];

	for (int i = 0; i < 200; i++)
		numbers[i] = rand();
	qsort(numbers, 200, sizeof(int), compare);
	work += numbers[0];
}

int main(void)
{
	while (clock() < CLOCKS_PER_SEC / 20)
		sort_numbers();
	return 0;
}

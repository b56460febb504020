/* Threads that spend 3/4 of their time in `three_quarters` and 1/4 in `one_quarter`.
 *
 * busy THREADS MILLISECONDS DEPTH: prints "ready"; on a line from standard input works so long on each thread's CPU clock,
 * below DEPTH calls of `descend`; prints "TID NANOSECONDS" for each thread; ends at the end of standard input.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static long milliseconds;
static int depth;

static long long cpu_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

#define SPIN(turns) for (volatile long i = 0; i < (turns); i++)

__attribute__((noinline)) void three_quarters(long turns) { SPIN(3 * turns); }
__attribute__((noinline)) void one_quarter(long turns) { SPIN(turns); }

__attribute__((noinline)) long long work(void)
{
	long long start = cpu_ns();
	unsigned random = 1;

	while (cpu_ns() - start < milliseconds * 1000000LL) {
		for (int i = 0; i < 20; i++) { /* asking for the clock is not what is measured here */
			random = random * 1103515245 + 12345;
			long turns = 5000 + (random >> 16) % 10000; /* varied, so as not to keep step with the sampling */
			three_quarters(turns);
			one_quarter(turns);
		}
	}
	return cpu_ns() - start;
}

__attribute__((noinline)) long long descend(int left)
{
	long long spent = left ? descend(left - 1) : work();
	__asm__ volatile("" : "+r"(spent)); /* no tail call */
	return spent;
}

static void *run(void *name)
{
	pthread_setname_np(pthread_self(), name);
	long long spent = descend(depth);
	printf("%d %lld\n", gettid(), spent);
	return NULL;
}

int main(int count, char **arguments)
{
	int threads = atoi(arguments[1]);
	pthread_t id[64];
	char names[64][16];

	milliseconds = atol(arguments[2]);
	depth = atoi(arguments[3]);
	puts("ready");
	fflush(stdout);
	getchar();
	for (int i = 0; i < threads; i++) {
		snprintf(names[i], sizeof(names[i]), "busy-%d", i);
		pthread_create(&id[i], NULL, run, names[i]);
	}
	for (int i = 0; i < threads; i++)
		pthread_join(id[i], NULL);
	fflush(stdout);
	while (getchar() != EOF)
		;
	return count == 0;
}

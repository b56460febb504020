/* Threads that show what they work for, each something else.
 *
 * Prints "TID" of each thread in the order of what they show, then "ready"; on a line from standard input the threads work;
 * prints "end" when each has used 100 ms of CPU; ends with standard input.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static pthread_barrier_t told, ready, done;
static void show(size_t number); /* for the calling thread */

static void *run(void *number)
{
	struct timespec used;

	show((size_t)number);
	printf("%d\n", gettid());
	pthread_barrier_wait(&told);
	pthread_barrier_wait(&ready);
	do
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
	while (!used.tv_sec && used.tv_nsec < 100000000);
	pthread_barrier_wait(&done);
	for (;;)
		pause();
}

static int work(size_t threads)
{
	pthread_t id;

	pthread_barrier_init(&told, NULL, 2);
	pthread_barrier_init(&ready, NULL, threads + 1);
	pthread_barrier_init(&done, NULL, threads + 1);
	for (size_t i = 0; i < threads; i++) {
		pthread_create(&id, NULL, run, (void *)i);
		pthread_barrier_wait(&told);
	}
	puts("ready");
	fflush(stdout);
	getchar();
	pthread_barrier_wait(&ready);
	pthread_barrier_wait(&done);
	puts("end");
	fflush(stdout);
	while (getchar() != EOF)
		;
	return 0;
}

/* Threads that switch their trace context all the time, and say when they were in which.
 *
 * switching LIBRARY THREADS SWITCHES OTHER...: prints "ready"; on a line from standard input loads the other libraries and the
 * library (publisher.c), and prints "loaded"; on another line starts;
 * prints "TID NUMBER START END" for each stay: from START to END (CLOCK_MONOTONIC, ns) the thread's context was trace ID
 * {TID, NUMBER, TID, NUMBER} and span ID {NUMBER, TID} as native words of 4 bytes, or none where NUMBER is 0; then "end".
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

struct record {
	uint32_t trace_id[4];
	uint32_t span_id[2];
	volatile uint8_t valid;
	uint8_t flags;
	uint16_t attributes;
};

static void (*publish)(void *);
static int switches;

static long long now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void *run(void *unused)
{
	struct record *record = calloc(1, sizeof(*record));
	long long(*stays)[2] = calloc(switches, sizeof(*stays));
	uint32_t tid = gettid();

	publish(record);
	for (int i = 0; i < switches; i++) {
		uint32_t number = i % 4; /* 0: none */
		number += number ? i : 0;
		record->valid = 0;
		__asm__ volatile("" ::: "memory");
		for (int word = 0; word < 4; word++)
			record->trace_id[word] = word % 2 ? number : tid;
		record->span_id[0] = number;
		record->span_id[1] = tid;
		__asm__ volatile("" ::: "memory");
		record->valid = number != 0;
		stays[i][0] = now();
		for (volatile long turn = 0; turn < 250000; turn++)
			;
		stays[i][1] = now();
	}
	publish(NULL);
	flockfile(stdout);
	for (int i = 0; i < switches; i++)
		printf("%u %u %lld %lld\n", tid, i % 4 ? i % 4 + i : 0, stays[i][0], stays[i][1]);
	funlockfile(stdout);
	return unused;
}

int main(int count, char **arguments)
{
	pthread_t id[16];
	int threads = atoi(arguments[2]);

	switches = atoi(arguments[3]);
	puts("ready");
	fflush(stdout);
	getchar();
	for (int i = 4; i < count; i++)
		if (!dlopen(arguments[i], RTLD_NOW))
			return 1;
	publish = (void (*)(void *))dlsym(dlopen(arguments[1], RTLD_NOW), "publish");
	puts("loaded");
	fflush(stdout);
	getchar();
	for (int i = 0; i < threads; i++)
		pthread_create(&id[i], NULL, run, NULL);
	for (int i = 0; i < threads; i++)
		pthread_join(id[i], NULL);
	puts("end");
	fflush(stdout);
	while (getchar() != EOF)
		;
	return count == 0;
}

/* Threads with custom labels, in the layout of github.com/polarsignals/custom-labels, ABI version 1.
 *
 * Prints "TID" of each thread in the order of `sets`, then "ready"; on a line from standard input the threads work; prints
 * "end" when each has used 100 ms of CPU; ends with standard input.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

struct text {
	size_t bytes;
	const char *at;
};

struct label {
	struct text name, value;
};

struct set {
	struct label *labels;
	size_t count, room;
};

const uint32_t custom_labels_abi_version = VERSION;
__thread struct set *custom_labels_current_set;

#define TEXT(text) {sizeof(text) - 1, text}
#define SET(...) {(struct label[]){__VA_ARGS__}, sizeof((struct label[]){__VA_ARGS__}) / sizeof(struct label)}

static struct set sets[] = {
	SET({TEXT("user"), TEXT("4711")}, {TEXT("trace_id"), TEXT("0af7651916cd43dd8448eb211c80319c")},
		{TEXT("span_id"), TEXT("b7ad6b7169203331")}, {TEXT("span_name"), TEXT("GET /checkout")}),
	/* a label is being deleted, another one being moved: its first copy counts */
	SET({{8, NULL}, TEXT("0af7651916cd43dd8448eb211c80319d")}, {TEXT("trace_id"), TEXT("0af7651916cd43dd8448eb211c80319e")},
		{TEXT("trace_id"), TEXT("0af7651916cd43dd8448eb211c80319f")}),
	{(struct label *)8, 1},
	SET({{8, (char *)8}, TEXT("0af7651916cd43dd8448eb211c80319c")}, {TEXT("trace_id"), {32, (char *)8}},
		{TEXT("span_name"), {32, (char *)8}}),
	SET({TEXT("trace endpoint"), TEXT("GET /user")}, {TEXT("span_name"), TEXT("the second one")}),
};
#define THREADS (sizeof(sets) / sizeof(sets[0]) + 1) /* the last one has no set */

static pthread_barrier_t told, ready, done;

static void *run(void *set)
{
	struct timespec used;

	custom_labels_current_set = set;
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

int main(void)
{
	pthread_t id;

	pthread_barrier_init(&told, NULL, 2);
	pthread_barrier_init(&ready, NULL, THREADS + 1);
	pthread_barrier_init(&done, NULL, THREADS + 1);
	for (size_t i = 0; i < THREADS; i++) {
		pthread_create(&id, NULL, run, i < THREADS - 1 ? &sets[i] : NULL);
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

/* Threads that wait in known functions.
 *
 * waiting MODE: prints "ready" and where, from a thread's pointer, it shows its thread context (OTEP 4947); at each line with a COUNT from standard input waits so often in each function of MODE, then
 * prints "FUNCTION NANOSECONDS UNDISTURBED" (struct waited) for each, and "done"; ends at the end of standard input.
 *
 *   long     nanosleep_20ms, read_from_pipe (10 ms), wait_for_lock (5 ms)
 *   short    nanosleep_short (0.1 ms), and 5 times nanosleep_20ms; calls of less than 15 ms do not count
 *   many     nanosleep_1_to_5ms
 *   context  nanosleep_20ms in a trace, read_from_pipe in none
 *   busy     spins for COUNT ms and waits for nothing
 */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))

static long long now(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void pause_for(long microseconds)
{
	struct timespec t = {microseconds / 1000000, microseconds % 1000000 * 1000};
	nanosleep(&t, NULL);
}

static __thread void *context;
static unsigned char record[28] = "0123456789abcdefghijklmn\1";
static int pipe_ends[2];
static int lock;

/* Helpers that end a wait after a while. */
static void *wake_reader(void *unused)
{
	pause_for(10000);
	if (write(pipe_ends[1], "x", 1) != 1)
		abort();
	return unused;
}

static void *wake_waiter(void *unused)
{
	pause_for(5000);
	__atomic_store_n(&lock, 1, __ATOMIC_SEQ_CST);
	syscall(SYS_futex, &lock, FUTEX_WAKE, 1, NULL, NULL, 0);
	return unused;
}

NOINLINE void nanosleep_20ms(void) { pause_for(20000); __asm__ volatile(""); }
NOINLINE void nanosleep_short(void) { pause_for(100); __asm__ volatile(""); }
NOINLINE void nanosleep_1_to_5ms(void)
{
	static unsigned seed = 1;

	seed = seed * 1103515245 + 12345;
	pause_for(1000 + seed / 65536 % 4000);
	__asm__ volatile("");
}

NOINLINE void read_from_pipe(void)
{
	char byte;
	if (read(pipe_ends[0], &byte, 1) != 1)
		abort();
	__asm__ volatile("");
}

NOINLINE void wait_for_lock(void)
{
	while (!__atomic_load_n(&lock, __ATOMIC_SEQ_CST))
		syscall(SYS_futex, &lock, FUTEX_WAIT, 0, NULL, NULL, 0);
	__asm__ volatile("");
}

/* Nanoseconds in calls that waited, by this thread's own clock: it gave up its CPU, by the kernel's count of voluntary
 * switches. On a busy machine, a call may not: a helper is done before it, or the thread is preempted just before it
 * sleeps, and woken before it runs again. Preemption also makes waits shorter than their calls. */
struct waited {
	long long all;
	long long undisturbed; /* of them, in calls that gave up the CPU once and never lost it, no call longer than it asks
	                        * for: a virtual CPU that is away for a second makes calls longer, but not their waits */
};

static long long least = 1000000; /* nanoseconds of calls that count */

/* `asked`: the nanoseconds for which a call should wait, or more. */
NOINLINE struct waited measure(void (*wait)(void), void *(*helper)(void *), int count, long long asked)
{
	struct waited waited = {0, 0};

	for (int i = 0; i < count; i++) {
		struct rusage before, after;
		pthread_t other;
		lock = 0;
		if (helper)
			pthread_create(&other, NULL, helper, NULL);
		getrusage(RUSAGE_THREAD, &before);
		long long begin = now(CLOCK_MONOTONIC);
		wait();
		long long took = now(CLOCK_MONOTONIC) - begin;
		getrusage(RUSAGE_THREAD, &after);
		long gave_up = after.ru_nvcsw - before.ru_nvcsw, lost = after.ru_nivcsw - before.ru_nivcsw;
		waited.all += gave_up && took >= least ? took : 0;
		waited.undisturbed += gave_up == 1 && !lost && took >= least ? (took < asked ? took : asked) : 0;
		if (helper)
			pthread_join(other, NULL);
	}
	return waited;
}

NOINLINE void spin(int milliseconds)
{
	long long until = now(CLOCK_THREAD_CPUTIME_ID) + milliseconds * 1000000LL;

	while (now(CLOCK_THREAD_CPUTIME_ID) < until)
		;
}

#define SAY(function, helper, count, asked_ms) say(#function, measure(function, helper, count, asked_ms * 1000000LL))

static void say(const char *function, struct waited waited)
{
	printf("%s %lld %lld\n", function, waited.all, waited.undisturbed);
}

int main(int argc, char **arguments)
{
	const char *mode = argc > 1 ? arguments[1] : "";
	char line[16];

	if (pipe(pipe_ends))
		abort();
	printf("ready %ld\n", (long)((char *)&context - (char *)__builtin_thread_pointer()));
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		int count = atoi(line);

		if (!strcmp(mode, "long")) {
			SAY(nanosleep_20ms, NULL, count, 20);
			SAY(read_from_pipe, wake_reader, count, 10);
			SAY(wait_for_lock, wake_waiter, count, 5);
		} else if (!strcmp(mode, "short")) {
			least = 15000000;
			SAY(nanosleep_short, NULL, count, 1);
			SAY(nanosleep_20ms, NULL, 5, 20);
		} else if (!strcmp(mode, "context")) {
			context = record;
			SAY(nanosleep_20ms, NULL, count, 20);
			context = NULL;
			SAY(read_from_pipe, wake_reader, count, 10);
		} else if (!strcmp(mode, "many")) {
			SAY(nanosleep_1_to_5ms, NULL, count, 5);
		} else {
			spin(count);
		}
		puts("done");
		fflush(stdout);
	}
}

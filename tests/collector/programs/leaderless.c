/* The first thread ends, another one works on, in this program and in the library argv[1], which is removed once it is
 * loaded. argv[2] "pass": that thread ends, too, after 20 ms, when it has begun one that does the same; and so on. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void (*in_library)(void);
static int passes;

static int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void *work(void *first)
{
	int64_t until = now_ms() + 20;
	pthread_t next;

	if (first)
		pthread_join(*(pthread_t *)first, 0); /* from now on /proc/PID is empty */
	while (!passes || now_ms() < until)
		in_library();
	pthread_create(&next, 0, work, 0);
	pthread_detach(next);
	return 0;
}

int main(int count, char **arguments)
{
	static pthread_t first;
	pthread_t thread;

	if (count != 3)
		return 1;
	in_library = (void (*)(void))dlsym(dlopen(arguments[1], RTLD_NOW), "work_in_library");
	unlink(arguments[1]);
	passes = !strcmp(arguments[2], "pass");
	first = pthread_self();
	pthread_create(&thread, 0, work, &first);
	pthread_exit(0);
}

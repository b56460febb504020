/* Two libraries, or two programs, take turns at the same addresses. Each turn lasts so much CPU time; the second one's
 * three times as long.
 *
 * turns libraries MS FIRST SECOND: loads a library, works in it, unloads it, and so on.
 * turns programs MS FIRST SECOND: executes a program with its path as OTEL_SERVICE_NAME, which works and executes the
 * other one: with -DNAME=work this file is the library, or the program without a library.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

__attribute__((noinline)) void work(double ms)
{
	struct timespec t;
	double end = 0;

	for (;;) {
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
		double now = t.tv_sec * 1e3 + t.tv_nsec / 1e6;
		if (!end)
			end = now + ms;
		if (now >= end)
			return;
		for (volatile long i = 0; i < 200000; i++)
			;
	}
}

#ifndef LIBRARY
static void turn(const char *path, double ms)
{
	void *library = dlopen(path, RTLD_NOW);
	void (*work_there)(double) = (void (*)(double))dlsym(library, "work");
	static int said;

	if (said++ < 2) {
		printf("%p\n", (void *)work_there);
		fflush(stdout);
	}
	work_there(ms);
	dlclose(library);
}

int main(int count, char **words)
{
	double ms = atof(words[2]);

	while (!strcmp(words[1], "libraries")) {
		turn(words[3], ms);
		turn(words[4], 3 * ms);
	}
	work(strstr(words[0], "second") ? 3 * ms : ms);
	char *next = strstr(words[0], "second") ? words[3] : words[4];
	setenv("OTEL_SERVICE_NAME", strrchr(next, '/') + 1, 1);
	execv(next, (char *[]){next, words[1], words[2], words[3], words[4], NULL});
	return 1;
}
#endif

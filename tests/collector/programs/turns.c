/* Two libraries, programs, or processes take turns at the same addresses. Each turn lasts so much CPU time; the second one's
 * three times as long.
 *
 * turns libraries MS FIRST SECOND: loads a library, works in it, unloads it, and so on.
 * turns programs MS FIRST SECOND: executes a program with its path as OTEL_SERVICE_NAME, which works and executes the
 * other one. FIRST and SECOND are this file; SECOND ends with "second". With -DLIBRARY it is a library.
 * turns processes MS FIRST SECOND ID: starts each program as a process with this ID, when the one before has ended.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <linux/sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
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

static void process(char **words, char *path)
{
	pid_t id = atoi(words[5]);
	struct clone_args arguments = {.set_tid = (unsigned long)&id, .set_tid_size = 1, .exit_signal = SIGCHLD};
	long child = syscall(SYS_clone3, &arguments, sizeof(arguments));

	if (child < 0) {
		perror("clone3");
		exit(1);
	}
	if (child == 0) {
		setenv("OTEL_SERVICE_NAME", strrchr(path, '/') + 1, 1);
		execv(path, (char *[]){path, "once", words[2], NULL});
		_exit(1);
	}
	waitpid(child, NULL, 0);
}

int main(int count, char **words)
{
	double ms = atof(words[2]);

	while (!strcmp(words[1], "libraries")) {
		turn(words[3], ms);
		turn(words[4], 3 * ms);
	}
	while (!strcmp(words[1], "processes")) {
		process(words, words[3]);
		process(words, words[4]);
	}
	work(strstr(words[0], "second") ? 3 * ms : ms);
	if (!strcmp(words[1], "once"))
		return 0;
	char *next = strstr(words[0], "second") ? words[3] : words[4];
	setenv("OTEL_SERVICE_NAME", strrchr(next, '/') + 1, 1);
	execv(next, (char *[]){next, words[1], words[2], words[3], words[4], NULL});
	return 1;
}
#endif

/* Exports what CPython 3.12 exports, and lies: frames that call themselves, threads in a circle, pointers to nowhere.
 * Argument: `frames`, `threads` or `nowhere`. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

const unsigned long Py_Version = 0x030c01f0;
char PyCode_Type[64];
uint64_t _PyRuntime[64];
static uint64_t interpreter[64], thread[64], cframe[4], frame[16], code[64];

int main(int argc, char **argv)
{
	const char *lie = argc > 1 ? argv[1] : "";
	uint64_t nowhere = 0x7000000000000000;

	_PyRuntime[40 / 8] = (uint64_t)interpreter;
	interpreter[0] = (uint64_t)interpreter;
	interpreter[72 / 8] = (uint64_t)thread;
	thread[8 / 8] = (uint64_t)thread;
	thread[56 / 8] = (uint64_t)cframe;
	thread[136 / 8] = strcmp(lie, "threads") ? (uint64_t)pthread_self() : 1;
	cframe[0] = strcmp(lie, "nowhere") ? (uint64_t)frame : nowhere;
	cframe[1] = (uint64_t)cframe;
	frame[0] = (uint64_t)code;
	frame[1] = (uint64_t)frame;
	frame[56 / 8] = (uint64_t)code + 192;
	code[1] = (uint64_t)PyCode_Type;
	code[128 / 8] = nowhere;
	code[112 / 8] = (uint64_t)code;
	puts("ready");
	fflush(stdout);
	for (;;)
		;
}

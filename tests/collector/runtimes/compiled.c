/* Calls `work` by code that is made at run time and uses rbp as any other register. It exports what the library of a
 * runtime exports, whose compiler does so. */
#include <string.h>
#include <sys/mman.h>

int ruby_version;
static volatile unsigned long sum;

__attribute__((noinline)) void work(void)
{
	for (int i = 0; i < 10000000; i++)
		sum += i;
}

/* push rbp; sub rsp, 32; lea rbp, [rsp + 512]; call rdi; add rsp, 32; pop rbp; ret */
static const unsigned char code[] = "\x55\x48\x83\xec\x20\x48\x8d\xac\x24\x00\x02\x00\x00\xff\xd7\x48\x83\xc4\x20\x5d\xc3";

int main(void)
{
	void *area = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	memcpy(area, code, sizeof(code));
	for (;;)
		((void (*)(void (*)(void)))area)(work);
}

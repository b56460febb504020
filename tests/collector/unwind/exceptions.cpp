// Throws through many frames and catches, again and again. Says when it is ready, and waits for a line.
#include <cstdio>
#include <stdexcept>
#include <string>

volatile unsigned long work;

__attribute__((noinline)) void fall(int depth)
{
	std::string kept = "something with a destructor that is not short";
	if (depth == 0)
		throw std::runtime_error(kept);
	fall(depth - 1);
	work += kept.size();
}

__attribute__((noinline)) void attempt()
{
	try {
		fall(20);
	} catch (const std::runtime_error &error) {
		work += 1;
	}
	work += 1;
}

int main()
{
	char line[10];
	puts("ready");
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		return 1;
	for (;;)
		attempt();
}

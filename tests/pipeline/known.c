/* Spends 75 % of its CPU in three_quarters and 25 % in one_quarter, until it is ended. `work` is inlined into both.
 * With an argument it works a fifth of the time or so. Its custom labels (github.com/polarsignals/custom-labels, ABI
 * version 1) name a span. */
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

struct text {
	size_t bytes;
	const char *at;
};

/* Not constant: these are in a page that the dynamic linker has written. An interrupt reads only what is in memory, and
 * nothing else touches these texts. */
static char name[] = "span_name", value[] = "GET /known";

static struct {
	struct text name, value;
} labels[] = {{{sizeof(name) - 1, name}, {sizeof(value) - 1, value}}};

static struct {
	void *labels;
	size_t count, room;
} set = {labels, 1, 1};

const uint32_t custom_labels_abi_version = 1;
__thread void *custom_labels_current_set;

static volatile unsigned long sink;

static inline __attribute__((always_inline)) void work(unsigned long rounds)
{
	for (unsigned long i = 0; i < rounds; i++)
		sink = sink * 31 + i;
}

__attribute__((noinline)) void three_quarters(void)
{
	work(300000);
}

__attribute__((noinline)) void one_quarter(void)
{
	work(100000);
}

int main(int count, char **arguments)
{
	(void)arguments;
	custom_labels_current_set = &set;
	for (;;) {
		for (int i = 0; i < 100; i++) {
			three_quarters();
			one_quarter();
		}
		if (count > 1)
			usleep(400000);
	}
}

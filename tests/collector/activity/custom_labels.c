/* Threads with custom labels, in the layout of github.com/polarsignals/custom-labels, ABI version 1. */
#include "threads.h"

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

static void show(size_t number)
{
	custom_labels_current_set = number < THREADS - 1 ? &sets[number] : NULL;
}

int main(void)
{
	return work(THREADS);
}

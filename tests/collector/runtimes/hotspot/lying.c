/* Maps a JVM's library, as a JVM does, and lies. It has a code heap with compiled methods, as its variables say; but all
 * else that these and the methods say are random numbers and pointers into the heap, which change all the time. There it
 * runs code, on a stack that lies there, too. Arguments: libjvm.so, a seed. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define SIZE (4ul << 20)
#define EVERY 4096 /* bytes from one method to the next */
#define CODE 2048 /* bytes from a method to its code */
#define SEGMENT 7 /* bits of an address in a segment of the heap */

static uint8_t *memory;
static void *library;
static uint64_t block_header, blob_name;
static const char name[] = "nmethod";

static uint64_t number(const char *variable)
{
	return *(uint64_t *)dlsym(library, variable);
}

static uint8_t *field(uint8_t *entry, const char *what)
{
	char variable[80];

	snprintf(variable, sizeof(variable), "gHotSpotVMStructEntry%sOffset", what);
	return entry + number(variable);
}

/* The entry that describes a field; NULL: the library has none. */
static uint8_t *entry_of(const char *type, const char *member)
{
	uint64_t stride = number("gHotSpotVMStructEntryArrayStride");

	for (uint8_t *at = (uint8_t *)number("gHotSpotVMStructs"); *(char **)field(at, "TypeName"); at += stride)
		if (!strcmp(*(char **)field(at, "TypeName"), type) && !strcmp(*(char **)field(at, "FieldName"), member))
			return at;
	return NULL;
}

static uint64_t offset(const char *type, const char *member)
{
	uint8_t *entry = entry_of(type, member);

	return entry ? *(uint64_t *)field(entry, "Offset") : 0;
}

static uint64_t lie(void)
{
	uint64_t number = (uint64_t)rand() << 33 ^ (uint64_t)rand() << 11 ^ rand();

	switch (number % 4) {
	case 0:
		return number;
	case 1:
		return number % 256;
	default:
		return (uint64_t)memory + number % SIZE / 8 * 8;
	}
}

static void fill(void)
{
	static const uint8_t code[] = {0x48, 0xff, 0xcf, 0x75, 0xfb, 0xc3}; /* dec rdi; jnz; ret */

	for (uint64_t at = 0; at < SIZE; at += 8)
		*(uint64_t *)(memory + at) = lie();
	for (uint64_t at = 0; at < SIZE; at += EVERY) {
		memory[at + offset("HeapBlock::Header", "_used")] = 1;
		*(const char **)(memory + at + block_header + blob_name) = name;
		memcpy(memory + at + CODE, code, sizeof(code));
	}
}

/* One heap, the memory, each of whose methods has its own block. */
static void tell_heap(void)
{
	static uint8_t array[512], heap[512], segments[SIZE >> SEGMENT], *heaps[] = {heap};
	const uint64_t low = offset("VirtualSpace", "_low_boundary"), high = offset("VirtualSpace", "_high_boundary");

	for (uint64_t i = 0; i < sizeof(segments); i++)
		segments[i] = i % (EVERY >> SEGMENT);
	*(int *)(array + (offset("GrowableArrayBase", "_len") + offset("GenericGrowableArray", "_len"))) = 1;
	*(uint8_t ***)(array + offset("GrowableArray<int>", "_data")) = heaps;
	*(uint8_t **)(heap + offset("CodeHeap", "_memory") + low) = memory;
	*(uint8_t **)(heap + offset("CodeHeap", "_memory") + high) = memory + SIZE;
	*(uint8_t **)(heap + offset("CodeHeap", "_segmap") + low) = segments;
	*(uint8_t **)(heap + offset("CodeHeap", "_segmap") + high) = segments + sizeof(segments);
	*(int *)(heap + offset("CodeHeap", "_log2_segment_size")) = SEGMENT;
	**(uint8_t ***)field(entry_of("CodeCache", "_heaps"), "Address") = array;
}

/* Calls the code of one piece with rbp and rsp in the memory. */
static void run(void)
{
	uint64_t code = (uint64_t)memory + rand() % (SIZE / EVERY) * EVERY + CODE, count = 30000000;
	uint64_t stack = (uint64_t)memory + SIZE / 2 + rand() % 1024 / 2 * 16, frame = lie();

	asm volatile("mov %%rsp, %%r12; mov %%rbp, %%r13; mov %2, %%rsp; mov %3, %%rbp; call *%1; mov %%r12, %%rsp; mov %%r13, %%rbp"
		     : "+D"(count)
		     : "a"(code), "b"(stack), "c"(frame)
		     : "r12", "r13", "memory", "cc");
}

int main(int argc, char **words)
{
	library = argc > 2 ? dlopen(words[1], RTLD_NOW) : NULL;
	if (!library) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	srand(atoi(words[2]));
	memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	block_header = 16; /* of a HeapBlock, in every version */
	blob_name = offset("CodeBlob", "_name");
	uint64_t stride = number("gHotSpotVMStructEntryArrayStride");

	puts("ready");
	fflush(stdout);
	for (;;) {
		fill();
		for (uint8_t *at = (uint8_t *)number("gHotSpotVMStructs"); *(char **)field(at, "TypeName"); at += stride) {
			const char *type = *(char **)field(at, "TypeString");
			uint64_t *variable = *(uint64_t **)field(at, "Address");

			if (variable && type && strchr(type, '*'))
				*variable = lie();
		}
		tell_heap();
		for (int i = 0; i < 5; i++)
			run();
	}
}

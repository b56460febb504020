/* Threads with thread contexts as Datadog's addon has them in Node (bpf/node_context.h), and with what looks like them. */
#include "threads.h"
#include <string.h>

#define BUCKETS 16
#define ENTRIES (2 * BUCKETS)
#define LOOKED_AT 16 /* in one bucket */
#define POINTER(to) ((uint64_t)(to) + 1)
#define NUMBER(number) ((uint64_t)(uint32_t)(number) << 32)

struct world {
	uint64_t frame, storage; /* where V8 has these */
	uint64_t map[4], key[4], undefined[4];
	struct {
		uint64_t head[2], elements, deleted, buckets, first[BUCKETS];
		struct {
			uint64_t key, value, next;
		} entries[ENTRIES + 1];
	} table;
	uint64_t value[5];
	struct {
		uint8_t ids[24], valid, flags;
		uint16_t attributes;
	} record;
};

__thread struct {
	struct world *frame;
	uint64_t *storage;
	uint32_t hash, unused;
	uint64_t undefined;
} otel_thread_ctx_nodejs_v1;

#define VARIABLE otel_thread_ctx_nodejs_v1
#define ENTRY world->table.entries

/* The entry of the storage is the last one of a bucket with so many; the address of the record is in this word. */
static void put(struct world *world, int in_bucket, int word)
{
	world->frame = POINTER(world->map);
	world->storage = POINTER(world->key);
	world->map[3] = POINTER(&world->table);
	world->table.elements = NUMBER(ENTRIES);
	world->table.buckets = NUMBER(BUCKETS);
	for (int i = 0; i < BUCKETS; i++)
		world->table.first[i] = NUMBER(-1);
	world->table.first[5] = NUMBER(in_bucket - 1);
	for (int i = 0; i < ENTRIES; i++) {
		ENTRY[i].key = i ? POINTER(&ENTRY[i]) : world->storage;
		ENTRY[i].value = POINTER(i ? world->undefined : world->value);
		ENTRY[i].next = NUMBER(i - 1);
	}
	ENTRY[ENTRIES] = ENTRY[0];
	world->value[word] = (uint64_t)&world->record;
	memcpy(world->record.ids, "0123456789abcdefghijklmn", 24);
	world->record.valid = world->record.flags = 1;
	VARIABLE.frame = world;
	VARIABLE.storage = &world->storage;
	VARIABLE.hash = 0xabcd5;
	VARIABLE.undefined = POINTER(world->undefined);
}

static void show(size_t number)
{
	static struct world worlds[32];
	struct world *world = &worlds[number];

	put(world, number == 1 ? LOOKED_AT : number == 3 ? LOOKED_AT + 1 : 1, number == 1 ? 4 : 3);
	switch (number) {
	case 0: /* Node 22 */
	case 1: /* Node 24, and as many in the bucket as are looked at */
		break;
	case 2: /* only one bucket */
		world->table.buckets = NUMBER(1);
		memmove(&world->table.first[1], ENTRY, sizeof(ENTRY[0]));
		world->table.first[0] = NUMBER(0);
		break;
	case 3: /* one more than are looked at */
		break;
	case 4: /* a circle */
		ENTRY[0].key = 1;
		ENTRY[0].next = NUMBER(0);
		break;
	case 5: /* none in the bucket */
		VARIABLE.hash++;
		break;
	case 6: /* an entry behind the table's end */
		world->table.first[5] = NUMBER(ENTRIES);
		break;
	case 7: /* an address in place of the number of an entry */
		world->table.first[5] = POINTER(&ENTRY[0]);
		break;
	case 8:
		world->table.buckets = 0;
		break;
	case 9:
		world->table.buckets = NUMBER(BUCKETS - 1);
		world->table.first[4] = NUMBER(0);
		memmove(&world->table.first[BUCKETS - 1], ENTRY, sizeof(ENTRY[0]));
		break;
	case 10:
		world->table.buckets = NUMBER(1U << 31);
		break;
	case 11: /* no table */
		world->map[3] = 8 + 1;
		break;
	case 12: /* a number in place of a table */
		world->map[3] = NUMBER(8);
		break;
	case 13: /* the thread works for nothing */
		world->frame = VARIABLE.undefined;
		world->undefined[3] = world->map[3];
		break;
	case 14:
		world->frame = NUMBER(1);
		break;
	case 15:
		VARIABLE.frame = (struct world *)8;
		break;
	case 16:
		VARIABLE.storage = NULL;
		break;
	case 17: /* the storage has no value */
		ENTRY[0].value = VARIABLE.undefined;
		world->undefined[3] = (uint64_t)&world->record;
		break;
	case 18:
		ENTRY[0].value = NUMBER(1);
		break;
	case 19:
		ENTRY[0].value = 8 + 1;
		break;
	case 20: /* the object has been torn down; other objects follow */
		world->value[3] = 0;
		world->value[4] = POINTER(&world->record);
		break;
	case 21:
		world->value[3] = 8;
		break;
	case 22: /* the request has ended */
		world->record.valid = 0;
		break;
	case 23: /* Datadog's tracer tries whether it can show contexts */
		memset(world->record.ids, 0, 24);
		break;
	default: /* a thread without JavaScript */
		memset(&VARIABLE, 0, sizeof(VARIABLE));
	}
}

int main(void)
{
	return work(25);
}

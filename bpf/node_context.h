/* SPDX-License-Identifier: GPL-2.0-only */
/* Finds the OpenTelemetry thread context of what a thread of Node works for. The thread changes its work all the time, and
 * V8 has the values that belong to it in a Map, the AsyncContextFrame, with an AsyncLocalStorage as the key of each. One of
 * them is an object with the address of the thread context. Datadog's addon, @datadog/pprof since 5.19, says where all this
 * is in its thread-local variable otel_thread_ctx_nodejs_v1.
 *
 * Of V8: src/objects/js-collection.h, ordered-hash-table.h. Node has it without compressed pointers: a number is in the
 * upper half of a word. Collections move objects, but meanwhile they leave the contents of the old ones. */
#ifndef ICESTREAM_NODE_CONTEXT_H
#define ICESTREAM_NODE_CONTEXT_H

#include "task.h"

#define V8_IS_POINTER(word) (((word) & 3) == 1)
#define V8_OBJECT_HEAD 24 /* in a Map, its table follows */
#define NODE_MOST_IN_BUCKET 16 /* of storages that are looked at; there are at most two on average */

struct node_variable {
	u64 frame;	 /* where V8 has the AsyncContextFrame */
	u64 storage; /* where V8 has the AsyncLocalStorage */
	u32 hash;	 /* of that */
	u32 unused;
	u64 undefined;
};

/* What of V8's OrderedHashMap is read. The first entry of each bucket follows, then the entries. */
struct v8_table {
	u64 map;
	u64 length;
	u64 elements;
	u64 deleted;
	u64 buckets;
};

struct v8_entry {
	u64 key;
	u64 value;
	u64 next; /* number of the next one in its bucket */
};

/* Finds the thread context that a variable leads to. False: there is none. */
static __always_inline bool find_node_record(u64 variable, u64 *record)
{
	u64 frame, storage, at, buckets, next, fields[2];
	struct node_variable known;
	struct v8_table table;
	struct v8_entry entry;
	u32 i;

	if (bpf_probe_read_user(&known, sizeof(known), (void *)variable) || !read_word(known.frame, &frame) ||
		!read_word(known.storage, &storage) || !V8_IS_POINTER(frame) || frame == known.undefined)
		return false;
	if (!read_word(frame - 1 + V8_OBJECT_HEAD, &at) || !V8_IS_POINTER(at) ||
		bpf_probe_read_user(&table, sizeof(table), (void *)(at - 1)))
		return false;
	buckets = table.buckets >> 32;
	if ((u32)table.buckets || !buckets || buckets & (buckets - 1))
		return false;
	at += sizeof(table) - 1;
	if (!read_word(at + sizeof(u64) * (known.hash & (buckets - 1)), &next))
		return false;
	at += sizeof(u64) * buckets;
#pragma clang loop unroll(disable)
	for (i = 0; i < NODE_MOST_IN_BUCKET; i++) {
		if ((u32)next || next >> 32 >= 2 * buckets || /* it is none, or it was the last */
			bpf_probe_read_user(&entry, sizeof(entry), (void *)(at + sizeof(entry) * (next >> 32))))
			return false;
		if (entry.key == storage)
			break;
		next = entry.next;
	}
	if (entry.key != storage || entry.value == known.undefined || !V8_IS_POINTER(entry.value) ||
		bpf_probe_read_user(fields, sizeof(fields), (void *)(entry.value - 1 + V8_OBJECT_HEAD)))
		return false;
	*record = fields[0] ? fields[0] : fields[1]; /* in newer V8 there is one more word before it, which is zero */
	return !(*record & 7);
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/* What the current thread works for, as its process publishes it. Nothing can change it meanwhile, because the thread is
 * interrupted. */
#ifndef ICESTREAM_CONTEXT_H
#define ICESTREAM_CONTEXT_H

#include "labels.h"
#include "node_context.h"

static __always_inline struct context_slot *find_slot(struct walk *w, struct task_struct *task)
{
	u32 pid = w->pid;
	struct context_slot *slot = bpf_map_lookup_elem(MAP(contexts), &pid);

	if (!slot) {
		pid = BPF_CORE_READ(task, real_parent, tgid);
		slot = bpf_map_lookup_elem(MAP(contexts), &pid);
	}
	return slot && same_image(&slot->image, &w->image) ? slot : 0;
}

/* Finds the current thread's block of the slot's module. False: it has none yet, or the DTV is not readable.
 * glibc, elf/dl-tls.c: before entry 0 lies the number of the last entry, in it the DTV's generation; the address of a
 * block that was not allocated is -1. musl, ldso/dynlink.c: entry 0 is the number of the last entry. */
static __always_inline bool find_block(struct context_slot *slot, u64 pointer, u64 *block)
{
	u64 dtv, head[3];

	if (!read_word(pointer + (u64)(s64)slot->dtv, &dtv))
		return false;
	if (slot->entry_bytes == DTV_ENTRY_OF_GLIBC) {
		if (bpf_probe_read_user(head, sizeof(head), (void *)(dtv - DTV_ENTRY_OF_GLIBC)) || head[2] < slot->generation)
			return false;
	} else if (!read_word(dtv, &head[0])) {
		return false;
	}
	return slot->module <= head[0] && read_word(dtv + (u64)slot->module * slot->entry_bytes, block) && *block &&
		   *block != ~0ULL;
}

struct otel_thread_context {
	u8 trace_id[16];
	u8 span_id[8];
	u8 valid;
	u8 trace_flags;
	u16 attrs_size;
};

static __always_inline void read_record(u64 at, u8 *ids)
{
	struct otel_thread_context record;

	if (bpf_probe_read_user(&record, sizeof(record), (void *)at) || record.valid != 1)
		return;
	__builtin_memcpy(ids, record.trace_id, sizeof(record.trace_id));
	__builtin_memcpy(ids + sizeof(record.trace_id), record.span_id, sizeof(record.span_id));
}

VERIFIED_ONCE int read_node_context(u64 variable)
{
	struct walk *w = this_walk();
	u64 record;

	if (w && find_node_record(variable, &record))
		read_record(record, w->context.ids);
	return 0;
}

/* Finds the labels of the goroutine that the thread of `g` runs. Since Go 1.24 labels are a slice of pairs of strings
 * (internal/runtime/pprof/label.Set), before that a map (src/runtime/pprof/label.go). */
static __always_inline bool find_go_labels(struct context_slot *slot, u64 g, u64 *labels)
{
	u64 goroutine;

	return find_goroutine(g, slot->goroutine, &goroutine) && goroutine && read_word(goroutine + slot->labels, labels) &&
		   *labels;
}

/* What of Go's runtime.hmap is read. */
struct hmap {
	u64 count;
	u8 flags;
	u8 log_buckets;
	u16 overflowing;
	u32 seed;
	u64 buckets;
};

/* Finds the buckets of a map. `at`: of the variable with the map. */
static __always_inline bool find_buckets(u64 at, struct labels *labels)
{
	struct hmap map;

	if (!read_word(at, &at) || !at || bpf_probe_read_user(&map, sizeof(map), (void *)at) || !map.count)
		return false;
	labels->at = labels->bucket = map.buckets;
	labels->count = 1ULL << (map.log_buckets & 63);
	return true;
}

static __always_inline void read_context_at(struct walk *w, struct task_struct *task, struct context_slot *slot)
{
	u64 pointer, block, at = 0;

	block = pointer = thread_pointer(task);
	if (!pointer || (slot->module && !find_block(slot, pointer, &block)))
		return;
	if (!read_word(block + slot->offset, &at) || !at)
		return;
	if (slot->kind == THREAD_CONTEXT) {
		read_record(at, w->context.ids);
		return;
	}
	if (slot->kind == NODE_CONTEXT) {
		read_node_context(block + slot->offset);
		return;
	}
	if (slot->kind != CUSTOM_LABELS && !find_go_labels(slot, at, &at))
		return;
	if (slot->kind == GO_LABEL_MAP ? find_buckets(at, &w->labels) : !bpf_probe_read_user(&w->labels, LIST_BYTES, (void *)at))
		read_labels(w, slot->kind == GO_LABEL_MAP ? BUCKETS : slot->kind == CUSTOM_LABELS ? BYTES_FIRST : ADDRESS_FIRST);
}

/* Reads what the current thread works for into the walk, and the name of its span into the words of the description. */
static __always_inline void read_context(struct walk *w)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct context_slot *slot = find_slot(w, task);

	__builtin_memset(&w->context, 0, sizeof(w->context));
	if (!slot)
		return;
	read_context_at(w, task, slot);
	if (!same_image(&slot->image, &w->image)) /* meanwhile the kernel gave the slot to another process */
		__builtin_memset(&w->context, 0, sizeof(w->context));
}

#endif

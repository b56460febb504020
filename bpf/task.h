/* SPDX-License-Identifier: GPL-2.0-only */
/* What the kernel knows about the current thread. */
#ifndef ICESTREAM_TASK_H
#define ICESTREAM_TASK_H

#include "maps.h"
#include <bpf/bpf_core_read.h>

/* Offset in a thread's kernel stack of the registers with which it entered the kernel. 16384 is THREAD_SIZE in
 * arch/x86/include/asm/page_64_types.h; kernels with KASAN have larger stacks, but also bpf_task_pt_regs. */
#ifndef OFFSET_REGISTERS
#define OFFSET_REGISTERS (16384 - sizeof(struct user_registers))
#endif

static __always_inline u64 thread_pointer(struct task_struct *task)
{
	struct task_struct___x86 *x86 = (void *)task;
	struct task_struct___arm64 *arm64 = (void *)task;

	if (bpf_core_field_exists(x86->thread.fsbase))
		return BPF_CORE_READ(x86, thread.fsbase);
	if (bpf_core_field_exists(arm64->thread.uw.tp_value))
		return BPF_CORE_READ(arm64, thread.uw.tp_value);
	return 0;
}

/* The registers that the thread had when it entered the kernel. */
static __always_inline struct user_registers *user_registers_of(struct task_struct *task)
{
	void *stack;

	if (bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_task_pt_regs)) /* since 5.15 */
		return (void *)bpf_task_pt_regs(bpf_get_current_task_btf());
	stack = BPF_CORE_READ(task, stack);
	return stack ? stack + OFFSET_REGISTERS : 0;
}

/* False: a kernel thread, or one that has already given its memory back. */
static __always_inline bool find_image(struct task_struct *task, struct image *image)
{
	struct mm_struct *mm = BPF_CORE_READ(task, mm);

	if (!mm)
		return false;
	image->start_code = BPF_CORE_READ(mm, start_code);
	image->start_stack = BPF_CORE_READ(mm, start_stack);
	return true;
}

static __always_inline bool same_image(struct image *one, struct image *other)
{
	return one->start_code == other->start_code && one->start_stack == other->start_stack;
}

/* Finds what user space knows of the current process or, right after a fork, of its parent. */
static __always_inline bool find_process(struct walk *w, struct task_struct *task)
{
	u32 pid = w->pid;
	struct process *found = bpf_map_lookup_elem(MAP(processes), &pid);

	if (!found || !same_image(&found->image, &w->image)) {
		pid = BPF_CORE_READ(task, real_parent, tgid);
		found = bpf_map_lookup_elem(MAP(processes), &pid);
	}
	if (!found || !same_image(&found->image, &w->image))
		return false;
	w->process = *found;
	return true;
}

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

static __always_inline bool read_word(u64 at, u64 *word)
{
	return bpf_probe_read_user(word, sizeof(*word), (void *)at) == 0;
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

/* Reads the trace context that the current thread publishes into 24 bytes. Nothing can change it meanwhile, because the
 * thread is interrupted. */
static __always_inline void read_context(struct walk *w, u8 *into)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct context_slot *slot = find_slot(w, task);
	struct otel_thread_context record;
	u64 pointer, block, at = 0;

	if (!slot)
		return;
	block = pointer = thread_pointer(task);
	if (!pointer || (slot->module && !find_block(slot, pointer, &block)))
		return;
	if (!read_word(block + slot->offset, &at) || !at)
		return;
	if (bpf_probe_read_user(&record, sizeof(record), (void *)at) || record.valid != 1)
		return;
	__builtin_memcpy(into, record.trace_id, sizeof(record.trace_id));
	__builtin_memcpy(into + sizeof(record.trace_id), record.span_id, sizeof(record.span_id));
}

#endif

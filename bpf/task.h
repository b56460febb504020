/* SPDX-License-Identifier: GPL-2.0-only */
/* What the kernel knows about the current thread. */
#ifndef ICESTREAM_TASK_H
#define ICESTREAM_TASK_H

#include "maps.h"
#include <bpf/bpf_core_read.h>

#ifdef COMPILED_BY_BCC /* which inlines every function */
#define VERIFIED_ONCE static __always_inline
#else
#define VERIFIED_ONCE __attribute__((noinline)) /* and global: the verifier does not follow it from where it is called */
#endif

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
	u32 pid = w->pid, zero = 0, *evictions_now = bpf_map_lookup_elem(MAP(evictions), &zero);
	struct process *found = bpf_map_lookup_elem(MAP(processes), &pid);

	w->evictions = evictions_now ? *(volatile u32 *)evictions_now : 0;
	if (!found || !same_image(&found->image, &w->image)) {
		pid = BPF_CORE_READ(task, real_parent, tgid);
		found = bpf_map_lookup_elem(MAP(processes), &pid);
	}
	if (!found)
		return false;
	w->known_as = pid;
	w->process = *found;
	return same_image(&w->process.image, &w->image);
}

static __always_inline bool read_word(u64 at, u64 *word)
{
	return bpf_probe_read_user(word, sizeof(*word), (void *)at) == 0;
}

#define GO_M 48 /* offset in Go's runtime.g of its runtime.m, in all versions that are read */

/* Finds the goroutine that a thread of Go runs; 0: none. `g` is what runs: the goroutine, or code of the runtime or of C
 * that works for it. `offset`: of the goroutine in runtime.m. */
static __always_inline bool find_goroutine(u64 g, u64 offset, u64 *goroutine)
{
	u64 m;

	return read_word(g + GO_M, &m) && m && read_word(m + offset, goroutine);
}

#endif

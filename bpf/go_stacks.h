/* SPDX-License-Identifier: GPL-2.0-only */
/* How Go's runtime works on the stack of the scheduler for a goroutine, which has one of its own (Go's
 * src/runtime/asm_amd64.s, runtime2.go). collector/unwind/cfi/go_stacks.py says where it does, and has the offsets that differ. */
#ifndef ICESTREAM_GO_STACKS_H
#define ICESTREAM_GO_STACKS_H

#include "task.h"

/* Offsets in Go's runtime.g, in all versions that are followed. */
#define GO_STACK_END 8
#define GO_SCHED 56

/* Where a goroutine goes on: the begin of Go's runtime.gobuf. */
struct gobuf {
	u64 sp;
	u64 pc;
};

/* Finds the goroutine that the current thread runs; 0: none. */
static __always_inline bool find_current_goroutine(struct walk *w, struct rule *rule, u64 *goroutine)
{
	u64 offset = (u64)(s64)rule->cfa_offset, g;

	if (rule->cfa_offset >= 0 && !read_word(offset - w->mapping_bias, &offset)) /* libraries have it in a word */
		return false;
	return read_word(thread_pointer((void *)bpf_get_current_task()) + offset, &g) &&
		   find_goroutine(g, rule->saved[1] | rule->saved[2] << 8, goroutine);
}

/* systemstack returns to the goroutine. */
static __always_inline bool find_sp_of_systemstack(struct walk *w, struct rule *rule, u64 *sp)
{
	u64 goroutine;

	return find_current_goroutine(w, rule, &goroutine) && read_word(goroutine + GO_SCHED, sp);
}

/* asmcgocall calls C. It notes the goroutine, and how far below the end of its stack sp was: Go that C calls may move the
 * stack. If it was called on another stack, it notes sp. */
static __always_inline bool find_sp_of_asmcgocall(struct walk *w, struct rule *rule, u64 *sp)
{
	u64 noted[2], end;

	if (bpf_probe_read_user(noted, sizeof(noted), (void *)(w->sp + (u64)rule->cfa_offset)))
		return false;
	*sp = noted[0];
	if (!noted[1])
		return true;
	if (!read_word(noted[1] + GO_STACK_END, &end))
		return false;
	*sp = end - noted[0];
	return true;
}

/* Continues in the function that called morestack, before it has a frame; it begins again when the goroutine has a larger
 * stack. If the thread runs no goroutine any more, that was preempted there, and the scheduler looks for another one. */
static __always_inline int leave_morestack(struct walk *w, struct rule *rule, u64 *cfa)
{
	struct gobuf sched;
	u64 goroutine;

	if (!find_current_goroutine(w, rule, &goroutine))
		return STOP(READ_FAULT);
	if (!goroutine)
		return STOP(COMPLETE);
	if (bpf_probe_read_user(&sched, sizeof(sched), (void *)(goroutine + GO_SCHED)))
		return STOP(READ_FAULT);
	*cfa = sched.sp;
	w->pc = sched.pc;
	return GO_ON;
}

#endif

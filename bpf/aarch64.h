/* SPDX-License-Identifier: GPL-2.0-only */
/* Frames of aarch64, for unwind.h: where a rule says that the caller is, signals, calls.
 *
 * A function that calls others saves the link register (x30), which has its return address, and mostly the frame pointer
 * (x29) just below it (Procedure Call Standard for the Arm 64-bit Architecture). Return addresses may be signed: the
 * upper bits of an address of user space hold the signature. Instructions: Arm Architecture Reference Manual, C6.
 */
#ifndef ICESTREAM_AARCH64_H
#define ICESTREAM_AARCH64_H

#include "managed.h"
#include "tables.h"

#define ADDRESS_BITS 48
#define EL0 0 /* pstate: user space */
#define MODE_MASK 0x1f /* of pstate: exception level, and whether it is 32-bit code */
#define SYSCALL_NUMBER 280 /* offset in struct pt_regs; negative: no system call */

/* struct rt_sigframe lies at sp: 128 bytes of siginfo, then struct ucontext with fault_address and registers
 * (arch/arm64/include/uapi/asm/sigcontext.h). */
#define SIGNAL_X29 (128 + 176 + 8 + 29 * 8)
#define SIGNAL_CFA (128 + 176)

#define LOST_WORDS 4095 /* in a rule; collector/unwind/cfi/steps.py */
#define IN_LINK_REGISTER (RETURN_REGISTER + 30)

static __always_inline u64 without_signature(u64 address)
{
	return address & ((1ULL << ADDRESS_BITS) - 1);
}

/* Whether the instruction before an address is a call: bl, blr or one of those that check a signature. */
static __always_inline bool follows_call(u64 at)
{
	u32 code;

	if ((at & 3) || bpf_probe_read_user(&code, sizeof(code), (void *)(at - sizeof(code))))
		return false;
	return (code & 0xfc000000) == 0x94000000 || (code & 0xfffffc1f) == 0xd63f0000 || (code & 0xfefff800) == 0xd63f0800;
}

/* Whether the call before an address is one of the function that was interrupted. */
static __always_inline bool called_this(struct walk *w, u64 at)
{
	u64 start;
	u32 code;

	if ((at & 3) || bpf_probe_read_user(&code, sizeof(code), (void *)(at - sizeof(code))))
		return false;
	if ((code & 0xfc000000) != 0x94000000)
		return false;
	start = at - 4 + (s64)((s32)(code << 6) >> 4);
	return start <= w->pc && w->pc - start < MOST_CODE_BYTES;
}

static __always_inline void know_all_registers(struct walk *w)
{
	w->interrupted = w->all_registers = true;
}

static __always_inline void lose_registers(__attribute__((unused)) struct walk *w)
{
}

static __always_inline int step_over_signal(struct walk *w, u32 frame, u32 word)
{
	u64 saved[4]; /* x29, x30, sp, pc */

	if (bpf_probe_read_user(saved, sizeof(saved), (void *)(w->sp + SIGNAL_X29)))
		return STOP(READ_FAULT);
	w->d.words[word & (WORDS - 1)] = w->pc; /* nothing called from here */
	w->cfa[frame & (MAX_FRAMES - 1)] = w->sp + SIGNAL_CFA;
	w->bp = saved[0];
	w->link = without_signature(saved[1]);
	w->sp = saved[2];
	w->pc = saved[3];
	know_all_registers(w);
	return GO_ON;
}

static __always_inline int find_cfa(struct walk *w, struct rule *rule, u64 *cfa)
{
	if (rule->cfa_kind != CFA_RSP && rule->cfa_kind != CFA_RBP && rule->cfa_kind != IN_LINK_REGISTER)
		return STOP(NO_RULE);
	*cfa = (rule->cfa_kind == CFA_RBP ? w->bp : w->sp) + (u64)(s64)rule->cfa_offset;
	return GO_ON;
}

static __always_inline int read_caller(struct walk *w, struct rule *rule, u64 cfa)
{
	u32 frame = rule->saved[0] | (rule->saved[1] & 15) << 8, back = rule->saved[1] >> 4 | rule->saved[2] << 4;
	u64 pc;

	if (back) {
		if (!read_word(cfa - 8 * back, &pc))
			return STOP(READ_FAULT);
	} else if (w->all_registers) {
		pc = w->link;
	} else {
		return STOP(NO_RULE);
	}
	if (frame == LOST_WORDS)
		w->bp = 0;
	else if (frame && !read_word(cfa - 8 * frame, &w->bp))
		return STOP(READ_FAULT);
	w->pc = without_signature(pc);
	return GO_ON;
}

/* Follows the frame pointer, or the link register where the function that was interrupted has not saved it: the caller
 * must be known code that has just called. */
static __always_inline int follow_frame_pointer(struct walk *w, u64 *cfa)
{
	u64 saved[2] = {};

	if (w->all_registers && called_this(w, w->link)) {
		*cfa = w->sp;
		w->pc = w->link;
		return GO_ON;
	}
	if (w->bp < w->sp || w->bp & 7 || w->bp - w->sp > MOST_FRAME_BYTES ||
		bpf_probe_read_user(saved, sizeof(saved), (void *)w->bp))
		return STOP(NO_RULE);
	saved[1] = without_signature(saved[1]);
	if (!follows_call(saved[1]) || !find_mapping(w, saved[1] - 1))
		return STOP(NO_RULE);
	*cfa = w->bp + 16;
	w->bp = saved[0];
	w->pc = saved[1];
	return GO_ON;
}

/* Continues in what called a function pointer that is 0, or nearly. */
static __always_inline bool called_null(struct walk *w)
{
	if (!w->interrupted || w->pc >= NULL_PAGE_BYTES || !w->link)
		return false;
	w->pc = w->link;
	w->interrupted = w->all_registers = false;
	return true;
}

/* Whether the canonical frame address may be that of a caller. A function that was interrupted may have no frame. */
static __always_inline bool is_outside(struct walk *w, __attribute__((unused)) struct rule *rule, u64 cfa)
{
	return cfa > w->sp || (cfa == w->sp && w->all_registers);
}

static __always_inline bool start_walk_at(struct walk *w, struct user_registers *saved)
{
	if ((saved->pstate & MODE_MASK) != EL0)
		return false;
	w->pc = saved->pc;
	w->sp = saved->sp;
	w->bp = saved->regs[29];
	w->link = without_signature(saved->regs[30]);
	know_all_registers(w);
	w->marked = false;
	w->mapping_start = w->mapping_end = 0;
	return true;
}

static __always_inline bool start_walk_in_kernel(struct walk *w, struct task_struct *task)
{
	struct user_registers saved, *at = user_registers_of(task);
	s32 number;

	if (!at || bpf_probe_read_kernel(&saved, sizeof(saved), at) || !start_walk_at(w, &saved))
		return false;
	/* After a system call, pc is behind its instruction, which may be the function's last one. */
	w->interrupted = bpf_probe_read_kernel(&number, sizeof(number), (void *)at + SYSCALL_NUMBER) || number < 0;
	return true;
}

static __always_inline bool start_walk(struct walk *w, struct bpf_perf_event_data *ctx, struct task_struct *task)
{
	struct user_registers saved;

	if ((*(volatile u64 *)&ctx->regs.pstate & MODE_MASK) != EL0)
		return start_walk_in_kernel(w, task);
#define COPY(field) saved.field = *(volatile u64 *)&ctx->regs.field
	COPY(regs[29]), COPY(regs[30]), COPY(sp), COPY(pc), COPY(pstate);
#undef COPY
	return start_walk_at(w, &saved);
}

#endif

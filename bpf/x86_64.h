/* SPDX-License-Identifier: GPL-2.0-only */
/* Frames of x86-64, for unwind.h: where a rule says that the caller is, signals, code without rules.
 *
 * A frame is its pc, sp and bp, and where it has the other callee-saved registers. The return address lies just below the
 * canonical frame address (System V ABI; DWARF 5, section 6.4), or in a register.
 */
#ifndef ICESTREAM_X86_64_H
#define ICESTREAM_X86_64_H

#include "calls.h"
#include "go_stacks.h"
#include "managed.h"
#include "tables.h"

#define USER_CS 0x33

#define CALLEE_SAVED (1 << 3 | 0xf << 12) /* by DWARF number: rbx, r12 to r15; rbp is walk.bp */
#define LOST (~0UL) /* in walk.saved_at */
#define SAVED_LOST 15 /* in a rule; 0: the register was not changed; else it lies so many words below the return address */

#define CHANGES_STACK(kind) ((kind) >= CFA_OTHER_STACK && (kind) <= CFA_MORESTACK)

/* From now on, the callee-saved registers are those of the frame that was interrupted. */
static __always_inline void know_all_registers(struct walk *w)
{
	u64 *at = w->saved_at;

	at[3] = at[12] = at[13] = at[14] = at[15] = 0;
	w->interrupted = w->all_registers = true;
}

/* From now on, nobody knows the callee-saved registers, but for rbp. */
static __always_inline void lose_registers(struct walk *w)
{
	u64 *at = w->saved_at;

	at[3] = at[12] = at[13] = at[14] = at[15] = LOST;
}

/* Continues in what a signal interrupted: struct rt_sigframe lies at sp, and its ucontext has the registers. */
static __always_inline int step_over_signal(struct walk *w, u32 frame, u32 word)
{
	u64 saved[9], *r = w->registers; /* of uc_mcontext, from rdi on: rdi rsi rbp rbx rdx rax rcx rsp rip */

	if (bpf_probe_read_user(r + 8, 8 * sizeof(*r), (void *)(w->sp + 40)) ||
		bpf_probe_read_user(saved, sizeof(saved), (void *)(w->sp + 104)))
		return STOP(READ_FAULT);
	/* Nothing called from here: the handler returns to the first instruction, and the byte before is of another function. */
	w->d.words[word & (WORDS - 1)] = w->pc;
	w->cfa[frame & (MAX_FRAMES - 1)] = w->sp + 120;
	r[5] = saved[0], r[4] = saved[1], r[3] = saved[3], r[1] = saved[4], r[0] = saved[5], r[2] = saved[6];
	w->bp = saved[2];
	w->sp = saved[7];
	w->pc = saved[8];
	know_all_registers(w);
	return GO_ON;
}

/* `python -X perf` calls each Python function through a trampoline, which keeps no frame pointer in 3.12 and 3.13
 * (asm_trampoline.S): after the call come `add $8, %rsp; ret`. */
static __always_inline bool in_python_trampoline(struct walk *w)
{
	u64 code;

	return w->process.runtimes & 1 << PYTHON_CODE && !w->interrupted && read_word(w->pc, &code) && code << 24 >> 24 == 0xc308c48348;
}

/* Finds what the frame has in a register. */
static __always_inline bool find_register(struct walk *w, u32 number, u64 *value)
{
	u64 at;

	if (!w->all_registers && !(CALLEE_SAVED >> number & 1))
		return false;
	asm volatile("" : "+r"(number));
	at = w->saved_at[number & 15];
	if (at && CALLEE_SAVED >> (number & 15) & 1)
		return at != LOST && read_word(at, value);
	*value = w->registers[number & 15];
	return true;
}

/* At sp, there is the rbp that the function has saved, if it does that, and the return address. Go keeps no other register. */
static __always_inline int leave_frame(struct rule *rule, u64 *sp)
{
	*sp += rule->saved[0] & 15 ? 16 : 8;
	rule->saved[0] |= SAVED_LOST << 4;
	rule->saved[1] = rule->saved[2] = SAVED_LOST << 4 | SAVED_LOST;
	return GO_ON;
}

static __always_inline int find_cfa(struct walk *w, struct rule *rule, u64 *cfa)
{
	u64 low = (u64)(s64)(s16)(rule->cfa_offset & 0xffff), high = (u64)(s64)(s16)(rule->cfa_offset >> 16);
	u64 offset = (u64)(s64)rule->cfa_offset;

	switch (rule->cfa_kind) {
	case CFA_RSP:
		*cfa = w->sp + offset;
		return GO_ON;
	case CFA_RBP:
	case CFA_OTHER_STACK:
		*cfa = w->bp + offset;
		return GO_ON;
	case CFA_RBP_DEREF:
	case CFA_RSP_DEREF:
		if (!read_word((rule->cfa_kind == CFA_RBP_DEREF ? w->bp : w->sp) + low, cfa))
			return STOP(READ_FAULT);
		*cfa += high;
		return GO_ON;
	case CFA_PLT:
		*cfa = w->sp + 8 + ((w->pc & 15) >= offset ? 8 : 0);
		return GO_ON;
	case CFA_ASMCGOCALL:
		return find_sp_of_asmcgocall(w, rule, cfa) ? leave_frame(rule, cfa) : STOP(READ_FAULT);
	case CFA_SYSTEMSTACK:
		return find_sp_of_systemstack(w, rule, cfa) ? leave_frame(rule, cfa) : STOP(READ_FAULT);
	case CFA_MORESTACK:
		return leave_morestack(w, rule, cfa);
	}
	if (rule->cfa_kind >= RETURN_REGISTER) {
		*cfa = w->sp + offset;
		return GO_ON;
	}
	if (rule->cfa_kind < CFA_REGISTER || !find_register(w, rule->cfa_kind - CFA_REGISTER, cfa))
		return STOP(NO_RULE);
	*cfa += offset;
	return GO_ON;
}

/* Notes where the caller has a callee-saved register: below `lowest` none was saved. Without branches: the verifier
 * would follow both sides. */
static __always_inline void note_saved(u64 *at, u64 saved, u64 return_at, u64 lowest)
{
	u64 place = return_at - 8 * saved, keep = (saved - 1) >> 63 | (place - lowest) >> 63, lost = (saved + 1) >> 4;

	*at = (*at & -keep) | (place & (keep - 1)) | -lost;
}

static __always_inline int read_caller(struct walk *w, struct rule *rule, u64 cfa)
{
	u64 return_at = (rule->saved_by_rbp ? w->bp + 16 : cfa) - 8, saved[2], *at = w->saved_at;
	u64 lowest = rule->pushed ? w->sp : 0;
	u32 rbp = rule->saved[0] & 15;

	if (rule->cfa_kind >= RETURN_REGISTER) {
		if (!find_register(w, rule->cfa_kind - RETURN_REGISTER, &w->pc))
			return STOP(NO_RULE);
	} else if (rbp == 1 && !rule->saved_by_rbp) {
		if (bpf_probe_read_user(saved, sizeof(saved), (void *)(cfa - 16)))
			return STOP(READ_FAULT);
		w->bp = saved[0];
		w->pc = saved[1];
		rbp = 0;
	} else if (!read_word(cfa - 8, &w->pc)) {
		return STOP(READ_FAULT);
	}
	if (rbp == SAVED_LOST)
		w->bp = 0;
	else if (rbp && !read_word(return_at - 8 * rbp, &w->bp))
		return STOP(READ_FAULT);
	if (!(rule->saved[0] >> 4 | rule->saved[1] | rule->saved[2]))
		return GO_ON;
	note_saved(at + 3, rule->saved[0] >> 4, return_at, lowest);
	note_saved(at + 12, rule->saved[1] & 15, return_at, lowest);
	note_saved(at + 13, rule->saved[1] >> 4, return_at, lowest);
	note_saved(at + 14, rule->saved[2] & 15, return_at, lowest);
	note_saved(at + 15, rule->saved[2] >> 4, return_at, lowest);
	return GO_ON;
}

/* Follows the frame pointer, which an interrupted function may not have set yet, and which a compiler may use for
 * something else: the caller must be known code that has just called. */
static __always_inline int follow_frame_pointer(struct walk *w, u64 *cfa)
{
	u64 saved[2] = {};
	bool has_frame;

	if (in_python_trampoline(w)) {
		*cfa = w->sp + 16;
		return read_word(w->sp + 8, &w->pc) ? GO_ON : STOP(READ_FAULT);
	}
	has_frame = w->bp >= w->sp && !(w->bp & 7) && !bpf_probe_read_user(saved, sizeof(saved), (void *)w->bp);
	if (w->all_registers && !(has_frame && called_this(w, saved[1], MOST_CODE_BYTES)) && find_caller_without_frame(w, cfa))
		return GO_ON;
	if (!has_frame || w->bp - w->sp > MOST_FRAME_BYTES || !follows_call(saved[1]) || !find_mapping(w, saved[1] - 1))
		return find_start(w, cfa) ? GO_ON : STOP(NO_RULE);
	*cfa = w->bp + 16;
	w->bp = saved[0];
	w->pc = saved[1];
	return GO_ON;
}

/* Continues in what called a function pointer that is 0, or nearly: there is no code that could have moved sp. */
static __always_inline bool called_null(struct walk *w)
{
	u64 caller;

	if (!w->interrupted || w->pc >= NULL_PAGE_BYTES || !read_word(w->sp, &caller) || !follows_call(caller))
		return false;
	w->sp += 8;
	w->pc = caller;
	w->interrupted = false;
	return true;
}

/* Whether the canonical frame address may be that of a caller: stacks grow downwards. */
static __always_inline bool is_outside(struct walk *w, struct rule *rule, u64 cfa)
{
	return cfa + (rule->cfa_kind >= RETURN_REGISTER) > w->sp || CHANGES_STACK(rule->cfa_kind);
}

/* Starts the walk where the thread left user space. False: it did not come from there, or from 32-bit code. */
static __always_inline bool start_walk_at(struct walk *w, struct user_registers *saved)
{
	u64 *r = w->registers;

	if (saved->cs != USER_CS)
		return false;
	r[0] = saved->ax, r[1] = saved->dx, r[2] = saved->cx, r[3] = saved->bx, r[4] = saved->si, r[5] = saved->di;
	r[6] = saved->bp, r[7] = saved->sp, r[8] = saved->r8, r[9] = saved->r9, r[10] = saved->r10, r[11] = saved->r11;
	r[12] = saved->r12, r[13] = saved->r13, r[14] = saved->r14, r[15] = saved->r15;
	w->pc = saved->ip;
	w->sp = saved->sp;
	w->bp = saved->bp;
	know_all_registers(w);
	w->marked = false;
	w->mapping_start = w->mapping_end = 0;
	return true;
}

/* Starts the walk of a thread that is in the kernel. */
static __always_inline bool start_walk_in_kernel(struct walk *w, struct task_struct *task)
{
	struct user_registers saved, *at = user_registers_of(task);

	if (!at || bpf_probe_read_kernel(&saved, sizeof(saved), at) || !start_walk_at(w, &saved))
		return false;
	/* After a system call, pc is behind its instruction, which may be the function's last one (as in rt_sigreturn's). */
	w->interrupted = (s64)saved.orig_ax < 0;
	return true;
}

/* Starts the walk of a thread that was interrupted, in user space or in the kernel. */
static __always_inline bool start_walk(struct walk *w, struct bpf_perf_event_data *ctx, struct task_struct *task)
{
	struct user_registers saved;

	if (!(*(volatile u64 *)&ctx->regs.cs & 3))
		return start_walk_in_kernel(w, task);
#define COPY(field) saved.field = *(volatile u64 *)&ctx->regs.field
	COPY(ax), COPY(dx), COPY(cx), COPY(bx), COPY(si), COPY(di), COPY(bp), COPY(sp), COPY(r8), COPY(r9), COPY(r10);
	COPY(r11), COPY(r12), COPY(r13), COPY(r14), COPY(r15), COPY(ip), COPY(cs);
#undef COPY
	return start_walk_at(w, &saved);
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/* Walks user stacks by unwinding tables on x86-64 (collector/unwind/cfi/section.py makes the tables from .eh_frame).
 *
 * A frame is its pc, sp and bp, and where it has the other callee-saved registers. The rule for pc says where the
 * canonical frame address is (CFA: the caller's sp), and where the caller's registers were saved. The return address lies
 * just below the CFA (System V ABI; DWARF 5, section 6.4), or in a register.
 */
#ifndef ICESTREAM_UNWIND_H
#define ICESTREAM_UNWIND_H

#include "calls.h"
#include "go_stacks.h"
#include "hotspot_frames.h"
#include "managed.h"
#include "return_probes.h"
#include "v8_frames.h"

#ifdef COMPILED_BY_BCC
#define FRAMES_PER_RUN 16
#else
#define FRAMES_PER_RUN 64
#endif
#define RUNS 8
#define USER_CS 0x33
#define NULL_PAGE_BYTES 4096

enum cfa_kind {
	CFA_NONE,
	CFA_RSP,
	CFA_RBP,
	CFA_RBP_DEREF,
	CFA_RSP_DEREF,
	CFA_PLT,
	CFA_SIGNAL,
	CFA_END,
	CFA_FRAME_POINTER,
	CFA_RETURN_PROBE,
	CFA_OTHER_STACK, /* by rbp, as CFA_RBP */
	CFA_ASMCGOCALL,
	CFA_SYSTEMSTACK,
	CFA_MORESTACK,
	CFA_UNKNOWN = 15,
	CFA_REGISTER = 16,
	RETURN_REGISTER = 32,
};

#define CALLEE_SAVED (1 << 3 | 0xf << 12) /* by DWARF number: rbx, r12 to r15; rbp is walk.bp */
#define LOST (~0UL) /* in walk.saved_at */
#define SAVED_LOST 15 /* in a rule; 0: the register was not changed; else it lies so many words below the return address */

#define CHANGES_STACK(kind) ((kind) >= CFA_OTHER_STACK && (kind) <= CFA_MORESTACK)

/* Puts the mapping of an address into the walk. False: none covers it. */
static __always_inline bool find_mapping(struct walk *w, u64 at)
{
	u64 low = w->process.first, left = w->process.count, half, after;
	struct mapping *found;
	u32 index, i;
	u64 table;

	if (at >= w->mapping_start && at < w->mapping_end)
		return true;
	/* Without branches: else the verifier follows every path through the search. */
#pragma clang loop unroll(disable)
	for (i = 0; i < MAPPINGS_BITS; i++) {
		half = left >> 1;
		index = low + half;
		found = bpf_map_lookup_elem(MAP(mappings), &index);
		if (!found)
			return false;
		after = (found->start > at) - 1UL; /* all ones if it starts at or before the address */
		asm volatile("" : "+r"(after));
		low += half & after;
		left -= half;
	}
	index = low;
	found = bpf_map_lookup_elem(MAP(mappings), &index);
	if (!found || w->process.count == 0 || at < found->start || at >= found->end)
		return false;
	w->mapping_start = found->start;
	w->mapping_end = found->end;
	table = *(volatile u64 *)&found->table;
	w->mapping_bias = *(volatile u64 *)&found->bias;
	w->mapping_first_chunk = table;
	w->mapping_chunks = table >> 32;
	return true;
}

/* Finds the last of `left` rows from `low` on that begins at or before the key. */
static __always_inline bool find_row(u64 low, u64 left, u64 key, u32 *row)
{
	struct row_page *page;
	u64 half, after;
	u32 number, i;

#pragma clang loop unroll(disable)
	for (i = 0; i <= CHUNK_BITS; i++) {
		half = left >> 1;
		number = (low + half) >> PAGE_BITS;
		page = bpf_map_lookup_elem(MAP(rows), &number);
		if (!page)
			return false;
		*row = page->rows[(low + half) & ((1 << PAGE_BITS) - 1)];
		after = ((key - *row) >> 63) - 1; /* all ones if the row is not after the key */
		asm volatile("" : "+r"(after));
		low += half & after;
		left -= half;
	}
	return true;
}

/* There is no rule: the caller is looked for by the frame pointer, and if it does not look like one, the walk ends. */
static __always_inline int without_rule(struct walk *w, struct rule *rule)
{
	rule->cfa_kind = CFA_FRAME_POINTER;
	w->without_rule = true;
	return GO_ON;
}

/* Finds the rule for an address in the walk's mapping. */
static __always_inline int find_rule(struct walk *w, u64 at, struct rule *rule)
{
	u64 place = at + w->mapping_bias, chunk_number = place >> CHUNK_BITS;
	u32 low, left, index, row;
	struct chunk *chunk;
	struct rule *found;

	if (w->mapping_chunks == 0) {
		if (w->mapping_first_chunk == UNREQUESTED_CODE)
			request(w, REQUEST_TABLE, w->mapping_start);
		if (w->mapping_first_chunk >= UNWALKABLE_CODE)
			return STOP(UNWALKABLE + w->mapping_first_chunk - UNWALKABLE_CODE);
		rule->cfa_kind = w->mapping_first_chunk == RETURN_PROBES ? CFA_RETURN_PROBE : CFA_FRAME_POINTER;
		return w->mapping_first_chunk == RETURN_PROBES || w->mapping_first_chunk == FRAME_POINTERS ? GO_ON : STOP(NO_TABLE);
	}
	if (chunk_number >= w->mapping_chunks)
		return without_rule(w, rule);
	index = w->mapping_first_chunk + (u32)chunk_number;
	chunk = bpf_map_lookup_elem(MAP(chunks), &index);
	if (!chunk)
		return STOP(NO_TABLE);
	low = *(volatile u32 *)&chunk->first;
	left = *(volatile u32 *)&chunk->count;
	if (low == NOT_LOADED) {
		request(w, REQUEST_CHUNK, index);
		return STOP(NO_TABLE);
	}
	if (left == 0)
		return without_rule(w, rule);
	if (!find_row(low, left, (place & 0xffff) << 16 | 0xffff, &row))
		return STOP(NO_TABLE);
	index = row & 0xffff;
	found = bpf_map_lookup_elem(MAP(rules), &index);
	if (!found)
		return STOP(NO_RULE);
	*rule = *found;
	return rule->cfa_kind == CFA_NONE ? without_rule(w, rule) : GO_ON;
}

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

/* Says in the stack that the frames from here on were found without a rule, once. */
static __always_inline void mark(struct walk *w, u64 cfa)
{
	u32 frame = w->d.user_depth, word = w->d.kernel_depth + frame;

	if (w->marked || frame >= MAX_FRAMES)
		return;
	asm volatile("" : "+r"(word));
	asm volatile("" : "+r"(frame));
	w->marked = true;
	w->d.words[word & (WORDS - 1)] = FOUND_WITHOUT_RULE;
	w->hash = mix(w->hash, FOUND_WITHOUT_RULE);
	w->cfa[frame & (MAX_FRAMES - 1)] = cfa; /* as that of the frame before: they stay in order */
	w->d.user_depth = frame + 1;
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

/* Stores the next frame of this CPU's walk and finds its caller. */
VERIFIED_ONCE int step(void)
{
	struct walk *w = this_walk();
	struct rule rule = {};
	u32 frame, word;
	u64 at, cfa;
	int stop;

	if (!w)
		return STOP(NO_PROCESS);
	frame = w->d.user_depth;
	word = w->d.kernel_depth + frame;
	at = w->pc - !w->interrupted;
	if (frame >= MAX_FRAMES)
		return STOP(TOO_DEEP);
	asm volatile("" : "+r"(word)); /* else clang removes the masks, which the verifier needs */
	asm volatile("" : "+r"(frame));
	w->d.words[word & (WORDS - 1)] = at;
	w->hash = mix(w->hash, at);
	w->d.user_depth = frame + 1;
	w->cfa[frame & (MAX_FRAMES - 1)] = 0;
#ifndef COMPILED_BY_BCC /* the walk has to stay small where every function is inlined */
	if (w->process.runtimes & 1 << HOTSPOT_CODE) {
		stop = hotspot_step();
		if (stop != NO_BLOB) {
			lose_registers(w);
			return stop;
		}
	}
#endif
	if (!find_mapping(w, at)) {
		if (called_null(w))
			return GO_ON;
		request(w, REQUEST_MAPPING, at);
		return STOP(NO_MAPPING);
	}
	if (is_v8_code(w, at) && leave_v8_frame()) {
		w->cfa[frame & (MAX_FRAMES - 1)] = w->sp;
		lose_registers(w);
		w->interrupted = w->all_registers = false;
		return w->pc ? GO_ON : STOP(COMPLETE);
	}
	w->without_rule = false;
	stop = find_rule(w, at, &rule);
	if (stop)
		return stop;
	if (rule.cfa_kind == CFA_END)
		return STOP(COMPLETE);
	if (rule.cfa_kind == CFA_SIGNAL)
		return step_over_signal(w, frame, word);
	if (rule.cfa_kind == CFA_RETURN_PROBE) {
		if (!leave_return_probe(w))
			return STOP(NO_RULE);
		w->d.user_depth = frame; /* the page is no caller */
		return GO_ON;
	}
	stop = rule.cfa_kind == CFA_FRAME_POINTER ? follow_frame_pointer(w, &cfa) : find_cfa(w, &rule, &cfa);
	if (stop)
		return stop;
	if (cfa + (rule.cfa_kind >= RETURN_REGISTER) <= w->sp && !CHANGES_STACK(rule.cfa_kind))
		return STOP(NO_RULE); /* stacks grow downwards, so this is no caller */
	if (rule.cfa_kind == CFA_FRAME_POINTER || rule.cfa_kind == CFA_MORESTACK)
		lose_registers(w);
	else if ((stop = read_caller(w, &rule, cfa)))
		return stop;
	w->cfa[frame & (MAX_FRAMES - 1)] = cfa;
	if (w->without_rule)
		mark(w, cfa);
	w->sp = cfa;
	w->interrupted = w->all_registers = false;
	return w->pc ? GO_ON : STOP(COMPLETE);
}

/* Whether all that the walk read was of this process and its files. A walk may stand still for any time, because the host
 * of a virtual CPU runs something else. Meanwhile user space may use the mappings of the process for another one, or the
 * rows of a file for another one. */
static __always_inline bool tables_stayed(struct walk *w)
{
	u32 pid = w->known_as, zero = 0, *evictions_now = bpf_map_lookup_elem(MAP(evictions), &zero);
	struct process *now = bpf_map_lookup_elem(MAP(processes), &pid);

	return evictions_now && *(volatile u32 *)evictions_now == w->evictions && now &&
		   *(volatile u32 *)&now->generation == w->process.generation;
}

/* Cuts the stack of a walk at its first frame, which comes from the registers. Managed frames may be of others. */
static __always_inline void cut(struct walk *w, enum end end)
{
	w->d.user_depth = 1;
	w->d.managed_depth = 0;
	w->d.end = end;
	w->cfa[0] = 0;
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

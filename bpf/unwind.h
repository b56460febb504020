/* SPDX-License-Identifier: GPL-2.0-only */
/* Walks user stacks by unwinding tables (collector/unwind/cfi/section.py makes the tables from .eh_frame).
 *
 * A frame is its pc, sp and frame pointer. The rule for pc says where the canonical frame address is (CFA: the caller's
 * sp), and where the caller's registers were saved.
 */
#ifndef ICESTREAM_UNWIND_H
#define ICESTREAM_UNWIND_H

#include "return_probes.h"
#ifdef __TARGET_ARCH_arm64
#include "aarch64.h"
#else
#include "hotspot_frames.h"
#include "v8_frames.h"
#include "x86_64.h"
#endif

#ifdef COMPILED_BY_BCC
#define FRAMES_PER_RUN 16
#else
#define FRAMES_PER_RUN 64
#endif
#define RUNS 8

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
#if !defined(COMPILED_BY_BCC) && !defined(__TARGET_ARCH_arm64) /* BCC's walk has to stay small: it inlines all */
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
#ifndef __TARGET_ARCH_arm64
	if (is_v8_code(w, at) && leave_v8_frame()) {
		w->cfa[frame & (MAX_FRAMES - 1)] = w->sp;
		lose_registers(w);
		w->interrupted = w->all_registers = false;
		return w->pc ? GO_ON : STOP(COMPLETE);
	}
#endif
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
	if (!is_outside(w, &rule, cfa))
		return STOP(NO_RULE);
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

#endif

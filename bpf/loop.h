/* SPDX-License-Identifier: GPL-2.0-only */
/* Finds the native frames of managed ones where an interpreter calls its loop, the C function that executes code, once for
 * each of them, and no address tells which call is whose: the k-th managed frame is that of the k-th native frame whose pc
 * lies in the loop.
 *
 * They are counted from the leaf, because a stack may be cut at the other end. But the innermost call of the loop has no
 * managed frame (yet) where a thread enters or leaves the loop: then a stack that was walked to its end has one native
 * frame more.
 */
#ifndef ICESTREAM_LOOP_H
#define ICESTREAM_LOOP_H

#include "unwind.h"

/* The code of the loop in a process. Compilers move what is seldom executed to a second place (empty if they did not). */
struct loop {
	struct {
		u64 start;
		u64 end;
	} parts[2];
};

/* 1 if the user frame executes the loop, else 0. Without branches: else the verifier would follow each path. */
static __always_inline u64 executes(struct walk *w, struct loop *loop, u32 frame)
{
	u32 word = w->d.kernel_depth + frame;
	u64 at, first, second;

	asm volatile("" : "+r"(word));
	at = w->d.words[word & (WORDS - 1)];
	first = (at - loop->parts[0].end) & ~(at - loop->parts[0].start);
	second = (at - loop->parts[1].end) & ~(at - loop->parts[1].start);
	return (first | second) >> 63;
}

/* Puts one of the managed frames in a place; any number is allowed. */
static __always_inline void set_place(struct walk *w, u64 frame, u64 place)
{
	u64 word = 2 * frame;

	asm volatile("" : "+r"(word));
	word &= 2 * MAX_FRAMES - 1;
	w->managed[word] = (w->managed[word] & ~(UNPLACED << PLACE_SHIFT)) | place << PLACE_SHIFT;
}

/* Places the managed frames of a walk, which all are of this loop and have WITH_NEXT. The hash of the stack needs no
 * change: its places follow from what else it is of. */
static __always_inline void place_by_loop(struct walk *w, struct loop *loop)
{
	u64 calls = 0, at = 0, frames = w->d.managed_depth;
	u32 i;

	set_place(w, frames - 1, UNPLACED);
#pragma clang loop unroll(disable)
	for (i = 0; i < MAX_FRAMES; i++) {
		if (i >= w->d.user_depth)
			break;
		calls += executes(w, loop, i);
	}
	if (w->d.end == COMPLETE && calls == frames + 1)
		at = -1;
#pragma clang loop unroll(disable)
	for (i = 0; i < MAX_FRAMES; i++) {
		if (i >= w->d.user_depth)
			break;
		set_place(w, at, i);
		at += executes(w, loop, i);
	}
	set_place(w, at, UNPLACED);
}

#endif

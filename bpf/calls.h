/* SPDX-License-Identifier: GPL-2.0-only */
/* Finds callers where no rule says where they are, by the instructions that the return addresses follow (x86-64).
 * Instructions: Intel's manual, volume 2: CALL, JMP. */
#ifndef ICESTREAM_CALLS_H
#define ICESTREAM_CALLS_H

#include "task.h"

#define MOST_PROLOGUE_BYTES 32
#define MOST_WORDS_AT_START 16 /* in the frames between that of main and _start's */

/* The byte so many bytes before the end of the word. */
#define BYTE(word, n) ((word) >> (64 - 8 * (n)) & 0xff)

/* call *r/m: FF /2, in an instruction of so many bytes that ends with the word. */
#define IS_CALL(word, n) (BYTE(word, n) == 0xff && (BYTE(word, (n) - 1) & 0x38) == 0x10)

/* Whether the instruction before an address is a call. */
static __always_inline bool follows_call(u64 at)
{
	u64 code;

	if (!read_word(at - sizeof(code), &code))
		return false;
	return BYTE(code, 5) == 0xe8 || IS_CALL(code, 2) || IS_CALL(code, 3) || IS_CALL(code, 4) || IS_CALL(code, 6) ||
		   IS_CALL(code, 7);
}

/* Returns the function that the instruction before an address calls, through a linkage table or not; 0: it is no call of a
 * constant address. */
static __always_inline u64 called_before(u64 at)
{
	u64 code, target, slot;

	if (!read_word(at - sizeof(code), &code))
		return 0;
	target = slot = at + (u64)(s64)((s64)code >> 32);
	if (BYTE(code, 6) == 0xff && BYTE(code, 5) == 0x15) /* call *rel32(%rip) */
		return read_word(slot, &target) ? target : 0;
	if (BYTE(code, 5) != 0xe8)
		return 0;
	if (!read_word(target, &code))
		return 0;
	if ((code & 0xffffffff) == 0xfa1e0ff3) { /* endbr64 */
		slot = target + 4;
		if (!read_word(slot, &code))
			return 0;
	} else {
		slot = target;
	}
	if ((code & 0xff) == 0xf2) { /* bnd */
		code >>= 8;
		slot += 1;
	}
	if ((code & 0xffff) != 0x25ff) /* jmp *rel32(%rip) */
		return target;
	slot += 6 + (u64)(s64)(s32)(code >> 16 & 0xffffffff);
	return read_word(slot, &target) ? target : 0;
}

/* Whether the call before an address is of the function that was interrupted. */
static __always_inline bool called_this(struct walk *w, u64 at, u64 most_bytes)
{
	u64 start = called_before(at);

	return start && start <= w->pc && w->pc - start < most_bytes;
}

/* Finds the caller of an interrupted function that may have no frame (yet, or any more). */
static __always_inline bool find_caller_without_frame(struct walk *w, u64 *cfa)
{
	u64 words[2];

	if (bpf_probe_read_user(words, sizeof(words), (void *)w->sp))
		return false;
	if (called_this(w, words[0], MOST_CODE_BYTES)) {
		*cfa = w->sp + 8;
		w->pc = words[0];
		return true;
	}
	if (!called_this(w, words[1], MOST_PROLOGUE_BYTES))
		return false;
	*cfa = w->sp + 16; /* only the frame pointer was saved */
	w->bp = words[0];
	w->pc = words[1];
	return true;
}

/* Finds where a program was started, from a frame right above: _start calls the C library with an aligned stack, so its
 * return address lies just below where the kernel put the arguments. False: something else may have called this. */
static __always_inline bool find_start(struct walk *w, u64 *cfa)
{
	u64 start_at = (w->image.start_stack & -16UL) - 8, start, word;
	u32 i;

	if (start_at - w->sp > MOST_WORDS_AT_START * 8 || !read_word(start_at, &start) || !follows_call(start))
		return false;
#pragma clang loop unroll(disable)
	for (i = 0; i < MOST_WORDS_AT_START; i++) {
		if (w->sp + 8 * i >= start_at)
			break;
		if (!read_word(w->sp + 8 * i, &word) || follows_call(word))
			return false;
	}
	*cfa = start_at + 8;
	w->bp = 0;
	w->pc = start;
	return true;
}

#endif

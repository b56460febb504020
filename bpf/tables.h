/* SPDX-License-Identifier: GPL-2.0-only */
/* Finds the rule for an address in the unwinding tables (collector/unwind/tables). */
#ifndef ICESTREAM_TABLES_H
#define ICESTREAM_TABLES_H

#include "task.h"

/* collector/unwind/cfi/steps.py says what these mean; on aarch64, _RSP and _RBP are the stack and the frame pointer. */
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

#endif

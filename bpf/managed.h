/* SPDX-License-Identifier: GPL-2.0-only */
/* Managed frames: those of functions that are none of a file, because an interpreter executes them or a compiler made
 * them in the process. Each is two words:
 *   first:  bits 0..47   address of the object that user space reads names from
 *           bits 48..57  which user frame it replaces; WITH_NEXT: the same as the next managed frame; UNPLACED: one that
 *                        was not reached
 *           bits 60..63  enum managed_kind
 *   second: bits 0..31   where it executes, in the runtime's own units
 *           bits 32..63  a check of the object: its memory may be used for another one later
 * Those of one user frame come leaf first. collector/runtimes/merge.py puts them in their places.
 */
#ifndef ICESTREAM_MANAGED_H
#define ICESTREAM_MANAGED_H

#include "task.h"

enum managed_kind {
	OTHERS_MISSING, /* no frame: from here on, there were too many */
	PYTHON_CODE = 1, /* a code object of CPython (python_frames.h) */
	V8_FUNCTION, /* a SharedFunctionInfo of V8 (v8_frames.h) */
	HOTSPOT_CODE, /* a blob of a JVM (hotspot_frames.h) */
	HOTSPOT_METHOD, /* a Method of it */
	V8_CODE, /* only in requests: an address in code that V8 has compiled */
};

#define PLACE_SHIFT 48
#define KIND_SHIFT 60
#define OBJECT_MASK ((1ULL << PLACE_SHIFT) - 1)
#define WITH_NEXT 1022ULL
#define UNPLACED 1023ULL

/* The word at an offset in what was read of a process. `mask`: of its size, a power of two; behind it there is room for a
 * word more. */
static __always_inline u64 word_at(u64 *bytes, u32 offset, u32 mask)
{
	asm volatile("" : "+r"(offset));
	return *(u64 *)((u8 *)bytes + (offset & mask));
}

/* Objects that were requested, each at its hash. One that another displaces is requested again. */
#define SEEN_BITS 14

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1 << SEEN_BITS);
	__type(key, u32);
	__type(value, u64);
} seen_objects SEC(".maps");

/* Once for each identity and check. */
static __always_inline void request_object(struct walk *w, u64 kind_and_object, u64 identity, u64 check)
{
	u64 key = mix(mix(identity, w->pid), check), *seen;
	u32 slot = key >> (64 - SEEN_BITS);

	seen = bpf_map_lookup_elem(MAP(seen_objects), &slot);
	if (seen && *seen != key) {
		*seen = key;
		request(w, REQUEST_OBJECT, kind_and_object);
	}
}

/* Adds a managed frame in this place, and asks user space to read its object; in the last place one that says that others
 * are missing. False: there are too many. */
static __always_inline bool add_managed(struct walk *w, enum managed_kind kind, u64 object, u64 place, u32 check, u32 position)
{
	u32 at = w->d.managed_depth, first = 2 * at, second = first + 1;
	u64 kind_and_object = (u64)kind << KIND_SHIFT | (object & OBJECT_MASK), info = (u64)check << 32 | position;

	if (at >= MAX_FRAMES)
		return false;
	if (at == MAX_FRAMES - 1)
		kind_and_object = info = 0; /* OTHERS_MISSING */
	else
		request_object(w, kind_and_object, kind_and_object, check);
	asm volatile("" : "+r"(first)); /* else clang removes the masks, which the verifier needs */
	asm volatile("" : "+r"(second));
	w->managed[first & (2 * MAX_FRAMES - 1)] = kind_and_object | place << PLACE_SHIFT;
	w->managed[second & (2 * MAX_FRAMES - 1)] = info;
	w->d.managed_depth = at + 1;
	w->hash = mix(mix(w->hash, kind_and_object | place << PLACE_SHIFT), info);
	return true;
}

/* Puts the managed frames behind the user frames. */
static __always_inline void join_managed(struct walk *w)
{
	u32 at = w->d.kernel_depth + w->d.user_depth;
	u64 bytes = 2 * sizeof(u64) * w->d.managed_depth;

	asm volatile("" : "+r"(bytes)); /* else clang tests the depth instead */
	asm volatile("" : "+r"(at));
	if (bytes > sizeof(w->managed))
		return;
	bpf_probe_read_kernel(&w->d.words[at & (WORDS / 2 - 1)], bytes, w->managed);
}

#endif

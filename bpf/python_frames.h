/* SPDX-License-Identifier: GPL-2.0-only */
/* Walks the Python frames of the current thread.
 *
 * The walk goes from the runtime to its interpreters, to their threads, to the one with the pointer of the current thread,
 * to its innermost frame, and then from frame to frame. Since 3.11, one call of the C function that executes bytecode
 * executes a run of frames, because calls from Python to Python stay in it. That function has an object among its local variables: a
 * _PyCFrame (3.11, 3.12), or a frame that ends the run (since 3.13; its `owner` says so). The object's address tells
 * which native frame the run belongs to. Up to 3.10, each call executes one frame (loop.h).
 *
 * None of this is certain: the thread may be anywhere in the interpreter, which may be starting or ending. So every
 * address is read with a helper that can fail, code objects are recognised by their type, and every loop has an end.
 *
 * A Python frame is a managed frame (managed.h) of a code object. It executes so many bytes from the start of the
 * bytecode (in 3.10: units of two bytes). Its check is first line ^ address of the qualified name / 16 ^ version * CODE_VERSION_FACTOR. The outermost
 * frame of a run has the place of the run, the others have WITH_NEXT.
 */
#ifndef ICESTREAM_PYTHON_FRAMES_H
#define ICESTREAM_PYTHON_FRAMES_H

#include "loop.h"

#ifdef COMPILED_BY_BCC
#define PYTHON_FRAMES_PER_RUN 12
#else
#define PYTHON_FRAMES_PER_RUN 64
#endif
#define PYTHON_RUNS 12 /* enough for MAX_FRAMES and the interpreter's own frames; at most 33 tail calls are allowed in all */
#define PYTHON_SKIPPED_PER_RUN 200
#define PYTHON_SKIP_RUNS 6
#define PYTHON_SEARCHED 128 /* thread states to look at in one observation */
#define PYTHON_WAIT_FIRST_MS 10
#define PYTHON_WAIT_LAST_MS 640
#define MOST_THREAD_BYTES 4096 /* of struct pthread: 2 KB in glibc */

#define CODE_VERSION_FACTOR 0x9e3779 /* odd: versions that differ in their lowest 24 bits differ in the check */

enum { OWNED_BY_GENERATOR = 1, OWNED_BY_INTERPRETER = 3 }; /* and above */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PYTHON_LAYOUTS);
	__type(key, u32);
	__type(value, struct python_layout);
} python_layouts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1 << 13);
	__type(key, u32);
	__type(value, struct python_thread);
} python_threads SEC(".maps");

struct python_process {
	u64 runtime; /* address of _PyRuntime; of 3.6: of the first interpreter's address */
	u32 layout;	 /* row of python_layouts */
	u32 unused;
	struct loop loop; /* that executes bytecode */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 13);
	__type(key, u32);
	__type(value, struct python_process);
} python_processes SEC(".maps");

static __always_inline struct python_layout *layout_of(struct walk *w)
{
	u32 row = w->python.layout;

	return bpf_map_lookup_elem(MAP(python_layouts), &row);
}

#define FRAME_WORD(p, offset) word_at((p)->frame_bytes, (offset), 127)
#define CODE_WORD(p, offset) word_at((p)->code_bytes, (offset), 255)

/* Whether pthread_self() is that of the thread with this pointer. On aarch64, the C library's struct of a thread ends where
 * the pointer leads to. */
static __always_inline bool is_thread(u64 id, u64 pointer)
{
#ifdef __TARGET_ARCH_arm64
	return pointer - id < MOST_THREAD_BYTES;
#else
	return id == pointer;
#endif
}

/* Continues the search for the thread, over a limited number of threads at a time. False: there are no (more) threads. */
static __always_inline bool search_thread(struct python_layout *l, struct python_thread *t)
{
	u64 id;
	u32 i;

	t->state = 0;
	if (!t->interpreter) {
		if (!read_word(t->runtime + l->interpreters, &t->interpreter) || !t->interpreter)
			return false;
		if (!read_word(t->interpreter + l->threads, &t->next))
			t->next = 0;
	}
#pragma clang loop unroll(disable)
	for (i = 0; i < PYTHON_SEARCHED; i++) {
		if (!t->next) {
			if (!read_word(t->interpreter + l->interpreter_next, &t->interpreter) || !t->interpreter)
				break;
			if (!read_word(t->interpreter + l->threads, &t->next))
				break;
			continue;
		}
		t->state = t->next;
		if (!read_word(t->state + l->thread_id, &id) || !read_word(t->state + l->thread_next, &t->next))
			break;
		if (is_thread(id, t->pointer))
			return true;
	}
	t->state = 0;
	if (i < PYTHON_SEARCHED)
		t->interpreter = 0;
	return t->interpreter != 0;
}

static __always_inline bool is_state_of(struct python_layout *l, struct python_thread *t)
{
	u64 id;

	return t->state && read_word(t->state + l->thread_id, &id) && is_thread(id, t->pointer);
}

/* Whether the state belongs to the only interpreter. A thread has one state in each interpreter that it executes. */
static __always_inline bool is_alone(struct python_layout *l, struct python_thread *t)
{
	u64 first, next;

	return read_word(t->runtime + l->interpreters, &first) && first == t->interpreter &&
	       (t->alone || (read_word(first + l->interpreter_next, &next) && !next));
}

/* The thread state of the current thread; 0 if it has none, or if it was not found yet. */
static __always_inline u64 find_thread(struct walk *w, struct python_layout *l)
{
	struct python_thread *known, *t = &w->python.thread;
	u32 tid = w->tid;
	u64 before = 0, pointer = thread_pointer((void *)bpf_get_current_task());

	if (!pointer)
		return 0;
	known = bpf_map_lookup_elem(MAP(python_threads), &tid);
	if (known && known->runtime == w->python.runtime && known->pointer == pointer) {
		*t = *known;
		if (is_state_of(l, t)) {
			if (t->alone && is_alone(l, t))
				return t->state;
			before = t->state;
			t->interpreter = 0;
		} else if (t->state) { /* it was freed */
			t->interpreter = 0;
		} else if (w->time_monotonic_ns < t->again_monotonic_ns) {
			return 0;
		}
	} else {
		__builtin_memset(t, 0, sizeof(*t));
		t->runtime = w->python.runtime;
		t->pointer = pointer;
		t->wait_ms = PYTHON_WAIT_FIRST_MS;
	}
	t->alone = 0;
	if (!search_thread(l, t)) {
		t->again_monotonic_ns = w->time_monotonic_ns + t->wait_ms * 1000000ULL;
		if (t->wait_ms < PYTHON_WAIT_LAST_MS)
			t->wait_ms *= 2;
	}
	if (t->state) {
		t->alone = is_alone(l, t);
	} else if (before) {
		t->state = before;
		t->interpreter = 0;
	}
	bpf_map_update_elem(MAP(python_threads), &tid, t, BPF_ANY);
	return t->state;
}

/* The user frame in which the address `place` lies. Each frame reaches up to its CFA; the outermost may have none. */
static __always_inline u64 user_frame_of(struct walk *w, u64 place)
{
	u64 frames = w->d.user_depth, low = 0, step, at, above;

	at = frames - 1;
	asm volatile("" : "+r"(at));
	if (!w->cfa[at & (MAX_FRAMES - 1)])
		frames--;
#pragma clang loop unroll(disable)
	for (step = MAX_FRAMES / 2; step; step >>= 1) { /* without branches: else the verifier follows every path */
		at = low + step - 1;
		asm volatile("" : "+r"(at));
		above = (w->cfa[at & (MAX_FRAMES - 1)] - place - 1) & (at - frames);
		low += step & -(above >> 63);
		asm volatile("" : "+r"(low));
	}
	return place && low < frames ? low : UNPLACED;
}

/* Ends a run of frames: the C function in whose native frame `place` lies executed it. */
static __always_inline void end_run(struct walk *w, u64 place)
{
	u32 word = 2 * w->d.managed_depth - 2;
	u64 frame;

	if (w->d.managed_depth > w->python.run_start) {
		frame = user_frame_of(w, place);
		asm volatile("" : "+r"(word));
		w->managed[word & (2 * MAX_FRAMES - 1)] ^= (frame ^ WITH_NEXT) << PLACE_SHIFT;
		w->hash = mix(w->hash, frame);
		w->python.run_start = w->d.managed_depth;
	}
}

/* How many bytes from the start of its bytecode the frame that was read executes. */
static __always_inline s64 find_position(struct python_walk *p, struct python_layout *l, u64 code)
{
	u64 start = code + l->code_bytecode, copy;

	if (!l->frame_owner)
		return (s32)FRAME_WORD(p, l->frame_instruction);
	if (l->code_copies) {
		copy = (u32)FRAME_WORD(p, l->frame_copy);
		if (copy && !read_word(CODE_WORD(p, l->code_copies) + 8 * (copy + 1), &start)) /* behind their number */
			return 0;
	}
	return FRAME_WORD(p, l->frame_instruction) - start;
}

/* Adds the frame that was read. False: it is no frame. */
static __always_inline bool add_frame(struct walk *w, struct python_layout *l, u8 owner)
{
	struct python_walk *p = &w->python;
	u64 code = FRAME_WORD(p, l->frame_code) & ~7ULL; /* the lowest bits say how references are counted */
	s64 offset;
	u32 check;

	if (!code || bpf_probe_read_user(p->code_bytes, l->code_bytecode & 255, (void *)code))
		return false;
	if (l->code_type && CODE_WORD(p, l->object_type) != p->runtime + (u64)l->code_type)
		return false;
	offset = find_position(p, l, code);
	if (owner != OWNED_BY_GENERATOR && offset < 2 * (s64)(u32)CODE_WORD(p, l->code_traceable))
		return true; /* not complete: left out, as CPython does */
	check = CODE_WORD(p, l->code_line) ^ CODE_WORD(p, l->code_name) >> 4;
	if (l->code_version)
		check ^= CODE_WORD(p, l->code_version) * CODE_VERSION_FACTOR;
	return add_managed(w, PYTHON_CODE, code, WITH_NEXT, check, offset > 0 ? offset : 0);
}

static __always_inline bool read_frame(struct python_walk *p, struct python_layout *l)
{
	u32 bytes = l->frame_owner ? PYTHON_FRAME_BYTES : PYTHON_FRAME_OBJECT_BYTES;

	return p->frame && !bpf_probe_read_user(p->frame_bytes, bytes, (void *)p->frame);
}

/* Takes the next frame of this CPU's walk. False: there is none, or there were too many. */
VERIFIED_ONCE bool step_python(void)
{
	struct walk *w = this_walk();
	struct python_layout *l;
	struct python_walk *p;
	bool ends = true;
	u8 owner;

	if (!w)
		return false;
	p = &w->python;
	l = layout_of(w);
	if (!l || w->d.managed_depth >= MAX_FRAMES || !read_frame(p, l))
		return false;
	owner = l->frame_owner ? FRAME_WORD(p, l->frame_owner) : OWNED_BY_GENERATOR; /* it is complete */
	if (owner < OWNED_BY_INTERPRETER) {
		if (!add_frame(w, l, owner))
			return false;
		ends = l->frame_is_entry && (u8)FRAME_WORD(p, l->frame_is_entry);
	}
	if (ends) {
		end_run(w, l->cframes ? p->cframe : p->frame);
		if (l->cframes && !read_word(p->cframe + l->cframe_previous, &p->cframe))
			return false;
	}
	p->frame = FRAME_WORD(p, l->frame_previous);
	return true;
}

/* Looks for the end of a run that has too many outer frames. False: it was found, or cannot be found. */
static __always_inline bool skip_python(struct walk *w, struct python_layout *l)
{
	struct python_walk *p = &w->python;

	if (!read_frame(p, l))
		return false;
	if ((u8)FRAME_WORD(p, l->frame_owner) >= OWNED_BY_INTERPRETER) {
		end_run(w, p->frame);
		return false;
	}
	p->frame = FRAME_WORD(p, l->frame_previous);
	return true;
}

/* Finds the innermost frame of a thread state. False: it executes no Python. */
static __always_inline bool start_frames(struct python_walk *p, struct python_layout *l, u64 state)
{
	p->frame = p->cframe = 0;
	if (!state || !read_word(state + l->thread_frame, &p->frame))
		return false;
	if (l->cframes) {
		p->cframe = p->frame;
		return p->cframe && read_word(p->cframe + l->cframe_frame, &p->frame);
	}
	return true;
}

/* Finds the CPython that the process runs. 0: it is not known. */
static __always_inline struct python_layout *find_python(struct walk *w)
{
	u32 pid = w->known_as;
	struct python_process *known = bpf_map_lookup_elem(MAP(python_processes), &pid);

	if (!known)
		return 0;
	w->python.runtime = known->runtime;
	w->python.layout = known->layout;
	return layout_of(w);
}

/* Finds the innermost frame of the current thread. False: it executes no Python. */
static __always_inline bool start_python(struct walk *w, struct python_layout *l)
{
	w->python.run_start = w->d.managed_depth;
	return start_frames(&w->python, l, find_thread(w, l));
}

/* Finds the innermost frame in the interpreter that called the previous one. False: there is none. */
static __always_inline bool continue_python(struct python_walk *p, struct python_layout *l)
{
	if (!p->thread.interpreter)
		return false;
	search_thread(l, &p->thread);
	return start_frames(p, l, p->thread.state);
}

#endif

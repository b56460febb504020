/* SPDX-License-Identifier: GPL-2.0-only */
/* Leaves frames of V8 (Node 16 and newer), and takes their functions.
 *
 * All code that V8 generates keeps a frame pointer: the interpreter's, that of its compilers, and builtins. Below rbp lie a
 * context and the function (JSFunction), or a number that says what kind of frame it is, which is even (src/execution/
 * frame-constants.h). A function leads to its SharedFunctionInfo, which all closures of it have in common, and which
 * collections move seldom. Both are recognised by the types that their maps have.
 * Code that has no frame of its own (yet, or any more) is taken for that of the function whose frame rbp points to.
 *
 * Its check is numbers of parameters ^ (ID ^ ID of its script << 16) * V8_ID_FACTOR. Its position is V8_COMPILED | the
 * lower bits of an address in what V8 has compiled; or, in V8's interpreter, the offset in the BytecodeArray, from its
 * tagged pointer on; 0: not known.
 */
#ifndef ICESTREAM_V8_FRAMES_H
#define ICESTREAM_V8_FRAMES_H

#include "calls.h"
#include "managed.h"
#include "node_context.h"

#define V8_ID_FACTOR 0x9e3779b1U
#define V8_FRAME_KINDS 256 /* twice as many as there may be */
#define V8_TYPE 12		   /* in a map */
#define V8_SCRIPT_ID 64	   /* in a Script: a small integer */

#define V8_COMPILED (1U << 31)
#define V8_WORDS_OF_BUILTIN 4 /* that one without a frame may have on the stack */
#define V8_PAGE_BITS 12 /* code is requested once for so many bits of addresses, and each function */

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 10);
	__type(key, u32);
	__type(value, struct v8_process);
} v8_processes SEC(".maps");

static __always_inline struct v8_process *find_v8(struct walk *w)
{
	u32 pid = w->known_as;

	return bpf_map_lookup_elem(MAP(v8_processes), &pid);
}

/* Whether code at an address in the walk's mapping is V8's. */
static __always_inline bool is_v8_code(struct walk *w, u64 at)
{
	struct v8_process *v8;

	if (!(w->process.runtimes & 1 << V8_FUNCTION))
		return false;
	v8 = find_v8(w);
	return v8 && ((!w->mapping_chunks && w->mapping_first_chunk == FRAME_POINTERS) ||
				  at - v8->builtins[0].start < v8->builtins[0].bytes || at - v8->builtins[1].start < v8->builtins[1].bytes);
}

/* Reads the start of an object. The type of the object; 0 if it cannot be read. */
static __always_inline u32 read_v8_object(struct walk *w, u64 object, u32 bytes)
{
	u64 map;
	u16 type;

	asm volatile("" : "+r"(bytes)); /* else clang removes the mask, which the verifier needs */
	if (!V8_IS_POINTER(object) || bpf_probe_read_user(w->v8.object, bytes & (V8_OBJECT_BYTES - 1), (void *)(object - 1)))
		return 0;
	map = w->v8.object[0];
	if (!V8_IS_POINTER(map) || bpf_probe_read_user(&type, sizeof(type), (void *)(map - 1 + V8_TYPE)))
		return 0;
	return type;
}

#define V8_WORD(w, offset) word_at((w)->v8.object, (offset), V8_OBJECT_BYTES - 1)

/* What lies around rbp. */
struct v8_frame {
	u64 bytecode_offset;
	u64 bytecode_array;
	u64 arguments;
	u64 function;
	u64 context; /* or the kind of the frame */
	u64 bp;		 /* the caller's */
	u64 pc;
};

/* Where the interpreter is in a frame, as the offset from a BytecodeArray; 0: it does not execute this frame. Its handlers
 * have the offset in a register, and store it before they call something. */
static __always_inline u32 v8_bytecode_offset(struct walk *w, struct v8_process *v8, struct v8_frame *frame)
{
	u64 stored = frame->bytecode_offset, live = w->registers[9];

	if ((u32)stored || read_v8_object(w, frame->bytecode_array, 16) != v8->bytecode_type)
		return 0;
	if (w->all_registers && w->registers[12] == frame->bytecode_array && live < V8_OBJECT_BYTES + (w->v8.object[1] >> 32))
		return live;
	return stored >> 32;
}

/* Where the code of a frame is executing. */
static __always_inline u32 v8_position(struct walk *w, struct v8_process *v8, struct v8_frame *frame, u64 *code)
{
	u64 at = w->pc - !w->interrupted;
	u32 offset, i;

	if (w->mapping_chunks || w->mapping_first_chunk != FRAME_POINTERS) {
		offset = v8_bytecode_offset(w, v8, frame);
		if (offset)
			return offset;
		/* A builtin without a frame, which compiled code has called? */
#pragma clang loop unroll(disable)
		for (i = 0; i < V8_WORDS_OF_BUILTIN; i++) {
			if (read_word(w->sp + 8 * i, &at) && follows_call(at))
				break;
		}
		if (i == V8_WORDS_OF_BUILTIN)
			return 0;
		at--;
	}
	*code = at;
	return V8_COMPILED | at;
}

/* Takes the function of the walk's last frame. False: it is none. */
static __always_inline bool take_v8_function(struct walk *w, struct v8_process *v8, struct v8_frame *frame)
{
	u32 type = read_v8_object(w, frame->function, v8->function_shared + 8), check;
	u64 shared, numbers, script = 0, code = 0;

	if (type < v8->function_first || type > v8->function_last)
		return false;
	shared = V8_WORD(w, v8->function_shared);
	if (read_v8_object(w, shared, v8->shared_id + 4) != v8->shared_type)
		return false;
	numbers = V8_WORD(w, v8->shared_flags - 8) << 16 >> 16;
	if (v8->shared_script && !read_word(V8_WORD(w, v8->shared_script) - 1 + V8_SCRIPT_ID, &script))
		return false;
	check = (u32)(numbers ^ numbers >> 32) ^ ((u32)V8_WORD(w, v8->shared_id) ^ (u32)(script >> 32) << 16) * V8_ID_FACTOR;
	add_managed(w, V8_FUNCTION, shared - 1, w->d.user_depth - 1, check, v8_position(w, v8, frame, &code));
	if (code)
		request_object(w, (u64)V8_CODE << KIND_SHIFT | code, code >> V8_PAGE_BITS, check);
	return true;
}

/* Finds the caller of the frame that was stored last, which is one of V8's code. False: rbp points to no frame of V8. */
VERIFIED_ONCE int leave_v8_frame(void)
{
	struct walk *w = this_walk();
	struct v8_process *v8;
	struct v8_frame frame;
	u64 cfa;

	if (!w)
		return false;
	v8 = find_v8(w);
	if (!v8 || w->bp < w->sp || w->bp - w->sp > MOST_FRAME_BYTES || w->bp & 7 ||
		bpf_probe_read_user(&frame, sizeof(frame), (void *)(w->bp - 40)))
		return false;
	cfa = w->bp + 16;
	if (w->all_registers && !called_this(w, frame.pc, MOST_CODE_BYTES) && find_caller_without_frame(w, &cfa)) {
		w->sp = cfa;
		return true;
	}
	if ((frame.context & 1 || frame.context >= V8_FRAME_KINDS) &&
		!(V8_IS_POINTER(frame.context) && take_v8_function(w, v8, &frame)))
		return false;
	w->bp = frame.bp;
	w->pc = frame.pc;
	w->sp = cfa;
	return true;
}

#endif

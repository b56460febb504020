/* SPDX-License-Identifier: GPL-2.0-only */
/* Walks the frames of HotSpot JVMs, JDK 11 and newer, on x86-64.
 *
 * All code that a JVM generates lies in blobs in its code heaps. What a frame looks like depends on the blob:
 *   nmethod            a compiled method. Its frame has a fixed size: return address and saved rbp are at its end. rbp
 *                      itself is used for anything.
 *   interpreter        rbp is the frame pointer. Below are caller's sp, Method, bytecode pointer, each in a fixed place.
 *   adapters, vtables  no frame. An adapter has moved the caller's sp, which is in r13.
 *   others             stubs with a size as an nmethod's; or without one, and then with a frame pointer or no frame.
 * Where a frame is that was interrupted while it was built or removed, the instructions there say (find_frame).
 * Whatever comes out, the caller must have just called, or be code by which the JVM replaces a return address.
 *
 * A frame of a compiled method, or of a stub, is a managed frame HOTSPOT_CODE: the blob; as check the number of the
 * compilation, which is unique in its process, or 0; and how far its code, or that of a stub its blob, was executed. One
 * of an interpreted method is HOTSPOT_METHOD: the Method; a check, see check_of; and the bytecode.
 */
#ifndef ICESTREAM_HOTSPOT_FRAMES_H
#define ICESTREAM_HOTSPOT_FRAMES_H

#include "calls.h"
#include "managed.h"

#define NO_BLOB (-1) /* hotspot_step: the address is none of a code heap */
#define MOST_HOPS 32 /* from segment to segment; 18 were seen */
#define SEGMENT_FREE 255
#define MOST_FRAME_WORDS (1 << 17)
#define MOST_PUSHED_WORDS 6 /* that compiled code may have pushed below a call, beyond its frame */
#define MOST_STUB_BYTES (1 << 14)
#define MOST_LOCALS_BYTES (1 << 19)
#define MOST_ARGUMENTS_BYTES 4096
#define STACK_OF_METHOD_BYTES (1 << 20)

/* How names of blobs begin. */
#define NMETHOD 0x00646f6874656d6eULL	   /* "nmethod\0" */
#define NATIVE_NMETHOD 0x6e2065766974616eULL /* "native n" */
#define INTERPRETER 0x6572707265746e49ULL	   /* "Interpre" */
#define ADAPTERS 0x204932432f433249ULL	   /* "I2C/C2I " */
#define METHOD_HANDLES 0x61486f646874654dULL /* "MethodHa" */
#define VTABLES 0x6320656c62617476ULL	   /* "vtable c" */
#define STUBS 0x74756f5262757453ULL	   /* "StubRout" */
#define CONTINUATION_STUBS 0x61756e69746e6f63ULL /* "continua", behind "StubRoutines (" */

/* What the stub that compiled methods call at their entry after a collection of garbage pushes before rbp. */
#define ENTRY_BARRIER (~0ULL)

enum { RAX = 0, RBX = 3, R13 = 13 }; /* in walk.registers */
enum frame_state { FRAME_THERE, ONLY_PUSHED_RBP, NO_FRAME };

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 10);
	__type(key, u32);
	__type(value, struct hotspot_process);
} hotspot_processes SEC(".maps");

/* What is found of the caller of a frame. */
struct caller {
	u64 pc;
	u64 sp;
	u64 bp;
};

/* What is shipped of a frame. */
struct managed_frame {
	enum managed_kind kind;
	u32 check;
	u32 position;
	u64 object;
};

static __always_inline struct hotspot_process *hotspot_of(struct walk *w)
{
	u32 pid = w->known_as;

	return bpf_map_lookup_elem(MAP(hotspot_processes), &pid);
}

static __always_inline u64 blob_word(struct walk *w, struct hotspot_process *p, u32 offset)
{
	return word_at(w->hotspot.bytes, p->block_header + offset, BLOB_BYTES - 1);
}

/* The address in a field that is an offset in the blob or a pointer. */
static __always_inline u64 blob_address(struct walk *w, struct hotspot_process *p, u32 offset)
{
	u64 word = blob_word(w, p, offset);

	return p->code_is_offset ? w->hotspot.blob + (u64)(s64)(s32)word : word;
}

/* Reads the blob with the code at an address. 1: it was read, 0: there is none, NO_BLOB: the address is none of a heap. */
VERIFIED_ONCE int find_blob(u64 at)
{
	struct walk *w = this_walk();
	struct hotspot_process *p;
	u64 low = 0, segments = 0, segment, block;
	u32 i, bytes;
	u8 tag = 0;

	if (!w)
		return NO_BLOB;
	w->hotspot.blob = 0;
	p = hotspot_of(w);
	if (!p)
		return NO_BLOB;
#pragma clang loop unroll(full)
	for (i = 0; i < HOTSPOT_HEAPS; i++) {
		if (at - p->heaps[i].low < p->heaps[i].high - p->heaps[i].low) {
			low = p->heaps[i].low;
			segments = p->heaps[i].segments;
		}
	}
	if (!low)
		return NO_BLOB;
	segment = (at - low) >> (p->shift & 31);
#pragma clang loop unroll(disable)
	for (i = 0; i < MOST_HOPS; i++) {
		if (bpf_probe_read_user(&tag, sizeof(tag), (void *)(segments + segment)) || tag == SEGMENT_FREE)
			return 0;
		if (!tag)
			break;
		segment -= tag;
	}
	block = low + (segment << (p->shift & 31));
	bytes = p->block_header + p->blob_bytes;
	if (tag || bytes > BLOB_BYTES || bpf_probe_read_user(w->hotspot.bytes, bytes & (BLOB_BYTES - 1), (void *)block))
		return 0;
	if (!(u8)word_at(w->hotspot.bytes, p->block_used, BLOB_BYTES - 1))
		return 0;
	w->hotspot.blob = block + p->block_header;
	return 1;
}

/* How the name of the blob begins. 0: it cannot be read. */
static __always_inline u64 blob_name(struct walk *w, struct hotspot_process *p)
{
	u64 name;

	return read_word(blob_word(w, p, p->blob_name), &name) ? name : 0;
}

static __always_inline bool has_continuation_stubs(struct walk *w, struct hotspot_process *p)
{
	u64 name;

	return read_word(blob_word(w, p, p->blob_name) + 14, &name) && name == CONTINUATION_STUBS;
}

/* Whether a frame may return to an address: behind a call; in the interpreter, which jumps to what it calls; or where the
 * JVM lets a frame return instead. `throws`: it may be a stub for exceptions, whose return address becomes that of the
 * instruction that throws. Reads the blob there. */
VERIFIED_ONCE int returns_to(u64 at, u32 throws)
{
	struct walk *w = this_walk();
	struct hotspot_process *p;
	u64 name;

	if (follows_call(at))
		return 1;
	if (!w || find_blob(at) <= 0)
		return 0;
	p = hotspot_of(w);
	if (!p)
		return 0;
	name = blob_name(w, p);
	if (name == INTERPRETER)
		return 1;
	if (name == NMETHOD)
		return throws || at == blob_address(w, p, p->nmethod_deopt) || at == blob_address(w, p, p->nmethod_deopt_mh);
	return name == STUBS && has_continuation_stubs(w, p);
}

static __always_inline bool is_sub_rsp(u64 code) /* 48 81 ec n n n n, 48 83 ec n */
{
	return (code & 0xfffdff) == 0xec8148;
}

/* Where the frame of interrupted compiled code is, by the instructions there (src/hotspot/cpu/x86/: C1 and C2 write
 * them): mov %eax, -n(%rsp); push %rbp; [mov %rsp, %rbp]; sub n, %rsp; [a barrier];
 * or sub n, %rsp; mov %rbp, n(%rsp); and at the end add n, %rsp; pop %rbp; [a poll of the thread]; ret. */
static __always_inline enum frame_state find_frame(struct walk *w, u64 code, u32 complete)
{
	u64 *words = w->hotspot.words, before, next, there = 0;
	u32 i;

	if (bpf_probe_read_user(words, 4 * sizeof(u64), (void *)(w->pc - 24)))
		return FRAME_THERE;
	before = words[2];
	next = words[3];
	if (w->pc - code < complete) {
		if ((before >> 56 == 0x55 && (is_sub_rsp(next) || (next & 0xffffff) == 0xec8b48)) ||
			(before >> 32 == 0xec8b4855 && is_sub_rsp(next)))
			return ONLY_PUSHED_RBP;
#pragma clang loop unroll(full)
		for (i = 0; i <= 20; i++) {
			u64 part = words[i / 8] >> 8 * (i % 8);

			if (i % 8)
				part |= words[i / 8 + 1] << (64 - 8 * (i % 8));
			there |= (((part & 0xfffdff) ^ 0xec8148) - 1) >> 63; /* without branches */
		}
		return there ? FRAME_THERE : NO_FRAME;
	}
	if ((next & 0xff) == 0x5d) /* pop %rbp */
		return ONLY_PUSHED_RBP;
	if ((next & 0xff) == 0xc3 || (next & 0xff) == 0x55) /* ret; push %rbp */
		return NO_FRAME;
	if ((next & 0xffffff) == 0x673b49 || (next & 0xffffff) == 0xa73b49) /* cmp n(%r15), %rsp */
		return NO_FRAME;
	if ((next & 0xffff) == 0x870f && ((before >> 32 & 0xffffff) == 0x673b49 || (before >> 8 & 0xffffff) == 0xa73b49))
		return NO_FRAME; /* ja, behind it */
	if (before >> 56 == 0x5d && ((next & 0xffff) == 0x0585 || (next & 0xffffff) == 0x578b4d || (next & 0xffffff) == 0x978b4d))
		return NO_FRAME; /* JDK 11: test %eax, n(%rip); mov n(%r15), %r10 */
	if ((next & 0xffffff) == 0x028541 && ((before >> 24 & 0xffffffff) == 0x578b4d5d || (before & 0xffffffff) == 0x978b4d5d))
		return NO_FRAME; /* test %eax, (%r10), behind it */
	return FRAME_THERE;
}

/* Leaves a frame of a fixed size. `code`: its first address; `complete`: so many bytes later the frame is there. */
static __always_inline bool leave_sized_frame(struct walk *w, struct caller *c, u64 code, u32 complete, u64 bytes, bool stub)
{
	enum frame_state state = w->interrupted ? find_frame(w, code, complete) : FRAME_THERE;
	u64 *words = w->hotspot.words, cfa = w->sp + bytes;
	u32 i;

	if (state != FRAME_THERE)
		cfa = w->sp + (state == NO_FRAME ? 8 : 16);
	else if (w->bp - w->sp < bytes + 8 * MOST_PUSHED_WORDS && !(w->bp & 7)) /* rbp is a frame pointer here, as in native wrappers */
		cfa = w->bp + 16;
#pragma clang loop unroll(disable)
	for (i = 0; i < MOST_PUSHED_WORDS + 3; i++) {
		u64 at = cfa + 8 * i;

		if (i > MOST_PUSHED_WORDS) {
			if (!w->interrupted)
				break;
			at = w->sp + 8 * (i - MOST_PUSHED_WORDS);
			state = i - MOST_PUSHED_WORDS == 1 ? NO_FRAME : ONLY_PUSHED_RBP;
		}
		if (bpf_probe_read_user(words, 2 * sizeof(u64), (void *)(at - 16)))
			continue;
		if (returns_to(words[1], stub && !w->interrupted && i == 0)) {
			c->sp = at;
			c->pc = words[1];
			c->bp = state == NO_FRAME || (stub && i) ? w->bp : words[0];
			return true;
		}
	}
	return false;
}

/* The stack pointer of the caller of a method or an adapter that was just called: arguments are moved, and r13 has what
 * it was before. */
static __always_inline u64 sp_before_arguments(struct walk *w)
{
	u64 moved = w->registers[R13] - w->sp;

	return moved <= MOST_ARGUMENTS_BYTES && !(moved & 7) ? w->registers[R13] : w->sp + 8;
}

/* Leaves a frame that may not be there (any more): the return address lies on top, or is in rax. */
static __always_inline bool leave_at_entry(struct walk *w, struct caller *c, bool moves_arguments)
{
	if (!w->all_registers)
		return false;
	if (!read_word(w->sp, &c->pc) || !returns_to(c->pc, false)) {
		c->pc = w->registers[RAX];
		if (!returns_to(c->pc, false))
			return false;
	}
	c->sp = moves_arguments ? sp_before_arguments(w) : w->sp + 8;
	c->bp = w->bp;
	return true;
}

/* Leaves a stub: it may have a frame pointer, or no frame. A call of the stub itself is the best proof of a caller. */
static __always_inline bool leave_stub(struct walk *w, struct caller *c)
{
	u64 *words = w->hotspot.words, top[2] = {};
	bool has_frame = w->bp - w->sp < MOST_FRAME_BYTES && !(w->bp & 7) &&
					 !bpf_probe_read_user(words, 3 * sizeof(u64), (void *)w->bp);

	c->bp = words[0];
	c->pc = words[1];
	c->sp = w->bp + 16;
	if (c->pc == ENTRY_BARRIER) {
		c->pc = words[2];
		c->sp += 8;
	}
	if (!w->interrupted)
		return has_frame && returns_to(c->pc, false);
	if (has_frame && called_this(w, c->pc, MOST_STUB_BYTES))
		return true;
	if (bpf_probe_read_user(top, sizeof(top), (void *)w->sp))
		return false;
	if (!called_this(w, top[0], MOST_STUB_BYTES)) {
		if (has_frame && returns_to(c->pc, false))
			return true;
		if (!returns_to(top[0], false)) {
			c->pc = top[1];
			c->sp = w->sp + 16;
			c->bp = top[0];
			return returns_to(c->pc, false);
		}
	}
	c->pc = top[0];
	c->sp = w->sp + 8;
	c->bp = w->bp;
	return true;
}

static __always_inline bool add_symbol(struct hotspot_process *p, u64 symbol, u32 *check)
{
	u32 hash;

	if (bpf_probe_read_user(&hash, sizeof(hash), (void *)(symbol + p->symbol_hash)))
		return false;
	*check ^= (u32)symbol ^ (hash & 0xffff0000);
	return true;
}

/* Tells a method from one at the same address, and with its ConstMethod at the same address: that is usual where classes
 * of one form are loaded and unloaded. A name of it or its class that was freed and made again has another hash. 0: it
 * cannot be read. */
static __always_inline u32 check_of(struct hotspot_process *p, u64 constants)
{
	u32 check = constants >> 3;
	u64 pool, class, name;
	u16 index;

	if (bpf_probe_read_user(&index, sizeof(index), (void *)(constants + p->const_name)) ||
		!read_word(constants + p->const_constants, &pool) || !read_word(pool + p->pool_bytes + 8 * index, &name) ||
		!read_word(pool + p->pool_holder, &class) || !read_word(class + p->class_name, &class))
		return 0;
	return add_symbol(p, name & ~1ULL, &check) && add_symbol(p, class, &check) ? check : 0;
}

/* Notes which method is interpreted, and how far. False: `bytecode` is no address of its bytecodes. */
static __always_inline bool note_interpreted(struct hotspot_process *p, struct managed_frame *frame, u64 method, u64 bytecode)
{
	u64 constants, offset;
	u16 size;

	if (!read_word(method + p->method_const, &constants) ||
		bpf_probe_read_user(&size, sizeof(size), (void *)(constants + p->const_code_size)))
		return false;
	offset = bytecode - constants - p->const_size;
	frame->kind = HOTSPOT_METHOD;
	frame->object = method;
	frame->check = check_of(p, constants);
	frame->position = offset < size ? offset : 0;
	return offset < size;
}

/* Leaves an interpreted method. Its frame is there if the bytecode pointer, r13, is one of the method there. */
static __always_inline bool leave_interpreted(struct walk *w, struct hotspot_process *p, struct caller *c, struct managed_frame *frame)
{
	u64 *words = w->hotspot.words;
	bool has_frame = w->bp - w->sp < STACK_OF_METHOD_BYTES && !(w->bp & 7) &&
					 !bpf_probe_read_user(words, sizeof(w->hotspot.words), (void *)(w->bp - 64));
	u64 moved;

	if (!(has_frame && note_interpreted(p, frame, words[5], w->interrupted ? w->registers[R13] : words[0])) && w->interrupted) {
		if (leave_at_entry(w, c, true)) {
			note_interpreted(p, frame, w->registers[RBX], 0);
			return true;
		}
	}
	if (!has_frame || !returns_to(words[9], false))
		return false;
	moved = words[7] - (w->bp + 16);
	c->sp = w->bp + 16 + (moved < MOST_LOCALS_BYTES && !(moved & 7) ? moved : 0);
	c->bp = words[8];
	c->pc = words[9];
	return true;
}

/* Adds the frame that was stored last as a managed frame, and finds its caller. NO_BLOB: it is no code of a JVM. What is
 * not known of the JVM is asked for: a request without an object. */
VERIFIED_ONCE int hotspot_step(void)
{
	struct walk *w = this_walk();
	struct managed_frame frame = {.kind = HOTSPOT_CODE};
	struct caller c = {};
	struct hotspot_process *p;
	u32 place, words, complete;
	u64 at, name, code;
	int found;

	if (!w)
		return NO_BLOB;
	p = hotspot_of(w);
	if (!p) {
		request(w, REQUEST_OBJECT, (u64)HOTSPOT_CODE << KIND_SHIFT);
		return NO_BLOB;
	}
	at = w->pc - !w->interrupted;
	found = find_blob(at);
	if (found == NO_BLOB)
		return NO_BLOB;
	if (!found)
		return STOP(UNWALKABLE + HOTSPOT);
	place = w->d.user_depth - 1;
	name = blob_name(w, p);
	words = blob_word(w, p, p->blob_frame_size);
	complete = (u16)blob_word(w, p, p->blob_frame_complete);
	code = blob_address(w, p, p->blob_code);
	frame.object = w->hotspot.blob;
	frame.position = at - w->hotspot.blob;
	if (name == NMETHOD || name == NATIVE_NMETHOD) {
		frame.check = blob_word(w, p, p->nmethod_compile_id);
		if (!w->interrupted && (w->pc == blob_address(w, p, p->nmethod_deopt) || w->pc == blob_address(w, p, p->nmethod_deopt_mh)) &&
			read_word(w->sp + (u32)blob_word(w, p, p->nmethod_orig_pc), &at))
			at--;
		frame.position = at - code;
	} else {
		complete = 0;
	}
	if (name == STUBS && !w->interrupted && has_continuation_stubs(w, p) && !follows_call(w->pc))
		return STOP(VIRTUAL_THREAD);
	if (name == INTERPRETER)
		found = leave_interpreted(w, p, &c, &frame);
	else if (name == ADAPTERS || name == METHOD_HANDLES || name == VTABLES)
		found = leave_at_entry(w, &c, name != VTABLES);
	else if (words && words < MOST_FRAME_WORDS)
		found = leave_sized_frame(w, &c, code, complete, 8 * words, name != NMETHOD);
	else
		found = leave_stub(w, &c);
	add_managed(w, frame.kind, frame.object, place, frame.check, frame.position);
	if (!found || c.sp <= w->sp)
		return STOP(UNWALKABLE + HOTSPOT);
	asm volatile("" : "+r"(place));
	w->cfa[place & (MAX_FRAMES - 1)] = c.sp;
	w->pc = c.pc;
	w->sp = c.sp;
	w->bp = c.bp;
	w->interrupted = w->all_registers = false;
	return w->pc ? GO_ON : STOP(COMPLETE);
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/* What the programs know about a HotSpot JVM, and what they read of its code (hotspot_frames.h). */
#ifndef ICESTREAM_HOTSPOT_H
#define ICESTREAM_HOTSPOT_H

#include "kernel_types.h"

#define HOTSPOT_HEAPS 4
#define BLOB_BYTES 512 /* from the header of its block on: those of all versions are smaller */

/* A part of the code cache. collector/runtimes/hotspot/heaps.py says what it is. */
struct hotspot_heap {
	u64 low;
	u64 high;
	u64 segments;
};

/* The heaps of a process, and offsets in bytes of what is read there: collector/runtimes/hotspot/layout.py checks that
 * those of a blob are smaller than BLOB_BYTES. */
struct hotspot_process {
	struct hotspot_heap heaps[HOTSPOT_HEAPS];
	u32 shift; /* a segment has 1 << shift bytes */
	u32 heap_count;
	u32 block_header; /* bytes before a blob: HeapBlock */
	u32 block_used;	  /* in these: whether there is a blob */
	u32 blob_bytes;
	u32 blob_name;
	u32 blob_frame_size;	 /* words, with the return address */
	u32 blob_frame_complete; /* bytes of code; before, the frame is not there */
	u32 blob_code;
	u32 code_is_offset; /* 1: `blob_code` and `nmethod_deopt` say where in the blob; 0: they are pointers */
	u32 nmethod_compile_id;
	u32 nmethod_orig_pc; /* where in a frame its return address is once it is to be deoptimized */
	u32 nmethod_deopt;	 /* the code that its callee returns to then, */
	u32 nmethod_deopt_mh; /* or, where a method handle called, */
	u32 method_const;
	u32 const_size; /* of a ConstMethod: the bytecodes follow */
	u32 const_code_size;
	u32 const_constants; /* the ConstantPool */
	u32 const_name;		 /* which entry of it is the method's name, a Symbol */
	u32 pool_bytes;
	u32 pool_holder; /* the Klass */
	u32 class_name;	 /* a Symbol */
	u32 symbol_hash; /* a word whose upper half is random */
	u32 unused;
};

struct hotspot_walk {
	u64 blob;			/* its address; 0: there is none */
	u64 words[10];		/* of an interpreter's frame, or of code */
	u64 bytes[(BLOB_BYTES + 8) / 8]; /* its block, with room for a word at any offset that a mask allows */
};

#endif

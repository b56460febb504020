/* SPDX-License-Identifier: GPL-2.0-only */
/* What the programs know about V8 in a process (v8_frames.h). */
#ifndef ICESTREAM_V8_H
#define ICESTREAM_V8_H

#include "kernel_types.h"

#define V8_BUILTINS 2
#define V8_OBJECT_BYTES 128

/* Offsets in bytes and numbers of types in one build of V8 (collector/runtimes/v8/layout.py, which checks that every field
 * lies in the first V8_OBJECT_BYTES), and where the process has the code of its builtins. */
struct v8_process {
	u32 function_shared; /* JSFunction: its SharedFunctionInfo */
	u32 function_first;	 /* types of functions */
	u32 function_last;
	u32 shared_type;
	u32 shared_flags; /* SharedFunctionInfo; numbers of parameters lie 8 bytes before */
	u32 shared_id;	  /* 4 bytes that tell all functions apart, or those of a script */
	u32 shared_script; /* then its Script, which has an ID; else 0 */
	u32 bytecode_type;
	struct {
		u64 start;
		u64 bytes;
	} builtins[V8_BUILTINS]; /* in the file's own place, and where V8 maps them again, near the code that it compiles */
};

struct v8_walk {
	u64 object[(V8_OBJECT_BYTES + 8) / 8]; /* with room for a word at any offset that a mask allows */
};

#endif

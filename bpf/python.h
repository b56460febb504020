/* SPDX-License-Identifier: GPL-2.0-only */
/* What the programs know of CPython, and where a walk up the Python frames of a thread stands (python_frames.h walks). */
#ifndef ICESTREAM_PYTHON_H
#define ICESTREAM_PYTHON_H

#include "kernel_types.h"

#define PYTHON_LAYOUTS 64
#define PYTHON_FRAME_BYTES 80 /* of struct _PyInterpreterFrame, without its locals: since 3.11 */

/* Where a build of CPython keeps what is read of it: offsets in bytes. Made by collector/python/layout.py, which checks
 * that every field of a frame lies in its first PYTHON_FRAME_BYTES and every field of a code object before the bytecode,
 * which begins after at most 255 bytes. */
struct python_layout {
	s64 code_type;	   /* PyCode_Type - _PyRuntime; 0: not known */
	u32 interpreters;  /* _PyRuntimeState: the first interpreter */
	u32 threads;	   /* PyInterpreterState: its first thread */
	u32 interpreter_next;
	u32 thread_next;   /* PyThreadState */
	u32 thread_id;	   /* the ID that the kernel gave it, in its own namespace */
	u32 thread_frame;  /* the innermost frame, or the innermost _PyCFrame */
	u32 cframes;	   /* 1: that is a _PyCFrame (up to 3.12) */
	u32 cframe_frame;
	u32 cframe_previous;
	u32 frame_code;	   /* _PyInterpreterFrame */
	u32 frame_previous;
	u32 frame_instruction;
	u32 frame_owner;
	u32 frame_is_entry; /* 3.11: set in the outermost frame of a run; 0: a frame of the interpreter's own ends a run */
	u32 object_type;	/* PyObject */
	u32 code_line;		/* PyCodeObject: its first line */
	u32 code_name;		/* its qualified name */
	u32 code_traceable; /* the first instruction that counts: before it, the frame is not complete */
	u32 code_bytecode;
	u32 unused;
};

/* The thread state of a thread, or how far the search for it has come. */
struct python_thread {
	u64 runtime;	 /* it is a thread of a process with this */
	u64 state;		 /* 0: not found (yet) */
	u64 interpreter; /* which has that state, or whose threads are looked at; 0: the search begins anew */
	u64 next;		 /* thread state to look at; 0: none in this interpreter */
	u64 again_monotonic_ns;	 /* not before */
	u32 wait_ms;
	u32 id; /* in its own namespace */
	u32 alone; /* 1: there was no other interpreter */
	u32 unused;
};

struct python_walk {
	u64 runtime;
	u64 frame;	   /* the frame to come, or 0 */
	u64 cframe;	   /* of the run to come */
	u32 runs;	   /* of the program that walks */
	u32 run_start; /* the first frame of the run to come */
	struct python_thread thread;
	u64 frame_bytes[(128 + 8) / 8]; /* each with room for a word at any offset that a mask allows */
	u64 code_bytes[(256 + 8) / 8];
};

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/* What the programs know about CPython, and the state of a walk up a thread's Python frames (python_frames.h). */
#ifndef ICESTREAM_PYTHON_H
#define ICESTREAM_PYTHON_H

#include "kernel_types.h"

#define PYTHON_LAYOUTS 64
#define PYTHON_FRAME_BYTES 80 /* of struct _PyInterpreterFrame, without its locals: since 3.11 */
#define PYTHON_FRAME_OBJECT_BYTES 128 /* of PyFrameObject, as far as it is read: up to 3.10 */

/* Offsets in bytes of the fields that are read of one build of CPython. collector/runtimes/python/layout.py makes them, and checks
 * that every field of a frame lies in the bytes that are read of it, that every field of a code object lies before
 * `code_bytecode`, and that this is at most 255. */
struct python_layout {
	s64 code_type;	   /* PyCode_Type - _PyRuntime; 0: not known */
	u32 interpreters;  /* _PyRuntimeState: the first interpreter */
	u32 threads;	   /* PyInterpreterState: its first thread */
	u32 interpreter_next;
	u32 thread_next;   /* PyThreadState */
	u32 thread_id;	   /* its pthread_self(), which is its thread pointer */
	u32 thread_frame;  /* the innermost frame or _PyCFrame */
	u32 cframes;	   /* 1: it is a _PyCFrame (up to 3.12) */
	u32 cframe_frame;
	u32 cframe_previous;
	u32 frame_code;	   /* _PyInterpreterFrame; up to 3.10 PyFrameObject */
	u32 frame_previous;
	u32 frame_instruction; /* its address; up to 3.10 its position (f_lasti, an int) */
	u32 frame_owner; /* 0: there is none, up to 3.10 */
	u32 frame_is_entry; /* 3.11: set in the outermost frame of a run; offset 0: the interpreter's own frames end runs */
	u32 object_type;	/* PyObject */
	u32 code_line;		/* PyCodeObject: its first line */
	u32 code_name;		/* its qualified name */
	u32 code_traceable; /* the first traceable instruction: before it, a frame is not complete */
	u32 code_bytecode; /* up to 3.10 an object of its own: here ends what is read */
	u32 code_version; /* since 3.12: a number that no other code object of its interpreter has; 0: there is none */
	u32 code_copies;  /* without the GIL, since 3.14: the addresses of the threads' copies of the bytecode; 0: there are none */
	u32 frame_copy;	  /* which one a frame executes */
};

/* The thread state of a thread, or the state of the search for it. */
struct python_thread {
	u64 runtime;	 /* _PyRuntime of its process */
	u64 state;		 /* 0: not found (yet) */
	u64 interpreter; /* the one with that state, or the one being searched; 0: the search starts over */
	u64 next;		 /* the next thread state to look at; 0: no more in this interpreter */
	u64 pointer; /* of the thread. The kernel's ID of it, which CPython keeps as well, is another one after a fork(2) of C */
	u64 again_monotonic_ns;	 /* when to search again at the earliest */
	u32 wait_ms;
	u32 alone; /* 1: there is no other interpreter */
};

struct python_walk {
	u64 runtime;
	u32 layout;	   /* row of python_layouts */
	u64 frame;	   /* the next frame, or 0 */
	u64 cframe;	   /* of the next run */
	u32 runs;	   /* how often the walking program ran */
	u32 run_start; /* the first frame of the next run */
	struct python_thread thread;
	u64 frame_bytes[(128 + 8) / 8]; /* each with room for a word at any offset that a mask allows */
	u64 code_bytes[(256 + 8) / 8];
};

#endif

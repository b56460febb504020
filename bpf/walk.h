/* SPDX-License-Identifier: GPL-2.0-only */
/* One observation on its way through the programs: what is shipped of it, and where the walk up its stack stands. */
#ifndef ICESTREAM_WALK_H
#define ICESTREAM_WALK_H

#include "kernel_types.h"
#include "python.h"

/* A map as an argument of a helper, and the section of a program that a macro defines: both depend on the loader. */
#ifndef COMPILED_BY_BCC
#define MAP(name) (&name)
#define PROGRAM_SEC(type, name) SEC(type)
#endif

#define MAX_FRAMES 127 /* of each part, kernel, user, Python: the default of kernel.perf_event_max_stack */
#define WORDS 512	   /* room for MAX_FRAMES kernel and user frames and two words for each Python frame */

/* Why the user part of a stack ends where it does; names in collector/bpf/samples.py. */
enum end {
	COMPLETE,	/* the outermost frame was reached, or there is no user part */
	NO_PROCESS, /* user space does not know the mappings of this process (yet) */
	NO_MAPPING, /* an address in no known mapping */
	NO_TABLE,	/* the file's unwinding table is not loaded (yet), or there is none */
	NO_RULE,	/* the table says nothing about this address, or nothing that can be followed */
	READ_FAULT, /* the stack could not be read */
	TOO_DEEP,	/* more than MAX_FRAMES */
	ENDS,
};

enum kind { STACK = 1, THREAD = 2 };

/* What samples refer to: a stack, or a thread's name (key: its ID, words: 16 bytes of name). */
struct description {
	u64 marker; /* control.marker: random, so that no other word of a buffer can be taken for the start of a description */
	u64 key;
	u32 pid; /* 0: no user frames */
	u8 kind;
	u8 end; /* enum end */
	u16 length; /* words that follow */
	u16 kernel_depth;
	u16 user_depth;
	u16 python_depth;
	u16 unused;
	/* Kernel frames and user frames, leaf first: kernel frames as the CPU had them, user frames moved back by one where
	 * they are return addresses. Then two words for each Python frame, leaf first (python_frames.h). */
	u64 words[WORDS];
};

#define HEAD (sizeof(struct description) - sizeof(u64) * WORDS)

/* Tells the program that a process is executing from what it executed before: both are random; /proc/PID/stat shows them. */
struct image {
	u64 start_code;
	u64 start_stack;
};

/* What user space knows of a process. Holds while it executes `image`, also for children that it forked. */
struct process {
	struct image image;
	u64 python_runtime; /* address of _PyRuntime, or 0 */
	u32 python_layout;	/* which offsets */
	u32 first;			/* its mappings: `count` from here, sorted by address */
	u32 count;
	u32 unused;
};

struct walk {
	u64 time_monotonic_ns;
	u64 hash;
	u64 stack; /* what it is known by, once it is shipped */
	u32 pid;
	u32 tid;
	u32 epoch;
	u32 runs; /* of the program that walks */
	struct image image;
	struct process process;

	/* The frame to come: its registers. */
	u64 pc;
	u64 sp;
	u64 bp;
	bool interrupted; /* pc is the next instruction to run, not a return address */
	u64 registers[16]; /* of the interrupted frame, by DWARF number */

	/* The mapping of the frame before. */
	u64 mapping_start;
	u64 mapping_end;
	u64 mapping_bias;
	u32 mapping_first_chunk;
	u32 mapping_chunks;

	u64 cfa[128]; /* of each user frame: the stack pointer of its caller; 0 where that was not found */
	struct python_walk python;
	struct description d;
};

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/* One observation on its way through the programs: what is shipped of it, and the state of the walk up its stack. */
#ifndef ICESTREAM_WALK_H
#define ICESTREAM_WALK_H

#include "hotspot.h"
#include "kernel_types.h"
#include "python.h"
#include "v8.h"

/* A map as an argument of a helper, and the section of a program that a macro defines: both depend on the loader. */
#ifndef COMPILED_BY_BCC
#define MAP(name) (&name)
#define PROGRAM_SEC(type, name) SEC(type)
#endif

#ifdef COMPILED_BY_BCC /* which inlines every function */
#define VERIFIED_ONCE static __always_inline
#else
#define VERIFIED_ONCE __attribute__((noinline)) /* and global: the verifier does not follow it from where it is called */
#endif

#define MOST_FRAME_BYTES (1 << 20)
#define MOST_CODE_BYTES 2048 /* of a function without a frame, from its start to where it was interrupted */
#define NULL_PAGE_BYTES 4096
#define MAX_KERNEL_FRAMES 127 /* the default of kernel.perf_event_max_stack */
#ifdef COMPILED_BY_BCC
#define MAX_FRAMES 128 /* user frames, and managed frames: each */
#else
#define MAX_FRAMES 512
#endif
#define WORDS 2048			  /* room for all of these; managed frames have two words */

/* A word in place of a frame, which is no address: from here on, callers were found without an unwinding rule (calls.h). */
#define FOUND_WITHOUT_RULE (1ULL << 63)

/* Why the user part of a stack ends where it does; collector/bpf/samples.py has the names. */
enum end {
	COMPLETE,	/* the outermost frame was reached, or there is no user part */
	NO_PROCESS, /* user space does not know the mappings of this process (yet) */
	NO_MAPPING, /* no known mapping covers the address */
	NO_TABLE,	/* the file's unwinding table is not loaded (yet), or there is none */
	NO_RULE,	/* the table has no rule for the address, or none that can be followed */
	READ_FAULT, /* the stack could not be read */
	REPLACED,	/* user space replaced what the walk used (tables_stayed in unwind.h) */
	TOO_DEEP,	/* more than MAX_FRAMES */
	VIRTUAL_THREAD, /* of Java: its outer frames are in the heap */
	UNWALKABLE, /* + number of a runtime: its compiler keeps no frame pointers, and nothing else is known about its code */
	ENDS = UNWALKABLE + 6,
};

#define HOTSPOT 0 /* its number: COMPILERS in collector/bpf/samples.py */

/* What a step returns: GO_ON, or STOP(enum end), which ends the walk. */
#define GO_ON 0
#define STOP(end) ((end) + 1)

enum kind { STACK = 1, THREAD = 2, SPAN = 3 };

#define SPAN_NAME_WORDS 16 /* longer names of spans are cut */

/* What samples refer to: a stack, a thread's name (then key is the thread ID, and words are 16 bytes of name), or the name
 * of a span (SPAN_NAME_WORDS; zeros follow the name). */
struct description {
	u64 marker; /* control.marker: random, so that no other word in the buffer looks like the start of a description */
	u64 key;
	u32 pid; /* 0: no user frames */
	u8 kind;
	u8 end; /* enum end */
	u16 length; /* number of words */
	u16 kernel_depth;
	u16 user_depth;
	u16 managed_depth;
	u16 unused;
	/* Kernel frames, then user frames, leaf first. Kernel frames are as the CPU had them. User frames that are return
	 * addresses are moved back by one. Then two words for each managed frame (managed.h). */
	u64 words[WORDS];
};

#define HEAD (sizeof(struct description) - sizeof(u64) * WORDS)

/* Distinguishes the program that a process executes from those before. Both are random; /proc/PID/stat shows them. */
struct image {
	u64 start_code;
	u64 start_stack;
};

/* What user space knows of a process. Valid while the process executes `image`, also for children that it forked. */
struct process {
	struct image image;
	u32 runtimes;	/* bits: 1 << enum managed_kind of those whose frames can be walked */
	u32 first;		/* its first mapping; there are `count`, sorted by address */
	u32 count;
	u32 generation; /* of this entry: each has another one */
};

/* In the memory of a process. */
struct text {
	u64 at;
	u64 bytes;
};

/* What a thread works for, as far as its process publishes that. */
struct context {
	u8 ids[24];	   /* trace ID and span ID; zeros: no trace context */
	u64 span_name; /* key of its description; 0: none */
};

/* In the memory of a process. */
struct labels {
	u64 at;
	u64 count;	/* of labels; in a map, of buckets without those that are added to them */
	u64 bucket; /* in a map: the one that is read */
};

#define LIST_BYTES 16 /* what a list of labels has of these */

struct walk {
	u64 time_monotonic_ns;
	u64 hash;
	u64 stack; /* key of the stack, once it is shipped */
	u32 pid;
	u32 tid;
	u32 epoch;
	u32 runs; /* how often the walking program ran */
	bool runnable; /* off-CPU: the thread waits only for a CPU */
	struct image image;
	struct process process;
	u32 known_as; /* the process ID under which `process` was found: its own or its parent's */
	u32 evictions;

	/* Registers of the next frame. */
	u64 pc;
	u64 sp;
	u64 bp;
	bool interrupted; /* pc is the next instruction to run, not a return address */
	bool all_registers; /* those that functions do not keep for their callers are known, too */
	bool marked;	  /* a caller was found without a rule, and the stack says where */
	bool without_rule; /* there is no rule for this frame */
#ifdef __TARGET_ARCH_arm64
	u64 link; /* register, if all are known */
#endif
	/* By DWARF number: of the frame that was interrupted last. Where a callee-saved register of the next frame lies on the
	 * stack: 0: it still is what it was in that frame; LOST: nobody knows. It is read only if a rule needs it. */
	u64 registers[16];
	u64 saved_at[16];

	/* The mapping of the previous frame. */
	u64 mapping_start;
	u64 mapping_end;
	u64 mapping_bias;
	u32 mapping_first_chunk;
	u32 mapping_chunks;

	u64 cfa[MAX_FRAMES]; /* of each user frame: its caller's stack pointer; 0 where that was not found */
	u64 managed[2 * MAX_FRAMES]; /* the managed frames, until they are shipped behind the user frames */
	struct python_walk python;
	struct v8_walk v8;
	struct hotspot_walk hotspot;
	struct context context;
	struct labels labels; /* of the thread */
	struct text trace_id, span_id, span_name; /* values of these */
	struct description d;
};

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/* The maps that the programs share with each other and with user space (collector/bpf/program.py, collector/unwind/unwinding.py). */
#ifndef ICESTREAM_MAPS_H
#define ICESTREAM_MAPS_H

#include "walk.h"
#include <bpf/bpf_helpers.h>

/* Counts observations by what became of them, and stacks by where they end; collector/bpf/program.py has their names. */
enum counter {
	OBSERVED, /* ticks on a thread: each becomes a sample, or counts in one of the next two */
	LOST_SAMPLE_BUFFER_FULL,
	LOST_STACK_BUFFER_FULL,
	LOST_REQUESTS, /* their buffer was full: they are sent again */
	NO_USER_STACK,
	PYTHON_NO_THREAD, /* the process runs Python, but no thread state of this thread is known */
	PYTHON_CUT,		  /* Python frames are missing: too many, or not readable */
	OFF_CPU_FOLLOWED, /* waits (off_cpu.h): each becomes a sample, is too short, counts as lost, or goes on */
	OFF_CPU_SHORT,
	LOST_OFF_CPU_BUFFER_FULL,
	LOST_OFF_CPU_TABLE_FULL,
	ENDED, /* + enum end: where the user stacks end */
	COUNTERS = ENDED + ENDS,
};

struct control {
	u64 marker; /* user space sets it before the program runs; it seeds the hashes, too, so that nobody can make two stacks collide */
	u32 epoch;	/* number of the window; user space adds one at each drain */
	u32 unused;
	u64 off_cpu_distance; /* twice the average number of switches from one that is followed to the next; 2: all are followed, 0: none */
	u64 off_cpu_least_ns; /* shorter waits are not sent */
};

struct thread_name {
	u64 words[2];
	u32 epoch;
	u32 unused;
};

enum context_kind {
	THREAD_CONTEXT, /* the thread-local variable has the address of an OpenTelemetry thread context (OTEP 4947) */
	GO_LABELS,		/* of Go's runtime.g */
	CUSTOM_LABELS,	/* of a set of labels (custom-labels, ABI version 1): address and number of its labels */
	GO_LABEL_MAP,	/* of Go's runtime.g, whose labels are a map */
	NODE_CONTEXT,	/* it says where V8 has what leads to an OpenTelemetry thread context (node_context.h) */
};

/* Where the threads of a process have the thread-local variable that leads to their trace context: `offset` bytes from the
 * thread pointer, or from the block of a module, whose address is in the thread's DTV (collector/bpf/program.py). */
struct context_slot {
	struct image image;
	s64 offset;
	u64 generation; /* least generation of a DTV of glibc */
	u32 module;		/* 0: none */
	s32 dtv;		/* from the thread pointer to where the address of the DTV is */
	u16 entry_bytes;
	u16 kind;
	u16 goroutine; /* GO_LABELS, GO_LABEL_MAP: the offset in runtime.m of the goroutine that it runs */
	u16 labels;	   /* the offset in runtime.g of its labels */
};

#define DTV_ENTRY_OF_GLIBC 16

/* What user space is to provide. The same request is sent at most every REQUEST_AGAIN_NS. */
enum request_kind { REQUEST_PROCESS = 1, REQUEST_MAPPING, REQUEST_CHUNK, REQUEST_OBJECT, REQUEST_THREAD, REQUEST_TABLE };

#define REQUEST_AGAIN_NS 100000000ULL

struct request {
	u32 kind;
	u32 pid;
	u64 value; /* the address without a mapping, the chunk without rows, the object of a managed frame and its kind
			   * (managed.h), the thread that is new, or the start of the mapping without a table */
	u64 time_monotonic_ns;
};

#define MAPPINGS_BITS 14 /* a process has at most 2^14 mappings */

/* Code of a process, [start, end). */

struct mapping {
	u64 start;
	u64 end;
	u64 bias; /* address + bias = position in the file's table */
	/* Number of its chunks << 32 | the first one; enum unknown_code where there are none. One word, so that a walk sees
	 * both as they were written. User space writes the bias first, so a walk reads it last. */
	u64 table;
};

enum unknown_code {
	UNKNOWN_CODE,	/* there is no table */
	FRAME_POINTERS, /* generated code: its compilers use frame pointers */
	UNREQUESTED_CODE,	/* there may be a table: user space loads it on request */
	RETURN_PROBES, /* the kernel's page in place of return addresses (unwind.h) */
	UNWALKABLE_CODE, /* + number of a runtime: generated code of one that keeps no frame pointers */
};

#define CHUNK_BITS 16 /* a chunk is 64 KiB of a file's code */
#define NOT_LOADED 0xffffffff

struct chunk {
	u32 first; /* row, or NOT_LOADED */
	u32 count;
};

/* Rows: (address & 0xffff) << 16 | rule, ascending within a chunk. In pages, because a map's values cannot be that large. */
#define PAGE_BITS 10

struct row_page {
	u32 rows[1 << PAGE_BITS];
};

/* collector/unwind/cfi/steps.py says what these mean. */
struct rule {
	u8 cfa_kind : 6;
	u8 saved_by_rbp : 1;
	u8 pushed : 1;
	u8 saved[3]; /* 4 bits for each callee-saved register */
	s32 cfa_offset;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct control);
} control SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 18); /* user space sets it by frequency and number of CPUs */
} samples SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} descriptions SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 16);
} requests SEC(".maps");

/* hash of a request -> when it was sent */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1 << 12);
	__type(key, u64);
	__type(value, u64);
} requested SEC(".maps");

/* stack -> the window it was last shipped in. A stack that is forgotten here is shipped twice, which is harmless. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1 << 15);
	__type(key, u64);
	__type(value, u32);
} shipped SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1 << 14);
	__type(key, u32);
	__type(value, struct thread_name);
} threads SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 13);
	__type(key, u32);
	__type(value, struct context_slot);
} contexts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 14);
	__type(key, u32);
	__type(value, struct process);
} processes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1 << 16);
	__type(key, u32);
	__type(value, struct mapping);
} mappings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1 << 16); /* 4 GiB of code */
	__type(key, u32);
	__type(value, struct chunk);
} chunks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1 << 13); /* 32 MiB; user space sets it */
	__type(key, u32);
	__type(value, struct row_page);
} rows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1 << 16);
	__type(key, u32);
	__type(value, struct rule);
} rules SEC(".maps");

/* How many files were evicted: user space adds one before it uses the chunks, rows and rules of a file for another one. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u32);
} evictions SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COUNTERS);
	__type(key, u32);
	__type(value, u64);
} counters SEC(".maps");

/* Too large for a program's stack. Programs that use it never interrupt each other on a CPU: they run with interrupts
 * off. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct walk);
} walks SEC(".maps");

static __always_inline void count(u32 counter)
{
	u64 *value = bpf_map_lookup_elem(MAP(counters), &counter);

	if (value)
		*value += 1;
}

static __always_inline struct walk *this_walk(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(MAP(walks), &zero);
}

static __always_inline u64 mix(u64 hash, u64 word)
{
	const u64 m = 0xc6a4a7935bd1e995ULL; /* one step of MurmurHash64A */

	word *= m;
	word ^= word >> 47;
	word *= m;
	return (hash ^ word) * m;
}

static __always_inline void request(struct walk *w, u32 kind, u64 value)
{
	struct request sent = {.kind = kind, .pid = w->pid, .value = value, .time_monotonic_ns = w->time_monotonic_ns};
	u64 key = mix(mix(kind, w->pid), value);
	u64 *before = bpf_map_lookup_elem(MAP(requested), &key);

	if (before && w->time_monotonic_ns - *before < REQUEST_AGAIN_NS)
		return;
	if (bpf_ringbuf_output(MAP(requests), &sent, sizeof(sent), 0)) {
		count(LOST_REQUESTS);
		return;
	}
	bpf_map_update_elem(MAP(requested), &key, &sent.time_monotonic_ns, BPF_ANY);
}

#endif

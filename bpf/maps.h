/* SPDX-License-Identifier: GPL-2.0-only */
/* The maps that the programs share with each other and with user space (collector/bpf/program.py, collector/unwind/unwinding.py). */
#ifndef ICESTREAM_MAPS_H
#define ICESTREAM_MAPS_H

#include "walk.h"
#include <bpf/bpf_helpers.h>

/* Observations by what became of them, and why stacks were cut; names in collector/bpf/program.py. */
enum counter {
	OBSERVED, /* ticks on a thread: each ends as a sample or in one of the two lost_ counters */
	LOST_SAMPLE_BUFFER_FULL,
	LOST_STACK_BUFFER_FULL,
	LOST_REQUESTS, /* their buffer was full: they are sent again */
	NO_USER_STACK,
	PYTHON_NO_THREAD, /* of a process that has a Python interpreter, but no (known) thread state for this thread */
	PYTHON_CUT,		  /* Python frames are missing: too many, or not readable */
	OFF_CPU_FOLLOWED, /* waits (off_cpu.h): each ends as a sample, as too short or in a lost_ counter, or goes on */
	OFF_CPU_SHORT,
	LOST_OFF_CPU_BUFFER_FULL,
	LOST_OFF_CPU_TABLE_FULL,
	ENDED, /* + enum end: how the user stacks ended */
	COUNTERS = ENDED + ENDS,
};

struct control {
	u64 marker; /* set once by user space before the program runs; seeds the hashes too, so that nobody can make two stacks collide */
	u32 epoch;	/* number of the interval: user space adds one at each drain */
	u32 unwind; /* 1: by tables (x86-64), 0: user stacks are what bpf_get_stack finds by frame pointers */
	u64 off_cpu_distance; /* from one switch that is followed to the next, twice the average; 2: all are, 0: none */
	u64 off_cpu_least_ns; /* shorter waits are not told */
};

struct thread_name {
	u64 words[2];
	u32 epoch;
	u32 unused;
};

/* Where, from a thread's pointer, the threads of a process keep the pointer to their OpenTelemetry thread context (OTEP
 * 4947). */
struct context_slot {
	s64 tls_offset;
	struct image image;
};

/* What user space is to provide. The same request is sent at most every REQUEST_AGAIN_NS. */
enum request_kind { REQUEST_PROCESS = 1, REQUEST_MAPPING, REQUEST_CHUNK, REQUEST_CODE, REQUEST_THREAD, REQUEST_TABLE };

#define REQUEST_AGAIN_NS 100000000ULL

struct request {
	u32 kind;
	u32 pid;
	u64 value; /* the address without a mapping, the chunk without rows, the code object, the thread seen for the first
			   * time, the start of a mapping without a table */
	u64 time_monotonic_ns;
};

/* Code of a process, [start, end). */
#define MAPPINGS_BITS 14 /* of one process at most */

struct mapping {
	u64 start;
	u64 end;
	u64 bias;		 /* address + bias = where it lies in its file's table */
	u32 first_chunk; /* where there are no chunks: enum unknown_code */
	u32 chunks;
};

enum unknown_code {
	UNKNOWN_CODE,	/* there is no table */
	FRAME_POINTERS, /* generated code: its compilers keep frame pointers */
	UNREQUESTED_CODE,	/* there may be a table: user space loads it on request */
};

/* 64 KiB of a file's code. */
#define CHUNK_BITS 16
#define NOT_LOADED 0xffffffff

struct chunk {
	u32 first; /* row, or NOT_LOADED */
	u32 count;
};

/* Rows: (address & 0xffff) << 16 | rule, ascending within a chunk. In pages, as no value of a map may be that large. */
#define PAGE_BITS 10

struct row_page {
	u32 rows[1 << PAGE_BITS];
};

/* collector/unwind/table.py says what these mean. */
struct rule {
	u8 cfa_kind;
	u8 rbp_kind;
	s16 rbp_offset;
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
	__uint(max_entries, 1 << 18); /* user space chooses by frequency and CPUs */
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

/* stack -> the interval it was last shipped in. When it forgets one, that stack is shipped twice, which is harmless. */
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
	__uint(max_entries, 1 << 13); /* 32 MiB; user space chooses */
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

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COUNTERS);
	__type(key, u32);
	__type(value, u64);
} counters SEC(".maps");

/* Too large for the stack of a program. Programs that use it never interrupt each other on a CPU: they run with
 * interrupts off. */
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

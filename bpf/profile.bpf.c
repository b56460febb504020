/* SPDX-License-Identifier: GPL-2.0-only */
/* The profiler's program: runs on every tick of a perf_event (software cpu-clock) on every CPU and gives user space one
 * small record per tick, and each distinct stack once per interval.
 *
 * Kernel floor: 5.8. What sets it: BPF ring buffers and CAP_BPF (5.8), bpf_probe_read_user/kernel and mmapable
 * arrays (5.5), bounded loops (5.3), and a kernel with BTF (CONFIG_DEBUG_INFO_BTF, 5.2). One object serves every little-endian architecture: registers are never read here, and
 * the thread pointer is found by CO-RE on x86-64 and aarch64 (elsewhere there is no trace context).
 *
 * Why ring buffers: all CPUs share one, so that its size bounds the memory however many CPUs there are; a record is a
 * multiple of 8 bytes and the pages are mapped twice in a row, so user space sees everything unread as one array and
 * takes it apart with a few array operations, with no system call and no call per record. A record's header tells
 * whether it is complete, so reading needs no pause of the writers as switching two arrays would.
 *
 * collector/records.py reads these structures.
 */
#include "kernel_types.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

/* No code lies below (vm.mmap_min_addr): a return address there means that the frame pointer was not one. */
#define LOWEST_CODE 65536
#define MAX_FRAMES 127 /* of each part: the default of kernel.perf_event_max_stack */

/* Lost observations by reason, and what user space wants to know besides; names in collector/sampler.py. */
enum counter {
	OBSERVED, /* ticks on a thread: each ends as a sample or in one of the two lost_ counters */
	LOST_SAMPLE_BUFFER_FULL,
	LOST_STACK_BUFFER_FULL,
	NO_USER_STACK,
	STACK_CUT,
	COUNTERS,
};

struct sample {
	u64 time_ns; /* CLOCK_MONOTONIC */
	u64 stack;
	u32 pid;
	u32 tid;
	u8 trace_id[16]; /* zeros: in no context */
	u8 span_id[8];
};

enum kind { STACK = 1, THREAD = 2 };

/* What samples refer to: a stack, or a thread's name (key: its ID, words: 16 bytes of name). */
struct description {
	u64 marker; /* control.marker: random, so that no other word of a buffer can be taken for the start of a description */
	u64 key;
	u32 pid; /* 0: no user frames */
	u8 kind;
	u8 kernel_depth;
	u16 depth;			 /* words that follow */
	u64 words[2 * MAX_FRAMES]; /* kernel frames, user frames; leaf first */
};

#define HEAD (sizeof(struct description) - sizeof(u64) * 2 * MAX_FRAMES)

struct control {
	u64 marker; /* set once by user space before the program runs; seeds the hashes too, so that nobody can make two stacks collide */
	u32 epoch;	/* number of the interval: user space adds one at each drain */
	u32 unused;
};

struct thread_name {
	u64 words[2];
	u32 epoch;
	u32 unused;
};

/* Where, from a thread's pointer, the threads of a process keep the pointer to their OpenTelemetry thread context (OTEP
 * 4947). It holds for the program that the process was executing when user space looked: where its code and its stack
 * start tells whether it still is that (both are random; /proc/PID/stat shows them). */
struct context_slot {
	s64 tls_offset;
	u64 start_code;
	u64 start_stack;
};

struct otel_thread_context {
	u8 trace_id[16];
	u8 span_id[8];
	u8 valid;
	u8 trace_flags;
	u16 attrs_size;
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
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COUNTERS);
	__type(key, u32);
	__type(value, u64);
} counters SEC(".maps");

/* Too large for the stack of a program, which never runs twice at a time on one CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct description);
} scratch SEC(".maps");

static __always_inline void count(u32 counter)
{
	u64 *value = bpf_map_lookup_elem(&counters, &counter);

	if (value)
		*value += 1;
}

static __always_inline u64 mix(u64 hash, u64 word)
{
	const u64 m = 0xc6a4a7935bd1e995ULL; /* one step of MurmurHash64A */

	word *= m;
	word ^= word >> 47;
	word *= m;
	return (hash ^ word) * m;
}

static __always_inline bool ship(struct description *d)
{
	u32 size = HEAD + d->depth * sizeof(u64);

	if (size > sizeof(*d))
		return false;
	return bpf_ringbuf_output(&descriptions, d, size, BPF_RB_NO_WAKEUP) == 0;
}

/* Fills `d` with the stack of the current thread and its hash as key. */
static __always_inline void take_stack(void *ctx, struct description *d, u32 pid, u64 seed)
{
	long kernel_bytes = bpf_get_stack(ctx, d->words, MAX_FRAMES * sizeof(u64), 0);
	u32 kernel_depth = kernel_bytes > 0 ? kernel_bytes / sizeof(u64) : 0;
	u32 depth, user_depth, i;
	long user_bytes;
	u64 hash;

	kernel_depth &= 127;
	user_bytes = bpf_get_stack(ctx, &d->words[kernel_depth], MAX_FRAMES * sizeof(u64), BPF_F_USER_STACK);
	user_depth = user_bytes > 0 ? user_bytes / sizeof(u64) : 0;
	if (user_depth == 0)
		count(NO_USER_STACK);
	if (user_depth == MAX_FRAMES || kernel_depth == MAX_FRAMES)
		count(STACK_CUT);

	depth = kernel_depth + user_depth;
	d->kind = STACK;
	d->pid = user_depth ? pid : 0;
	d->kernel_depth = kernel_depth;
	hash = mix(seed, (u64)d->pid << 32 | kernel_depth);
#pragma clang loop unroll(disable)
	for (i = 0; i < 2 * MAX_FRAMES; i++) {
		if (i >= depth)
			break;
		if (i > kernel_depth && d->words[i] < LOWEST_CODE) {
			depth = i;
			break;
		}
		hash = mix(hash, d->words[i]);
	}
	hash = mix(hash, depth);
	d->depth = depth;
	d->key = hash ^ hash >> 47;
}

/* False: the buffer is full. */
static __always_inline bool ship_stack(struct description *d, u32 epoch)
{
	u64 key = d->key;
	u32 *shipped_in = bpf_map_lookup_elem(&shipped, &key);

	if (shipped_in && *shipped_in == epoch)
		return true;
	if (!ship(d))
		return false;
	bpf_map_update_elem(&shipped, &key, &epoch, BPF_ANY); /* after the stack is there: others may rely on it at once */
	return true;
}

/* Ships the name of the current thread, once in an interval and when it changes. */
static __always_inline void ship_thread(struct description *d, u32 pid, u32 tid, u32 epoch)
{
	struct thread_name now = {.epoch = epoch};
	struct thread_name *before = bpf_map_lookup_elem(&threads, &tid);

	bpf_get_current_comm(now.words, sizeof(now.words));
	if (before && before->epoch == epoch && before->words[0] == now.words[0] && before->words[1] == now.words[1])
		return;
	d->key = tid;
	d->pid = pid;
	d->kind = THREAD;
	d->kernel_depth = 0;
	d->depth = 2;
	d->words[0] = now.words[0];
	d->words[1] = now.words[1];
	if (ship(d))
		bpf_map_update_elem(&threads, &tid, &now, BPF_ANY);
}

static __always_inline u64 thread_pointer(struct task_struct *task)
{
	struct task_struct___x86 *x86 = (void *)task;
	struct task_struct___arm64 *arm64 = (void *)task;

	if (bpf_core_field_exists(x86->thread.fsbase))
		return BPF_CORE_READ(x86, thread.fsbase);
	if (bpf_core_field_exists(arm64->thread.uw.tp_value))
		return BPF_CORE_READ(arm64, thread.uw.tp_value);
	return 0;
}

/* The slot of a process, or, right after a fork, when user space does not know it yet, of its parent. */
static __always_inline struct context_slot *find_slot(struct task_struct *task, u32 pid)
{
	struct context_slot *slot = bpf_map_lookup_elem(&contexts, &pid);
	struct mm_struct *mm;

	if (!slot) {
		pid = BPF_CORE_READ(task, real_parent, tgid);
		slot = bpf_map_lookup_elem(&contexts, &pid);
	}
	if (!slot)
		return 0;
	mm = BPF_CORE_READ(task, mm);
	if (!mm || BPF_CORE_READ(mm, start_code) != slot->start_code || BPF_CORE_READ(mm, start_stack) != slot->start_stack)
		return 0;
	return slot;
}

/* The trace context the current thread shows: nothing can change it while the thread is interrupted here. */
static __always_inline void read_context(struct sample *sample, u32 pid)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct context_slot *slot = find_slot(task, pid);
	struct otel_thread_context record;
	u64 pointer, at = 0;

	if (!slot)
		return;
	pointer = thread_pointer(task);
	if (!pointer || bpf_probe_read_user(&at, sizeof(at), (void *)(pointer + slot->tls_offset)) || !at)
		return;
	if (bpf_probe_read_user(&record, sizeof(record), (void *)at) || record.valid != 1)
		return;
	__builtin_memcpy(sample->trace_id, record.trace_id, sizeof(record.trace_id));
	__builtin_memcpy(sample->span_id, record.span_id, sizeof(record.span_id));
}

SEC("perf_event")
int profile(void *ctx)
{
	u64 pid_tgid = bpf_get_current_pid_tgid();
	u32 pid = pid_tgid >> 32, tid = pid_tgid, zero = 0;
	struct control *settings = bpf_map_lookup_elem(&control, &zero);
	struct description *d = bpf_map_lookup_elem(&scratch, &zero);
	u64 stack, now = bpf_ktime_get_ns();
	struct sample *sample;
	u32 epoch;

	if (pid == 0 || !settings || !d) /* pid 0: the CPU is idle */
		return 0;
	count(OBSERVED);
	epoch = *(volatile u32 *)&settings->epoch;
	d->marker = settings->marker;
	take_stack(ctx, d, pid, settings->marker);
	stack = d->key;
	if (!ship_stack(d, epoch)) {
		count(LOST_STACK_BUFFER_FULL);
		return 0;
	}
	ship_thread(d, pid, tid, epoch);

	sample = bpf_ringbuf_reserve(&samples, sizeof(*sample), 0);
	if (!sample) {
		count(LOST_SAMPLE_BUFFER_FULL);
		return 0;
	}
	__builtin_memset(sample, 0, sizeof(*sample));
	sample->time_ns = now;
	sample->stack = stack;
	sample->pid = pid;
	sample->tid = tid;
	read_context(sample, pid);
	bpf_ringbuf_submit(sample, BPF_RB_NO_WAKEUP);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";

/* SPDX-License-Identifier: GPL-2.0-only */
/* How long threads are off their CPU: from the switch at which a thread leaves it to the switch at which it gets one
 * again. Until the thread is woken, it waits for something; from then on it is on the run queue, and waits for a CPU. A
 * thread that leaves its CPU although it could continue (preemption, sched_yield) is on the run queue at once.
 *
 * Follows a random share of all switches. The stack is taken when a wait begins, while the thread is still the current
 * one, and its key is kept with the time. When the thread is back, both times are sent. User space divides by the share,
 * so that sums are right on average.
 */
#ifndef ICESTREAM_OFF_CPU_H
#define ICESTREAM_OFF_CPU_H

#include "context.h"
#include "unwind.h"

/* include/linux/sched.h. Stopped, traced and dead threads are left out. */
#define TASK_RUNNING 0x0
#define TASK_INTERRUPTIBLE 0x1
#define TASK_UNINTERRUPTIBLE 0x2
#define TASK_STOPPED 0x4
#define TASK_WAKING 0x200 /* is being woken */
#define TASK_RTLOCK_WAIT 0x1000
#define WAITS (TASK_INTERRUPTIBLE | TASK_UNINTERRUPTIBLE | TASK_WAKING | TASK_RTLOCK_WAIT)

/* collector/bpf/records.py reads it. */
struct wait {
	u64 time_monotonic_ns; /* of the end; in `waiting`, of the beginning */
	u64 stack;
	u32 pid;
	u32 tid;
	struct context context; /* when the wait began */
	u64 distance; /* control.off_cpu_distance when the wait began */
	u64 duration_ns; /* without the run queue; as the next, see `kept` */
	u64 queue_ns;	 /* on the run queue; in `waiting`, when it got there, or 0 */
};

/* Address of a waiting thread's task_struct -> its wait. A killed thread gets a CPU once more, to end, so no entry stays
 * behind. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 13);
	__type(key, u64);
	__type(value, struct wait);
} waiting SEC(".maps");

/* How many entries of `waiting` have the same hash. Most are 0, so most switches need no look into `waiting`. */
#define SLOT_BITS 12

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1 << SLOT_BITS);
	__type(key, u32);
	__type(value, u32);
} waiting_slots SEC(".maps");

/* How many switches on this CPU are passed over before the next one is followed. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} passed_over SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 18);
} waits SEC(".maps");

static __always_inline u32 slot_of(u64 task)
{
	return (task * 0x9e3779b97f4a7c15ULL) >> (64 - SLOT_BITS);
}

/* Whether to follow this switch. The next one is 1 to `distance` - 1 switches later, each number equally likely; on
 * average that is half of `distance`. This costs less than a random number at every switch. */
static __always_inline bool is_chosen(struct control *settings)
{
	u64 distance = settings->off_cpu_distance, *left;
	u32 zero = 0;

	left = bpf_map_lookup_elem(MAP(passed_over), &zero);
	if (!distance || !left)
		return false;
	if (*left && *left < distance) { /* otherwise the distance was changed */
		*left -= 1;
		return false;
	}
	*left = distance > 2 ? bpf_get_prandom_u32() % (distance - 1) : 0;
	return true;
}

static __always_inline u32 state_of(struct task_struct *task)
{
	struct task_struct___since_5_14 *now = (void *)task;
	struct task_struct___before_5_14 *before = (void *)task;

#if defined(COMPILED_BY_BCC) && OFFSET_STATE == UNKNOWN_OFFSET
	return TASK_STOPPED; /* so no wait is followed */
#endif
	if (bpf_core_field_exists(now->__state))
		return BPF_CORE_READ(now, __state);
	return BPF_CORE_READ(before, state);
}

/* What is sent of a time: shorter ones than `least` are sent by chance, in proportion to their length, and count as
 * `least`. So few are sent, and their sum is right on average. 0: it is not sent. */
static __always_inline u64 kept(u64 length, u64 least)
{
	if (length >= least)
		return length;
	return bpf_get_prandom_u32() < (length << 32) / least ? least : 0;
}

/* The wait of a thread, if it is followed; 0: it is not. */
static __always_inline struct wait *wait_of(u64 task)
{
	u32 slot = slot_of(task), *waiting_here = bpf_map_lookup_elem(MAP(waiting_slots), &slot);

	if (!waiting_here || !*(volatile u32 *)waiting_here)
		return 0;
	return bpf_map_lookup_elem(MAP(waiting), &task);
}

/* The current thread, which was observed, leaves its CPU. */
static __always_inline void fall_asleep(struct walk *w)
{
	struct wait wait = {
		.time_monotonic_ns = w->time_monotonic_ns,
		.stack = w->stack,
		.pid = w->pid,
		.tid = w->tid,
		.context = w->context,
		.queue_ns = w->runnable ? w->time_monotonic_ns : 0,
	};
	u64 task = bpf_get_current_task();
	u32 zero = 0, slot = slot_of(task), *waiting_here = bpf_map_lookup_elem(MAP(waiting_slots), &slot);
	struct control *settings = bpf_map_lookup_elem(MAP(control), &zero);

	if (!settings || !waiting_here)
		return;
	wait.distance = settings->off_cpu_distance;
	if (bpf_map_update_elem(MAP(waiting), &task, &wait, BPF_ANY))
		count(LOST_OFF_CPU_TABLE_FULL);
	else
		__sync_fetch_and_add(waiting_here, 1);
}

/* A thread that waited is put on the run queue. */
static __always_inline void wake_up(u64 task)
{
	struct wait *wait = wait_of(task);

	if (wait && !wait->queue_ns)
		wait->queue_ns = bpf_ktime_get_ns();
}

/* A thread gets a CPU. */
static __always_inline void run(u64 task, struct control *settings)
{
	u32 slot = slot_of(task), *waiting_here = bpf_map_lookup_elem(MAP(waiting_slots), &slot);
	struct wait *wait = wait_of(task);
	u64 now, queued, least = settings->off_cpu_least_ns;

	if (!wait || !waiting_here)
		return;
	now = bpf_ktime_get_ns();
	queued = wait->queue_ns ? wait->queue_ns : now;
	wait->duration_ns = kept(queued - wait->time_monotonic_ns, least);
	wait->queue_ns = kept(now - queued, least);
	if (!wait->duration_ns && !wait->queue_ns) {
		count(OFF_CPU_SHORT);
	} else {
		wait->time_monotonic_ns = now;
		if (bpf_ringbuf_output(MAP(waits), wait, sizeof(*wait), BPF_RB_NO_WAKEUP))
			count(LOST_OFF_CPU_BUFFER_FULL);
	}
	bpf_map_delete_elem(MAP(waiting), &task); /* only now: user space keeps the stacks of the waits in this map */
	__sync_fetch_and_add(waiting_here, -1);
}

#endif

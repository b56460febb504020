/* SPDX-License-Identifier: GPL-2.0-only */
/* How long threads are off their CPU: from the switch at which a thread leaves it to the switch at which it gets one
 * again. Until the thread is woken, it waits for something; from then on it is on the run queue, and waits for a CPU. A
 * thread that leaves its CPU although it could continue (preemption, sched_yield) is on the run queue at once.
 *
 * The kernel keeps how long each thread was on the run queue (/proc/PID/schedstat), by the clock by which it counts CPU
 * time. So nothing need run when a thread is woken, and no time counts as both. A clock of our own would count some
 * twice: the kernel saves reading its clock again for a thread that is woken and gets its CPU at once
 * (rq_clock_skip_update), so that the thread's CPU time begins when it is woken, some 10 us before the switch.
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
	u64 duration_ns; /* without the run queue; as the next, see `kept`; in `waiting`, queue_clock when it began */
	u64 queue_ns;	 /* on the run queue; in `waiting`, before this wait: queued_before */
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

#ifndef COMPILED_BY_BCC
#define preserve __attribute__((preserve_access_index))

/* kernel/sched/sched.h */
struct rq {
	u64 clock;
} preserve;

struct cfs_rq {
	struct rq *rq; /* CONFIG_FAIR_GROUP_SCHED */
} preserve;

/* include/linux/sched.h */
struct sched_entity {
	struct cfs_rq *cfs_rq; /* CONFIG_FAIR_GROUP_SCHED */
} preserve;

struct sched_info { /* CONFIG_SCHED_INFO; both by the clock of the run queue */
	u64 run_delay;
	u64 last_queued; /* 0: it is on no run queue, or was preempted just before it would have begun to wait */
} preserve;

struct task_struct___scheduled {
	struct sched_entity se;
	struct sched_info sched_info;
} preserve;

#undef preserve
#define KEEPS_QUEUE_TIME(task) \
	(bpf_core_field_exists((task)->sched_info.last_queued) && bpf_core_field_exists((task)->se.cfs_rq))
#endif

/* The clock of the run queue that a thread is on, or was on last; our own clock where the kernel does not keep the time. */
static __always_inline u64 queue_clock(u64 task)
{
#ifndef COMPILED_BY_BCC
	struct task_struct___scheduled *of = (void *)task;

	if (KEEPS_QUEUE_TIME(of))
		return BPF_CORE_READ(of, se.cfs_rq, rq, clock);
#endif
	return bpf_ktime_get_ns();
}

/* What `time_on_queue` needs of a thread that leaves its CPU. Where the kernel does not keep the time, only threads that
 * were runnable are known to be on the run queue. */
static __always_inline u64 queued_before(u64 task, bool runnable)
{
#ifndef COMPILED_BY_BCC
	struct task_struct___scheduled *of = (void *)task;

	if (KEEPS_QUEUE_TIME(of))
		return BPF_CORE_READ(of, sched_info.run_delay);
#endif
	return runnable;
}

/* How long a thread that gets a CPU now (queue_clock) was on the run queue, of the time that it was off its CPU. */
static __always_inline u64 time_on_queue(u64 task, u64 before, u64 now, u64 off_cpu_ns)
{
	u64 length = before ? off_cpu_ns : 0;
#ifndef COMPILED_BY_BCC
	struct task_struct___scheduled *of = (void *)task;

	if (KEEPS_QUEUE_TIME(of)) /* the kernel adds the time on this run queue only after the switch */
		length = BPF_CORE_READ(of, sched_info.run_delay) - before + now - BPF_CORE_READ(of, sched_info.last_queued);
#endif
	return length < off_cpu_ns ? length : off_cpu_ns;
}

/* What is sent of a time: shorter ones than `least` are sent by chance, in proportion to their length, and count as
 * `least`. So few are sent, and their sum is right on average. 0: it is not sent. */
static __always_inline u64 kept(u64 length, u64 least)
{
	if (length >= least)
		return length;
	return bpf_get_prandom_u32() < (length << 32) / least ? least : 0;
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
	};
	u64 task = bpf_get_current_task();
	u32 zero = 0, slot = slot_of(task), *waiting_here = bpf_map_lookup_elem(MAP(waiting_slots), &slot);
	struct control *settings = bpf_map_lookup_elem(MAP(control), &zero);

	if (!settings || !waiting_here)
		return;
	wait.distance = settings->off_cpu_distance;
	wait.duration_ns = queue_clock(task);
	wait.queue_ns = queued_before(task, w->runnable);
	if (bpf_map_update_elem(MAP(waiting), &task, &wait, BPF_ANY))
		count(LOST_OFF_CPU_TABLE_FULL);
	else
		__sync_fetch_and_add(waiting_here, 1);
}

/* A thread gets a CPU. */
static __always_inline void run(u64 task, struct control *settings)
{
	u32 slot = slot_of(task), *waiting_here = bpf_map_lookup_elem(MAP(waiting_slots), &slot);
	u64 now, off_cpu_ns, queue_ns, least = settings->off_cpu_least_ns;
	struct wait *wait;

	if (!waiting_here || !*(volatile u32 *)waiting_here)
		return;
	wait = bpf_map_lookup_elem(MAP(waiting), &task);
	if (!wait)
		return;
	now = queue_clock(task);
	off_cpu_ns = now > wait->duration_ns ? now - wait->duration_ns : 0; /* clocks of run queues may differ by some us */
	queue_ns = time_on_queue(task, wait->queue_ns, now, off_cpu_ns);
	wait->duration_ns = kept(off_cpu_ns - queue_ns, least);
	wait->queue_ns = kept(queue_ns, least);
	if (!wait->duration_ns && !wait->queue_ns) {
		count(OFF_CPU_SHORT);
	} else {
		wait->time_monotonic_ns = bpf_ktime_get_ns();
		if (bpf_ringbuf_output(MAP(waits), wait, sizeof(*wait), BPF_RB_NO_WAKEUP))
			count(LOST_OFF_CPU_BUFFER_FULL);
	}
	bpf_map_delete_elem(MAP(waiting), &task); /* only now: user space keeps the stacks of the waits in this map */
	__sync_fetch_and_add(waiting_here, -1);
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/* The profiler. It runs on every tick of a perf_event (software cpu-clock) on every CPU. It gives user space one small
 * record for each tick, and each distinct stack once per window.
 *
 * `profile` takes the kernel's part of the stack, `unwind` the user's part, `python` and its like the Python frames, and
 * `ship` sends all of it. Each continues with the next by a tail call, and keeps its state in a per-CPU map. So every
 * program stays small enough for the verifiers of old kernels.
 * Where `off_cpu` is attached, it runs on every switch of threads. The switches that are followed take the same way.
 *
 * Oldest kernel: 5.10, the first whose programs may both call functions and continue with others (6.0 on aarch64). There
 * is an object for x86-64, and one for aarch64.
 *
 * Why ring buffers: all CPUs share one, so its size bounds the memory whatever the number of CPUs. A record is a multiple
 * of 8 bytes, and the pages are mapped twice in a row. So user space sees all unread records as one array, and takes it
 * apart with a few array operations, with no system call and no call per record. A record's header says whether the
 * record is complete, so writers need not pause while user space reads.
 *
 * collector/bpf/records.py reads the structures.
 */
#include "off_cpu.h"
#include "python_frames.h"

struct sample {
	u64 time_monotonic_ns;
	u64 stack;
	u32 pid;
	u32 tid;
	struct context context;
};

enum program { UNWIND, PYTHON, PYTHON_FRAMES, PYTHON_SKIP, PYTHON_PLACE, SHIP, PROGRAMS };

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, PROGRAMS);
	__type(key, u32);
	__type(value, u32);
} programs SEC(".maps");

/* Such an array takes programs of one type only. So there is one for ticks, and one for switches of threads. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, PROGRAMS);
	__type(key, u32);
	__type(value, u32);
} off_cpu_programs SEC(".maps");

enum way { ON_CPU, OFF_CPU };

static __always_inline void go_on(void *ctx, enum way way, enum program program)
{
	if (way == OFF_CPU)
		bpf_tail_call(ctx, MAP(off_cpu_programs), program);
	else
		bpf_tail_call(ctx, MAP(programs), program);
}

#define PROGRAM(name)                                      \
	PROGRAM_SEC("perf_event", name)                        \
	int name(void *ctx)                                    \
	{                                                      \
		return do_##name(ctx, ON_CPU);                     \
	}                                                      \
	PROGRAM_SEC("raw_tracepoint", off_cpu_##name)          \
	int off_cpu_##name(void *ctx)                          \
	{                                                      \
		return do_##name(ctx, OFF_CPU);                    \
	}

static __always_inline void take_kernel_stack(void *ctx, struct walk *w)
{
	long bytes = bpf_get_stack(ctx, w->d.words, MAX_KERNEL_FRAMES * sizeof(u64), 0);
	u32 depth = bytes > 0 ? bytes / sizeof(u64) : 0, i;

	depth &= 127;
	w->d.kernel_depth = depth;
#pragma clang loop unroll(disable)
	for (i = 0; i < MAX_KERNEL_FRAMES; i++) {
		if (i >= depth)
			break;
		w->hash = mix(w->hash, w->d.words[i]);
	}
}

static __always_inline bool ship_description(struct description *d)
{
	u32 size = HEAD + d->length * sizeof(u64);

	if (size > sizeof(*d))
		return false;
	return bpf_ringbuf_output(MAP(descriptions), d, size, BPF_RB_NO_WAKEUP) == 0;
}

/* Ships the description, unless that was done in this window. False: the buffer is full. */
static __always_inline bool ship_once(struct walk *w)
{
	u64 key = w->d.key;
	u32 epoch = w->epoch, *shipped_in = bpf_map_lookup_elem(MAP(shipped), &key);

	if (shipped_in && *shipped_in == epoch)
		return true;
	if (!ship_description(&w->d))
		return false;
	bpf_map_update_elem(MAP(shipped), &key, &epoch, BPF_ANY); /* last: from now on others rely on it being there */
	return true;
}

/* Makes the description one of a name of so many words. */
static __always_inline void describe_name(struct description *d, enum kind kind, u64 key, u16 words)
{
	d->key = key;
	d->pid = d->end = d->kernel_depth = d->user_depth = d->managed_depth = 0;
	d->kind = kind;
	d->length = words;
}

/* Ships the name of the current thread once per window, and when it changes. */
static __always_inline void ship_thread(struct walk *w)
{
	struct thread_name now = {.epoch = w->epoch};
	struct description *d = &w->d;
	u32 tid = w->tid;
	struct thread_name *before = bpf_map_lookup_elem(MAP(threads), &tid);

	bpf_get_current_comm(now.words, sizeof(now.words));
	if (before && before->epoch == now.epoch && before->words[0] == now.words[0] && before->words[1] == now.words[1])
		return;
	if (!before)
		request(w, REQUEST_THREAD, w->tid);
	describe_name(d, THREAD, tid, 2);
	d->words[0] = now.words[0];
	d->words[1] = now.words[1];
	if (ship_description(d))
		bpf_map_update_elem(MAP(threads), &tid, &now, BPF_ANY);
}

/* Finds what the current thread works for, and ships the name of its span. */
static __always_inline void ship_context(struct walk *w)
{
	read_context(w);
	if (w->context.span_name) {
		describe_name(&w->d, SPAN, w->context.span_name, SPAN_NAME_WORDS);
		ship_once(w);
	}
}

/* Ships the stack, and what else a sample refers to, unless that was done in this window. False: the buffer is full. */
static __always_inline bool ship_observed(struct walk *w)
{
	struct description *d = &w->d;
	u64 hash;

	join_managed(w);
	d->kind = STACK;
	d->pid = d->user_depth ? w->pid : 0;
	d->length = d->kernel_depth + d->user_depth + 2 * d->managed_depth;
	hash = mix(mix(w->hash, (u64)d->pid << 32 | d->end), (u64)d->kernel_depth << 32 | (u64)d->user_depth << 16 | d->managed_depth);
	w->stack = d->key = hash ^ hash >> 47;
	if (!ship_once(w))
		return false;
	ship_thread(w);
	ship_context(w);
	return true;
}

static __always_inline void ship_sample(struct walk *w)
{
	struct sample *sample = bpf_ringbuf_reserve(MAP(samples), sizeof(*sample), 0);

	if (!sample) {
		count(LOST_SAMPLE_BUFFER_FULL);
		return;
	}
	sample->time_monotonic_ns = w->time_monotonic_ns;
	sample->stack = w->stack;
	sample->pid = w->pid;
	sample->tid = w->tid;
	sample->context = w->context;
	bpf_ringbuf_submit(sample, BPF_RB_NO_WAKEUP);
}

static __always_inline int do_ship(__attribute__((unused)) void *ctx, enum way way)
{
	struct walk *w = this_walk();

	if (!w)
		return 0;
	if (way == OFF_CPU) {
		if (ship_observed(w))
			fall_asleep(w);
		else
			count(LOST_OFF_CPU_BUFFER_FULL);
		return 0;
	}
	if (w->d.user_depth == 0)
		count(NO_USER_STACK);
	else
		count(ENDED + (w->d.end < ENDS ? w->d.end : 0));
	if (ship_observed(w))
		ship_sample(w);
	else
		count(LOST_STACK_BUFFER_FULL);
	return 0;
}
PROGRAM(ship)

static __always_inline int do_unwind(void *ctx, enum way way)
{
	struct walk *w = this_walk();
	int stop = GO_ON;
	u32 i;

	if (!w)
		return 0;
#pragma clang loop unroll(disable)
	for (i = 0; i < FRAMES_PER_RUN; i++) {
		stop = step();
		if (stop)
			break;
	}
	if (stop == GO_ON && ++w->runs < RUNS)
		go_on(ctx, way, UNWIND);
	w->d.end = stop == GO_ON ? TOO_DEEP : stop - 1;
	if (!tables_stayed(w))
		cut(w, REPLACED);
	w->python.runs = 0;
	if (w->process.runtimes & 1 << PYTHON_CODE)
		go_on(ctx, way, PYTHON);
	go_on(ctx, way, SHIP);
	return 0;
}
PROGRAM(unwind)

static __always_inline int do_python(void *ctx, enum way way)
{
	struct walk *w = this_walk();
	struct python_layout *layout;

	if (!w)
		return 0;
	layout = find_python(w);
	if (layout && w->python.runs) {
		if (continue_python(&w->python, layout))
			go_on(ctx, way, PYTHON_FRAMES);
	} else if (layout && start_python(w, layout)) {
		go_on(ctx, way, PYTHON_FRAMES);
	} else {
		count(PYTHON_NO_THREAD);
	}
	go_on(ctx, way, layout && !layout->frame_owner ? PYTHON_PLACE : SHIP);
	return 0;
}
PROGRAM(python)

static __always_inline int do_python_frames(void *ctx, enum way way)
{
	struct walk *w = this_walk();
	struct python_layout *layout;
	bool more = false;
	u32 i;

	if (!w)
		return 0;
	layout = layout_of(w);
	if (!layout)
		return 0;
#pragma clang loop unroll(disable)
	for (i = 0; i < PYTHON_FRAMES_PER_RUN; i++) {
		more = step_python();
		if (!more)
			break;
	}
	if (more && ++w->python.runs < PYTHON_RUNS)
		go_on(ctx, way, PYTHON_FRAMES);
	if (!w->python.frame && !w->python.thread.alone && ++w->python.runs < PYTHON_RUNS)
		go_on(ctx, way, PYTHON);
	if (w->python.frame)
		count(PYTHON_CUT);
	w->python.runs = 0;
	if (!layout->frame_owner)
		go_on(ctx, way, PYTHON_PLACE);
	if (w->d.managed_depth >= MAX_FRAMES && !layout->cframes)
		go_on(ctx, way, PYTHON_SKIP);
	end_run(w, w->python.cframe);
	go_on(ctx, way, SHIP);
	return 0;
}
PROGRAM(python_frames)

static __always_inline int do_python_skip(void *ctx, enum way way)
{
	struct walk *w = this_walk();
	struct python_layout *layout;
	bool more = false;
	u32 i;

	if (!w)
		return 0;
	layout = layout_of(w);
	if (!layout)
		return 0;
#pragma clang loop unroll(disable)
	for (i = 0; i < PYTHON_SKIPPED_PER_RUN; i++) {
		more = skip_python(w, layout);
		if (!more)
			break;
	}
	if (more && ++w->python.runs < PYTHON_SKIP_RUNS)
		go_on(ctx, way, PYTHON_SKIP);
	end_run(w, 0);
	go_on(ctx, way, SHIP);
	return 0;
}
PROGRAM(python_skip)

static __always_inline int do_python_place(void *ctx, enum way way)
{
	struct walk *w = this_walk();
	struct python_process *known;
	u32 pid;

	if (!w)
		return 0;
	pid = w->known_as;
	known = bpf_map_lookup_elem(MAP(python_processes), &pid);
	if (known)
		place_by_loop(w, &known->loop);
	go_on(ctx, way, SHIP);
	return 0;
}
PROGRAM(python_place)

/* Takes and ships the stack of the current thread, and what belongs to it. */
static __always_inline void observe(void *ctx, struct walk *w, struct control *settings, enum way way)
{
	u64 pid_tgid = bpf_get_current_pid_tgid();
	struct task_struct *task = (void *)bpf_get_current_task();
	bool has_memory;

	w->time_monotonic_ns = bpf_ktime_get_ns();
	w->pid = pid_tgid >> 32;
	w->tid = pid_tgid;
	w->epoch = *(volatile u32 *)&settings->epoch;
	w->runs = 0;
	w->hash = w->d.marker = settings->marker;
	w->d.user_depth = w->d.managed_depth = 0;
	w->d.end = COMPLETE;
	w->image.start_code = w->image.start_stack = 0;
	has_memory = find_image(task, &w->image);
	if (way == OFF_CPU && !has_memory) /* kernel threads only wait for work */
		return;
	count(way == OFF_CPU ? OFF_CPU_FOLLOWED : OBSERVED);
	if (way == OFF_CPU && w->runnable) { /* it was preempted anywhere: its stack says nothing, and is a new one each time */
		w->d.kernel_depth = 0;
		go_on(ctx, way, SHIP);
		return;
	}
	take_kernel_stack(ctx, w);
	if (has_memory && (way == ON_CPU ? start_walk(w, ctx, task) : start_walk_in_kernel(w, task))) {
		if (find_process(w, task)) {
			go_on(ctx, way, UNWIND);
		} else {
			request(w, REQUEST_PROCESS, 0);
			w->d.words[w->d.kernel_depth & 127] = w->pc;
			w->hash = mix(w->hash, w->pc);
			w->d.user_depth = 1;
			w->d.end = NO_PROCESS;
		}
	}
	go_on(ctx, way, SHIP);
}

SEC("perf_event")
int profile(struct bpf_perf_event_data *ctx)
{
	u32 zero = 0;
	struct control *settings = bpf_map_lookup_elem(MAP(control), &zero);
	struct walk *w = this_walk();

	if (bpf_get_current_pid_tgid() >> 32 == 0 || !settings || !w) /* process 0: the CPU is idle */
		return 0;
	observe(ctx, w, settings, ON_CPU);
	return 0;
}

/* Runs on every switch of threads, while the thread that leaves the CPU is still the current one. */
SEC("raw_tracepoint")
int off_cpu(struct bpf_raw_tracepoint_args *ctx)
{
	u32 zero = 0;
	struct control *settings = bpf_map_lookup_elem(MAP(control), &zero);
	struct walk *w;
	u32 state;

	if (!settings)
		return 0;
	run(ctx->args[2], settings);
	if (!is_chosen(settings))
		return 0;
	state = ctx->args[0] ? TASK_RUNNING : state_of((void *)ctx->args[1]); /* args[0]: it was preempted */
	w = this_walk();
	if (!w || (state != TASK_RUNNING && !(state & WAITS)))
		return 0;
	w->runnable = state == TASK_RUNNING;
	observe(ctx, w, settings, OFF_CPU);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";

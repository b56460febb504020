/* SPDX-License-Identifier: GPL-2.0-only */
/* Shows user space the kernel's description of the current thread, piece by piece. On a kernel without BTF,
 * collector/bpf/loaders/task_layout.py finds out from known values which field lies where.
 *
 * Runs on ticks of a perf_event of the thread that sends the request. Reads no field by name, so it loads without BTF.
 */
#include "kernel_types.h"
#include <bpf/bpf_helpers.h>

#define PIECE 1024

struct look {
	u64 requested; /* number of the request, set by user space */
	u64 address;   /* what user space wants to see */
	u64 answered;
	u64 failed; /* 1: the address cannot be read */
	u64 task;	/* address of the current thread's description */
	u64 pid_tgid;
	u64 ip, cs, flags, sp, ss; /* of the interrupted thread */
	u64 unused;
	u8 bytes[PIECE];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct look);
} look SEC(".maps");

SEC("perf_event")
int answer(struct bpf_perf_event_data *ctx)
{
	u32 zero = 0;
	struct look *l = bpf_map_lookup_elem(&look, &zero);
	u64 requested;

	if (!l)
		return 0;
	requested = *(volatile u64 *)&l->requested;
	if (requested == l->answered)
		return 0;
	l->task = bpf_get_current_task();
	l->pid_tgid = bpf_get_current_pid_tgid();
	l->failed = bpf_probe_read_kernel(l->bytes, sizeof(l->bytes), (void *)l->address) != 0;
	l->ip = *(volatile u64 *)&ctx->regs.ip;
	l->cs = *(volatile u64 *)&ctx->regs.cs;
	l->flags = *(volatile u64 *)&ctx->regs.flags;
	l->sp = *(volatile u64 *)&ctx->regs.sp;
	l->ss = *(volatile u64 *)&ctx->regs.ss;
	*(volatile u64 *)&l->answered = requested;
	return 0;
}

char LICENSE[] SEC("license") = "GPL";

/* SPDX-License-Identifier: GPL-2.0-only */
/* Limits what each process and each user may send to the activity socket (collector/activity/quotas.py).
 *
 * Is attached to the receiving socket. The kernel runs it in the sender's system call, before the datagram is queued. So
 * a flood costs its sender's CPU time, and takes no room in the queue that all senders share.
 */
#include "kernel_types.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

/* include/uapi/linux/bpf.h */
struct __sk_buff {
	u32 len;
};

/* include/linux/cred.h */
struct kuid {
	unsigned int val;
} __attribute__((preserve_access_index));

struct cred {
	struct kuid uid;
} __attribute__((preserve_access_index));

struct task_struct___creds {
	int tgid;
	const struct cred *cred;
} __attribute__((preserve_access_index));

/* What a datagram costs the collector, in nanoseconds of CPU time. */
#define DATAGRAM_NS 100000ULL
#define BYTE_NS 50ULL

#define BURST_NS 1000000000ULL /* a sender may send at once what it may send in this time */

struct sender {
	u32 uid;
	u32 pid; /* 0: all processes of the user */
};

struct quota {
	u64 used_until_ns; /* when the sender has paid for what it sent, CLOCK_MONOTONIC */
	u64 cut;		   /* datagrams */
	struct sender sender;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1 << 13);
	__type(key, struct sender);
	__type(value, struct quota);
} quotas SEC(".maps");

/* A sender pays this many nanoseconds for one of the collector's CPU time: of a process, of a user; user space sets both. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, u32);
	__type(value, u64);
} prices SEC(".maps");

/* Datagrams that were cut. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} cut SEC(".maps");

static __always_inline bool pays(struct sender *sender, u32 kind, u64 cost_ns, u64 now_ns)
{
	struct quota *quota = bpf_map_lookup_elem(&quotas, sender);
	u64 *price = bpf_map_lookup_elem(&prices, &kind);

	if (!quota) {
		struct quota fresh = {.used_until_ns = now_ns, .sender = *sender};

		bpf_map_update_elem(&quotas, sender, &fresh, 1 /* BPF_NOEXIST */);
		quota = bpf_map_lookup_elem(&quotas, sender);
	}
	if (!quota || !price)
		return true;
	if (quota->used_until_ns < now_ns)
		quota->used_until_ns = now_ns;
	if (quota->used_until_ns - now_ns > BURST_NS) {
		__sync_fetch_and_add(&quota->cut, 1);
		return false;
	}
	__sync_fetch_and_add(&quota->used_until_ns, cost_ns * *price);
	return true;
}

/* Returns how many bytes of the datagram are kept: all, or none. */
SEC("socket")
int limit(struct __sk_buff *datagram)
{
	struct task_struct___creds *task = (void *)bpf_get_current_task();
	struct sender sender = {.uid = BPF_CORE_READ(task, cred, uid.val), .pid = BPF_CORE_READ(task, tgid)};
	u64 cost_ns = DATAGRAM_NS + BYTE_NS * datagram->len, now_ns = bpf_ktime_get_ns();
	u32 zero = 0;
	u64 *total;

	if (pays(&sender, 0, cost_ns, now_ns)) {
		sender.pid = 0;
		if (pays(&sender, 1, cost_ns, now_ns))
			return -1;
	}
	total = bpf_map_lookup_elem(&cut, &zero);
	if (total)
		__sync_fetch_and_add(total, 1);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";

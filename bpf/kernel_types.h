/* SPDX-License-Identifier: GPL-2.0-only */
/* The few types and constants of the kernel that the programs use, in place of a generated vmlinux.h.
 *
 * Names before `___` are the kernel's. libbpf finds the fields in the BTF of the running kernel (CO-RE): offsets here mean
 * nothing, and only the named fields have to exist. BCC gets structures with offsets (bcc/kernel_layout.h).
 */
#ifndef ICESTREAM_KERNEL_TYPES_H
#define ICESTREAM_KERNEL_TYPES_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16; /* bpf_helper_defs.h names these three */
typedef __u32 __be32;
typedef __u32 __wsum;

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s16 s16;
typedef __s32 s32;
typedef __s64 s64;
typedef _Bool bool;

enum { false = 0, true = 1 };

#ifndef COMPILED_BY_BCC /* which has its own */

/* include/uapi/linux/bpf.h */
enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PROG_ARRAY = 3,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_RINGBUF = 27,
};

enum {
	BPF_ANY = 0,
	BPF_F_USER_STACK = 1 << 8,
	BPF_F_MMAPABLE = 1 << 10,
	BPF_RB_NO_WAKEUP = 1,
};

enum bpf_func_id { BPF_FUNC_task_pt_regs = 175 };

struct bpf_raw_tracepoint_args {
	u64 args[0];
};

#endif

/* arch/x86/include/uapi/asm/ptrace.h: what a perf_event program gets of the registers, and what lies at the top of the
 * kernel stack of a thread that entered the kernel. */
#ifdef __TARGET_ARCH_arm64 /* arch/arm64/include/uapi/asm/ptrace.h */
struct user_registers {
	u64 regs[31], sp, pc, pstate;
};
#else
struct user_registers {
	u64 r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax, ip, cs, flags, sp, ss;
};
#endif

/* include/uapi/linux/bpf_perf_event.h */
struct bpf_perf_event_data {
	struct user_registers regs;
	u64 sample_period;
	u64 addr;
};

#ifdef COMPILED_BY_BCC
#include "bcc/kernel_layout.h"
#else

#define preserve __attribute__((preserve_access_index))

/* include/linux/mm_types.h */
struct mm_struct {
	unsigned long start_code;
	unsigned long start_stack;
} preserve;

/* include/linux/sched.h */
struct task_struct {
	int tgid;
	struct task_struct *real_parent;
	struct mm_struct *mm;
	void *stack;
} preserve;

/* How a thread waits, and whether: `state` up to 5.13. */
struct task_struct___before_5_14 {
	long state;
} preserve;

struct task_struct___since_5_14 {
	unsigned int __state;
} preserve;

/* include/linux/uprobes.h: what a return probe keeps of the calls of a thread, the latest first */
struct return_instance {
	unsigned long stack; /* where the return address was */
	unsigned long orig_ret_vaddr;
	struct return_instance *next;
} preserve;

struct uprobe_task {
	struct return_instance *return_instances;
} preserve;

struct task_struct___probed { /* CONFIG_UPROBES */
	struct uprobe_task *utask;
} preserve;

/* arch/x86/include/asm/processor.h: the thread pointer is the base of fs */
struct thread_struct___x86 {
	unsigned long fsbase;
} preserve;

struct task_struct___x86 {
	struct thread_struct___x86 thread;
} preserve;

/* arch/arm64/include/asm/processor.h: the thread pointer is tpidr_el0 */
struct thread_uw___arm64 {
	unsigned long tp_value;
} preserve;

struct thread_struct___arm64 {
	struct thread_uw___arm64 uw;
} preserve;

struct task_struct___arm64 {
	struct thread_struct___arm64 thread;
} preserve;

#undef preserve

#endif

#endif

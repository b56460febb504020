/* SPDX-License-Identifier: GPL-2.0-only */
/* Return addresses that the kernel keeps. A return probe (uretprobe) puts the address of a page of the kernel's,
 * [uprobes], in place of the return address of each call of a function, and the kernel keeps what was there
 * (kernel/events/uprobes.c). */
#ifndef ICESTREAM_RETURN_PROBES_H
#define ICESTREAM_RETURN_PROBES_H

#include "task.h"

#define MOST_RETURN_PROBES 64 /* calls of a thread that return through them: MAX_URETPROBE_DEPTH */
#define PROBE_WORDS 4 /* the code on the page pushes three registers below the place of the return address */

/* Continues in the caller of a function with a return probe: its return address was where sp came from. False: the kernel
 * keeps none for this place, or nobody knows where it keeps it (BCC). */
static __always_inline bool leave_return_probe(struct walk *w)
{
#ifndef COMPILED_BY_BCC
	struct task_struct___probed *task = (void *)bpf_get_current_task();
	struct return_instance *kept;
	u64 place = w->sp - 8, at;
	u32 i;

	if (!bpf_core_field_exists(task->utask))
		return false;
	kept = BPF_CORE_READ(task, utask, return_instances);
#pragma clang loop unroll(disable)
	for (i = 0; i < MOST_RETURN_PROBES && kept; i++) {
		at = BPF_CORE_READ(kept, stack);
		if (at - place < PROBE_WORDS * 8) {
			w->sp = at + 8;
			w->pc = BPF_CORE_READ(kept, orig_ret_vaddr);
			w->interrupted = w->all_registers = false;
			return true;
		}
		kept = BPF_CORE_READ(kept, next);
	}
#endif
	return false;
}

#endif
